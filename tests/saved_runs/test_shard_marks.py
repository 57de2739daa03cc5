"""The files of shards are named on a board, and in a manifest, which is JSON."""

import json

from penstock.saved_runs.shard_marks import MARK_BITS, NAMED, ShardName, kept_arrays, kept_specs, names_in, told


def test_what_a_board_says_of_files_stands_in_the_manifest() -> None:
    names = [ShardName(50, (1 << MARK_BITS) - 1), None, ShardName(40, 7)]
    arrays = kept_arrays(names, answered=9)
    assert [(arrays[spec.name].shape, str(arrays[spec.name].dtype)) for spec in kept_specs(3)] == [
        ((), "int64"),
        ((3,), "int64"),
        ((3,), "int64"),
    ]
    manifest = json.loads(json.dumps({NAMED: told(arrays)}))
    assert names_in(manifest, 3) == names
    # Another number of shards, or a checkpoint of another run.
    assert names_in(manifest, 2) == [None, None]
    assert names_in({}, 2) == [None, None]


def test_the_name_of_a_file_has_its_update_and_its_mark() -> None:
    assert ShardName(50, 255).file_of(3) == "shard-3.00000050-0000000000000ff.table"
