"""A shard's rows go into a file when a run ends, and come back in the same places for the same checkpoint alone."""

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ResourceError, RunFolderError
from penstock.memory.table import Table
from penstock.replay import shard_file
from penstock.replay.contents import contents
from penstock.replay.shard_file import ShardMark, find_shard, keep_shard
from penstock.replay.sum_tree import SumTree
from penstock.types import ArraySpec
from tests.replay.world import aligned_bytes, lane_steps, make_table, world_specs, write

STEPS, SLOTS, WRITERS = 4, 6, 2
HEIGHT = STEPS + 1


class Shard:
    """A table of two writers, and the priorities of its rows."""

    def __init__(self, slots: int = SLOTS, steps: int = STEPS) -> None:
        self.table: Table = make_table(steps, 1, WRITERS, slots, same_step=True)
        rows = self.table.arrays["valid"].size
        self.tree = SumTree(aligned_bytes(SumTree.required(rows)), rows)

    def fill(self, end: int) -> "Shard":
        for sequence in range(end):
            for writer in range(WRITERS):
                steps = [lane_steps(writer, STEPS * (sequence + 1) + 1, sequence, same_step=True)]
                write(self.table, writer, sequence, steps, np.ones(1, bool), same_step=True)
                first = self.table.index(writer, sequence) * HEIGHT
                self.tree.set(first, sequence, np.arange(HEIGHT) + writer + sequence)
        return self


def mark(*taken: int, checkpoint: str = "a") -> ShardMark:
    return ShardMark(checkpoint, 7, taken)


def same(found: Shard, kept: Shard, end: int) -> bool:
    there, here = (contents(shard.table, [end] * WRITERS, shard.tree) for shard in (found, kept))
    return there.keys() == here.keys() and all(np.array_equal(there[name], here[name]) for name in there)


def test_rows_and_priorities_come_back_where_they_were(tmp_path: Path) -> None:
    kept, path = Shard().fill(9), tmp_path / "run" / "shard-1.table"
    # Of the six slots that are there, the last one, of sequence 8, belongs to no commit.
    assert keep_shard(path, kept.table, kept.tree, mark(8, 8)) == 5
    found = Shard()
    assert find_shard(path, found.table, found.tree, "a") == 5
    assert [(found.table.first(writer), found.table.written(writer)) for writer in range(WRITERS)] == [(3, 8)] * 2
    assert same(found, kept, 8)
    assert found.tree.max_priority() == kept.tree.max_priority()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_of_another_checkpoint_or_of_other_lanes_is_of_no_use(tmp_path: Path) -> None:
    kept, path = Shard().fill(3), tmp_path / "shard-0.table"
    assert find_shard(path, Shard().table, None, "a") == 0
    keep_shard(path, kept.table, kept.tree, mark(3, 3))
    for found, tree, checkpoint in ((Shard(), True, "b"), (Shard(steps=8), True, "a"), (Shard(), False, "a")):
        assert find_shard(path, found.table, found.tree if tree else None, checkpoint) == 0
        assert found.table.written(0) == 0
    # Of another capacity the newest rows are taken that fit.
    fewer = Shard(slots=3)
    assert find_shard(path, fewer.table, fewer.tree, "a") == 2
    # A later end of the run takes its place.
    keep_shard(path, kept.table, kept.tree, mark(2, 2, checkpoint="b"))
    found = Shard()
    assert find_shard(path, found.table, found.tree, "b") == 2
    assert same(found, kept, 2)


def test_writers_of_different_counts_go_on_at_the_same_sequence(tmp_path: Path) -> None:
    kept, path = Shard().fill(5), tmp_path / "shard-0.table"
    assert keep_shard(path, kept.table, kept.tree, mark(5, 3)) == 3
    found = Shard()
    assert find_shard(path, found.table, found.tree, "a") == 3
    assert [(found.table.first(writer), found.table.written(writer)) for writer in range(WRITERS)] == [(2, 5)] * 2


def test_a_shard_that_lacks_slots_of_the_checkpoint_takes_no_place(tmp_path: Path) -> None:
    kept, path = Shard().fill(3), tmp_path / "shard-0.table"
    keep_shard(path, kept.table, None, mark(3, 3))
    with pytest.raises(RunFolderError, match=r"^it lacks slots of the checkpoint$"):
        keep_shard(path, kept.table, None, mark(3, 4))
    assert find_shard(path, Shard().table, None, "a") == 3


def test_rows_are_found_if_episodes_have_other_metrics_now(tmp_path: Path) -> None:
    kept, path = Shard().fill(3), tmp_path / "shard-0.table"
    keep_shard(path, kept.table, kept.tree, mark(3, 3))
    specs = [*world_specs(STEPS, 1, same_step=True), ArraySpec("episode_metric.won", (STEPS + 1, 1), "float32")]
    table = Table(aligned_bytes(Table.required(specs, WRITERS, SLOTS)), specs, WRITERS, SLOTS)
    found = Shard()
    assert find_shard(path, table, found.tree, "a") == 3
    there, here = contents(table, [3] * WRITERS, found.tree), contents(kept.table, [3] * WRITERS, kept.tree)
    assert all(np.array_equal(there[name], here[name]) for name in here)


def test_a_slot_that_was_altered_is_left_out_with_all_older_ones(tmp_path: Path) -> None:
    kept, path = Shard().fill(5), tmp_path / "shard-0.table"
    kept.table.arrays["obs"][...] = np.arange(kept.table.arrays["obs"].size).reshape(kept.table.arrays["obs"].shape)
    assert keep_shard(path, kept.table, kept.tree, mark(5, 5)) == 5
    content = path.read_bytes()
    # The first observation of the second slot of writer 1.
    row = kept.table.arrays["obs"][kept.table.index(1, 1), 0, 0].tobytes()
    assert content.count(row) == 1
    path.write_bytes(content.replace(row, bytes(len(row))))
    found = Shard()
    assert find_shard(path, found.table, found.tree, "a") == 3
    assert [found.table.first(writer) for writer in range(WRITERS)] == [2, 2]


def test_a_file_that_was_not_written_to_its_end_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, path = Shard().fill(3), tmp_path / "shard-0.table"
    keep_shard(path, kept.table, None, mark(3, 3))

    def full(*_: object) -> None:
        raise ResourceError("no space")

    monkeypatch.setattr(shard_file, "transfer", full)
    with pytest.raises(ResourceError, match="no space"):
        keep_shard(path, kept.table, None, mark(3, 3, checkpoint="b"))
    monkeypatch.undo()
    assert find_shard(path, Shard().table, None, "a") == 3
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
