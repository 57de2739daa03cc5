"""A table's file goes on from a checkpoint: it has the checkpoint's rows, without those that were overwritten."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ResourceError, RunFolderError
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.replay import table_file
from penstock.replay.contents import contents, sampled_parts
from penstock.replay.priorities import Ranking, enter
from penstock.replay.resumed import MARK, Found, begin, marked
from penstock.replay.sum_tree import SumTree
from penstock.replay.table_file import Rings, mapped, read_header, settle
from penstock.saved_runs.checkpoints import Checkpoint
from penstock.types import Box, Discrete, Spaces

NUM_ENVS, T, SLOTS = 4, 3, 5
ROWS = NUM_ENVS * T
"""Number of rows with transitions in one slot of every writer."""
SPACES = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(3))


def rings(
    writers: int = 2, slots: int = SLOTS, *, ranked: bool = True, spaces: Spaces = SPACES, steps: int = T
) -> Rings:
    specs = table_specs(spaces, (), steps, NUM_ENVS // writers, same_step=True)
    return Rings(tuple(specs), writers, slots, ranked)


def opened(path: Path, own: Rings) -> tuple[Table, SumTree | None]:
    return own.structures(mapped(path, own))


def first_priority(slot: dict, config: None) -> np.ndarray:
    return slot["reward"][:-1] / 1000


def write(path: Path, own: Rings, ends: Sequence[int], life: int = 0) -> None:
    """Fill each ring up to an end, with numbers that show their place: life, rollout, step and lane."""
    table, tree = opened(path, own)
    lanes = table.arrays["valid"].shape[2]
    for writer, end in enumerate(ends):
        for sequence in range(table.written(writer), end):
            index = table.claim(writer, sequence)
            slot = table.slot(index)
            lane = np.arange(writer * lanes, (writer + 1) * lanes)
            slot["reward"][...] = 10_000 * life + 100 * sequence + 10 * np.arange(T + 1)[:, None] + lane
            slot["valid"][:T] = True
            slot["continues"][...] = True
            if tree is not None:
                enter(tree, Ranking(1.0, f"{__name__}:first_priority", None), slot, index, sequence)
            table.sign(index, sequence, sampled_parts(table, index))
            table.push(writer, sequence)


def checkpoint(path: Path, own: Rings, taken: Sequence[int], update: int = 7, files: Sequence[str] = ()) -> Checkpoint:
    """A checkpoint as the checkpointer writes it: the position of each writer, and the note about the file."""
    mark = marked(path, opened(path, own)[0])
    manifest = {"update": update, "files": dict.fromkeys(files), MARK: json.loads(json.dumps(mark))}
    return Checkpoint(path.parent, manifest, {"taken": np.array(taken)})


def held(path: Path, own: Rings) -> list[list[int]]:
    """Lane -> the sequences of its rows. Checks that each row is at the place that its numbers show."""
    table, tree = opened(path, own)
    lanes = table.arrays["valid"].shape[2]
    found = []
    for lane in range(NUM_ENVS):
        writer, column = divmod(lane, lanes)
        low = max(table.first(writer), table.written(writer) - (table.slots - 1))
        sequences = list(range(low, table.written(writer)))
        for sequence in sequences:
            slot = table.slot(table.index(writer, sequence))
            assert slot["reward"][2, column] == 100 * sequence + 20 + lane
            if tree is not None:
                size, row = slot["valid"].size, 2 * lanes + column
                rank = tree.read(np.array([table.index(writer, sequence) * size + row]))[0]
                assert rank == pytest.approx(slot["reward"][2, column] / 1000, abs=2**-22)
        found.append(sequences)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replay.table"


def test_a_new_file_is_reserved_and_empty(path: Path) -> None:
    own = rings()
    assert begin(path, own, None) == Found()
    assert path.stat().st_size == own.file_bytes
    assert path.stat().st_blocks * 512 >= own.file_bytes
    assert held(path, own) == [[]] * NUM_ENVS


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("end", [2, 9])
def test_what_was_not_written_to_since_is_the_same(path: Path, end: int, ranked: bool) -> None:
    own = rings(ranked=ranked)
    begin(path, own, None)
    write(path, own, [end, end])
    (table, tree), count = opened(path, own), min(end, SLOTS - 1)
    before = contents(table, [end, end], tree)
    assert before["reward"].shape[0] == count
    assert begin(path, own, checkpoint(path, own, [end, end])) == Found(ROWS * count)
    after = contents(table, [end, end], tree)
    assert all(np.array_equal(after[name], values) for name, values in before.items())


def test_rows_that_came_since_are_forgotten_and_those_they_replaced_left_out(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [9, 9])
    saved = checkpoint(path, own, [9, 9])
    # The checkpoint could sample from 5 to 8. Writer 0 pushes 9 and 10 and is killed in 11, which replaces 6.
    write(path, own, [11, 10])
    opened(path, own)[0].claim(0, 11)
    # 5 and 6 of two lanes; writer 1 had a slot to spare.
    assert begin(path, own, saved) == Found(4 * ROWS, 2 * ROWS // 2, same_ranks=False)
    assert held(path, own) == [[7, 8]] * 2 + [[5, 6, 7, 8]] * 2
    table, tree = opened(path, own)
    assert tree is not None
    assert [table.held(writer, 9) for writer in (0, 1)] == [2, 4]
    ranks = contents(table, [9, 9], tree)["priority"]
    # Nothing that cannot be sampled has a priority: of writer 1, slot 5 too, which is read no more once 9 is written.
    assert tree.shard(0).total() == pytest.approx(
        ranks.sum() + sum(tree.read(leaves(table, 1, 5))) + sum(tree.read(leaves(table, 1, 6)))
    )
    # After one round the whole ring can be sampled again.
    write(path, own, [13, 13])
    assert held(path, own) == [[9, 10, 11, 12]] * NUM_ENVS


def leaves(table: Table, writer: int, sequence: int) -> np.ndarray:
    size = table.arrays["valid"][0].size
    return table.index(writer, sequence) * size + np.arange(size)


def test_resumed_twice_from_one_checkpoint_both_lives_count(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [9, 9])
    saved = checkpoint(path, own, [9, 9])
    write(path, own, [11, 11], life=1)
    assert begin(path, own, saved).left_out == ROWS
    write(path, own, [10, 10], life=2)
    # Rows that the first resumed run had overwritten are not there the second time either.
    assert begin(path, own, saved) == Found(4 * ROWS, ROWS, same_ranks=False)
    assert held(path, own) == [[6, 7, 8]] * NUM_ENVS
    write(path, own, [10, 10])
    # A checkpoint of this life counts from the rows that this life began with.
    assert begin(path, own, checkpoint(path, own, [10, 10], update=8)) == Found(4 * ROWS)


def test_where_all_was_overwritten_nothing_is_left(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [4, 4])
    saved = checkpoint(path, own, [4, 4])
    write(path, own, [50, 50])
    assert begin(path, own, saved) == Found(4 * ROWS, 4 * ROWS, same_ranks=False)
    table, tree = opened(path, own)
    assert held(path, own) == [[]] * NUM_ENVS
    assert table.held(0, 4) == 0
    assert tree is not None
    assert tree.shard(0).total() == 0


@pytest.mark.parametrize(("writers", "slots"), [(1, SLOTS), (4, SLOTS), (2, 3), (2, 9)])
def test_another_number_of_writers_or_slots_gets_a_copy(path: Path, writers: int, slots: int) -> None:
    old, new = rings(), rings(writers, slots)
    begin(path, old, None)
    write(path, old, [9, 9])
    saved = checkpoint(path, old, [9, 9])
    before = contents(opened(path, old)[0], [9, 9], opened(path, old)[1])
    kept = min(SLOTS, slots) - 1
    found = Found(4 * ROWS, (4 - kept) * ROWS)
    assert begin(path, new, saved) == found
    table, tree = opened(path, new)
    after = contents(table, [9] * writers, tree)
    assert all(np.array_equal(after[name], values[-kept:]) for name, values in before.items() if values.ndim == 3)
    assert [*path.parent.iterdir()] == [path]
    # The checkpoint names the old numbering: resumed again, the new file is known to be made of it.
    write(path, new, [10] * writers)
    assert begin(path, new, saved) == found._replace(same_ranks=False)
    assert held(path, new)[0][-1] == 8
    # And back again.
    assert begin(path, old, saved).rows == 4 * ROWS
    assert held(path, old)[0][-1] == 8


def test_a_checkpoint_from_before_the_copy_finds_nothing(path: Path) -> None:
    old, new = rings(), rings(4)
    begin(path, old, None)
    write(path, old, [3, 3])
    early = checkpoint(path, old, [3, 3], update=3)
    write(path, old, [5, 5])
    begin(path, new, checkpoint(path, old, [5, 5], update=5))
    assert begin(path, new, early) == Found(why="it was laid out anew after the checkpoint")
    # Not that it were told once only.
    assert begin(path, new, early).why == "it was laid out anew after the checkpoint"


def test_a_checkpoint_that_the_table_was_taken_back_behind_finds_nothing(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [2, 2])
    early = checkpoint(path, own, [2, 2], update=2)
    write(path, own, [5, 5])
    late = checkpoint(path, own, [5, 5], update=5)
    begin(path, own, early)
    assert begin(path, own, late).why == "the run went on from an earlier checkpoint since"


def test_a_checkpoint_with_its_own_copy_gets_an_empty_file(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    assert begin(path, own, checkpoint(path, own, [5, 5], files=["table.safetensors"])) == Found()
    assert held(path, own) == [[]] * NUM_ENVS


def test_a_file_that_was_removed_is_made_anew_and_said(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    run = read_header(path).run
    path.unlink()
    for _ in range(2):
        assert begin(path, own, saved) == Found(why="there is no replay.table")
        assert read_header(path).run == run


def test_once_the_machine_was_restarted_only_what_was_on_the_disk_counts(
    path: Path, tmp_path: Path, monkeypatch
) -> None:
    own, boot = rings(), tmp_path / "boot_id"
    monkeypatch.setattr(table_file, "_BOOT", boot)
    boot.write_text("one\n")
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    settle(path)
    boot.write_text("two\n")
    assert begin(path, own, saved) == Found(4 * ROWS)
    boot.write_text("three\n")
    assert begin(path, own, saved).why == "the machine was restarted while it was written to"
    assert held(path, own) == [[]] * NUM_ENVS


def test_where_there_is_no_proc_sysctl_tells_the_boot(path: Path, tmp_path: Path, monkeypatch) -> None:
    own, boot = rings(), tmp_path / "uuid"
    monkeypatch.setattr(table_file, "_BOOT", tmp_path / "none")
    monkeypatch.setattr(table_file, "_SYSCTL", ("cat", str(boot)))
    boot.write_text("one\n")
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    assert begin(path, own, saved) == Found(4 * ROWS)
    boot.write_text("two\n")
    assert not read_header(path).whole
    # If neither tells it, a file counts as whole only if all of it was brought to the disk.
    boot.unlink()
    begin(path, own, None)
    assert not read_header(path).whole
    settle(path)
    assert read_header(path).whole


def refused(path: Path, own: Rings, saved: Checkpoint) -> str:
    """The line of the error. Checks that the file did not change."""
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(RunFolderError) as error:
        begin(path, own, saved)
    said = str(error.value)
    assert "\n" not in said
    assert said.startswith(f"replay file {path} cannot be used: ")
    assert said.endswith(f"; to go on with an empty table: rm {path} && penstock resume {path.parent}")
    if path.is_file():
        # But for the header, which says when it was last used.
        assert path.read_bytes()[1 << 16 :] == before[1 << 16 :]
    return said


def alter(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new.ljust(len(old))))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: os.truncate(path, path.stat().st_size - 1), " bytes"),
        (lambda path: os.truncate(path, 5000), "it has 5,000 of "),
        (lambda path: os.truncate(path, 0), "it is no replay table, or one of another version"),
        (lambda path: path.write_bytes(b"PK" * 100_000), "it is no replay table, or one of another version"),
        (lambda path: alter(path, b"table 1\n", b"table 2\n"), "it is no replay table, or one of another version"),
        (lambda path: alter(path, b'"writers":2', b'"writers":0'), " bytes"),
        (lambda path: alter(path, b'"slots":5', b'"slots":x'), "its header has been altered"),
        (lambda path: alter(path, b'"numbering"', b'"number"'), "its header has been altered"),
        (lambda path: alter(path, b'"valid"', b'"wrong"'), "its header has been altered"),
        (lambda path: (path.unlink(), path.mkdir()), "it cannot be read: Is a directory"),
    ],
)  # fmt: skip
def test_harm_is_named_in_a_line_that_says_what_to_type(path: Path, harm, says: str) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    harm(path)
    assert says in refused(path, own, saved)


def test_another_runs_file_is_refused(path: Path, tmp_path: Path) -> None:
    own, other = rings(), tmp_path / "other.table"
    for one in (path, other):
        begin(one, own, None)
        write(one, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    other.replace(path)
    assert "it is of another run" in refused(path, own, saved)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (rings(steps=T + 1), "it is of another layout: its obs is float32 [4, 4, 2], not float32 [5, 4, 2]"),
        (
            rings(spaces=Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Discrete(3))),
            "its obs is float32 [4, 4, 2], not float32 [4, 4, 3]",
        ),
        (
            rings(spaces=Spaces((("obs", Box((2,), "uint8", (0,), (9,))),), Discrete(3))),
            "its obs is float32 [4, 4, 2], not uint8 [4, 4, 2]",
        ),
        (
            rings(spaces=Spaces((("pixels", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(3))),
            "its pixels is missing, not float32 [4, 4, 2]",
        ),
    ],
)
def test_another_layout_is_refused_and_leaves_nothing(path: Path, wanted: Rings, says: str) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    assert says in refused(path, wanted, checkpoint(path, own, [5, 5]))
    assert [*path.parent.iterdir()] == [path]
    assert begin(path, own, checkpoint(path, own, [5, 5])) == Found(4 * ROWS)


def test_rows_without_priorities_are_refused_where_they_are_needed(path: Path) -> None:
    own = rings(ranked=False)
    begin(path, own, None)
    write(path, own, [5, 5])
    assert "its rows have no priorities" in refused(path, rings(), checkpoint(path, own, [5, 5]))


def test_a_full_disk_is_told_of_in_one_line(path: Path, monkeypatch) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match=r"takes a second file: .*No space left on device; free space in ") as error:
        begin(path, rings(4), saved)
    assert "\n" not in str(error.value)
    # What there was is there.
    assert [*path.parent.iterdir()] == [path]
    monkeypatch.undo()
    assert begin(path, own, saved) == Found(4 * ROWS)
    path.unlink()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match=r"No space left on device; free space in .*, or give a smaller --capacity"):
        begin(path, own, None)
    assert not [*path.parent.iterdir()]


@pytest.mark.parametrize("fault", ["begin.first:1", "begin.between:1", "begin.first:2", "begin.between:2"])
def test_a_death_while_it_is_taken_back_leaves_what_can_be_done_again(
    path: Path, fault_points: str, fault: str
) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [9, 9])
    saved = checkpoint(path, own, [9, 9])
    write(path, own, [11, 11])
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pickle, sys; from tests.replay.test_resumed import *; begin(*pickle.load(sys.stdin.buffer))",
        ],
        input=pickle.dumps((path, own, saved)),
        env={**os.environ, "PYTHONPATH": fault_points, "PENSTOCK_FAULT": f"table.{fault}"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert begin(path, own, saved) == Found(4 * ROWS, ROWS, same_ranks=False)
    assert held(path, own) == [[6, 7, 8]] * NUM_ENVS


@pytest.mark.parametrize("field", ["obs", "reward", "action", "valid", "continues", "final_count"])
@pytest.mark.parametrize("layout", ["same", "other"])
def test_rows_that_were_altered_are_left_out_with_those_before(path: Path, field: str, layout: str) -> None:
    own, new = rings(), rings() if layout == "same" else rings(slots=SLOTS + 3)
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    settle(path)
    table, _ = opened(path, own)
    # Writer 0 has sequences 1 to 4; the lowest bit of one byte of its sequence 3 is turned.
    table.arrays[field][table.index(0, 3), ...].reshape(-1).view(np.uint8)[0] ^= 1
    found = begin(path, new, saved)
    # In place only writer 0 loses 1 to 3: 3 of 8 slots. Laid out anew, as many slots of each writer are copied.
    assert found.rows == 4 * ROWS
    assert found.altered == 3 * ROWS // 2
    assert found.left_out == (3 * ROWS // 2 if layout == "same" else 3 * ROWS)
    lanes = held(path, new)
    assert lanes[:2] == [[4], [4]]
    assert lanes[2:] == ([[1, 2, 3, 4]] * 2 if layout == "same" else [[4], [4]])


def test_a_file_without_checksums_gets_them(path: Path) -> None:
    own = rings()
    begin(path, own, None)
    write(path, own, [5, 5])
    saved = checkpoint(path, own, [5, 5])
    # As an earlier version left it.
    header = read_header(path)
    table_file.write_header(path, replace(header, signed=False))
    os.truncate(path, own.nbytes)
    assert begin(path, own, saved) == Found(4 * ROWS)
    assert (read_header(path).signed, path.stat().st_size) == (True, own.file_bytes)
    opened(path, own)[0].arrays["reward"][SLOTS + 4, 0, 0] += 1.0
    assert begin(path, own, saved).altered == 4 * ROWS // 2
