"""A shard's rows go into a file for a checkpoint, and come back in the same places for the same checkpoint alone."""

import os
import signal
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ResourceError, RunFolderError
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay import contents as contents_of_tables
from penstock.replay import shard_file
from penstock.replay.contents import contents
from penstock.replay.shard_file import ShardMark, find_file, find_shard, keep_shard
from penstock.replay.sum_tree import SumTree
from penstock.saved_runs.shard_marks import ShardName
from penstock.types import ArraySpec
from tests.replay.world import lane_steps, make_table, world_specs, write

STEPS, SLOTS, WRITERS = 4, 6, 2
HEIGHT = STEPS + 1


class Shard:
    """A table of two writers, and the priorities of its rows."""

    def __init__(self, slots: int = SLOTS, steps: int = STEPS) -> None:
        self.table: Table = make_table(steps, 1, WRITERS, slots, same_step=True)
        rows = self.table.arrays["valid"].size
        self.tree = SumTree(aligned_zeros(SumTree.required(rows)), rows)

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
    table = Table(aligned_zeros(Table.required(specs, WRITERS, SLOTS)), specs, WRITERS, SLOTS)
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

    def full(*_: object, **__: object) -> None:
        raise ResourceError("no space")

    monkeypatch.setattr(shard_file, "transfer", full)
    with pytest.raises(ResourceError, match="no space"):
        keep_shard(path, kept.table, None, mark(3, 3, checkpoint="b"))
    monkeypatch.undo()
    assert find_shard(path, Shard().table, None, "a") == 3
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def named(folder: Path, update: int, checkpoint: str = "a", shard: int = 1) -> Path:
    return folder / ShardName(update, int(checkpoint, 16)).file_of(shard)


def numbering(checkpoint: str) -> str:
    return ShardName(0, int(checkpoint, 16)).numbering


def keep(folder: Path, kept: Shard, update: int, checkpoint: str = "a", stay: Collection[Path] = ()) -> Path:
    path, others = named(folder, update, checkpoint), frozenset(other.name for other in stay)
    keep_shard(path, kept.table, kept.tree, ShardMark(numbering(checkpoint), update, (3, 3), others))
    return path


def test_the_files_that_checkpoints_name_stay_and_no_others(tmp_path: Path) -> None:
    kept = Shard().fill(3)
    of_another = named(tmp_path, 4, shard=10)
    of_another.touch()
    first = keep(tmp_path, kept, 5, "a")
    second = keep(tmp_path, kept, 6, "b", stay=[first])
    third = keep(tmp_path, kept, 7, "c", stay=[first, second])
    assert sorted(tmp_path.iterdir()) == sorted((first, second, third, of_another))
    # The run is resumed from update 6. It comes to update 7 again: the file of the earlier 7 is of no use any more.
    again = keep(tmp_path, kept, 7, "d", stay=[second])
    assert sorted(tmp_path.iterdir()) == sorted((second, again, of_another))
    # Another life of the checkpointer asks once more for update 7, and no checkpoint names the one before yet.
    once_more = keep(tmp_path, kept, 7, "a", stay=[second, again])
    assert sorted(tmp_path.iterdir()) == sorted((second, again, once_more, of_another))


def test_a_file_that_is_not_wanted_any_more_is_given_up_between_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, path, answers = Shard().fill(5), tmp_path / "shard-0.table", [False, False, True]
    # A part of one slot.
    monkeypatch.setattr(contents_of_tables, "_PART_BYTES", 1)
    with pytest.raises(
        RunFolderError, match=r"^its file was given up: the run has ended, or a later one is to be writ"
    ):
        keep_shard(path, kept.table, kept.tree, mark(5, 5), lambda: answers.pop(0))
    assert answers == []
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_before_its_file_has_a_name_leaves_the_one_before(tmp_path: Path) -> None:
    kept = Shard().fill(3)
    before = keep(tmp_path, kept, 5, "a")
    child = os.fork()
    if child == 0:
        shard_file.move_file = lambda partial, path: os.kill(os.getpid(), signal.SIGKILL)
        keep(tmp_path, kept, 6, "b")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sorted(tmp_path.iterdir()) == [before, named(tmp_path, 6, "b").with_suffix(".table.partial")]
    names = [ShardName(6, 11), ShardName(5, 10)]
    assert find_file(tmp_path, 1, Shard().table, None, names) is None
    found = Shard()
    assert find_file(tmp_path, 1, found.table, found.tree, names) == (names[1], 3)
    assert same(found, kept, 3)
    # What it has left is removed with the next file.
    after = keep(tmp_path, kept, 7, "c", stay=[before])
    assert sorted(tmp_path.iterdir()) == [before, after]


def test_slots_that_are_overwritten_while_they_are_written_to_the_file_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, path, transfer = Shard().fill(6), tmp_path / "shard-0.table", shard_file.transfer
    steps = [lane_steps(0, STEPS * 9, 9, same_step=True)]

    def meanwhile(source: Table, *arguments: object, **options: object) -> int:
        count = transfer(source, *arguments, **options)
        # Writer 0 fills two slots more, and overwrites sequences 0 and 1. It has begun to overwrite sequence 2.
        for sequence in (6, 7):
            write(source, 0, sequence, steps, np.ones(1, bool), same_step=True)
        source.claim(0, 8)
        return count

    monkeypatch.setattr(shard_file, "transfer", meanwhile)
    assert keep_shard(path, kept.table, kept.tree, mark(6, 6)) == 3
    monkeypatch.undo()
    found = Shard()
    assert find_shard(path, found.table, found.tree, "a") == 3
    assert [(found.table.first(writer), found.table.written(writer)) for writer in range(WRITERS)] == [(3, 6)] * 2
    place = kept.table.index(1, 3)
    assert np.array_equal(found.table.arrays["obs"][found.table.index(1, 3)], kept.table.arrays["obs"][place])


def test_a_shard_that_was_overwritten_as_a_whole_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, path, transfer = Shard().fill(3), tmp_path / "shard-0.table", shard_file.transfer

    def meanwhile(source: Table, *arguments: object, **options: object) -> int:
        count = transfer(source, *arguments, **options)
        source.begin(0, 3, 3)
        return count

    monkeypatch.setattr(shard_file, "transfer", meanwhile)
    with pytest.raises(RunFolderError, match=r"^all its slots were overwritten while they were written"):
        keep_shard(path, kept.table, kept.tree, mark(3, 3))
    assert list(tmp_path.iterdir()) == []
