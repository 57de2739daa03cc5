"""A table's content is restored row by row, for any number of writers that share the lanes."""

import numpy as np
import pytest

from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.replay.contents import contents, restore, transfer
from penstock.replay.priorities import Ranking, enter
from penstock.replay.sum_tree import SumTree
from penstock.types import Box, Discrete, Spaces

NUM_ENVS, T, SLOTS = 4, 3, 5
SPACES = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(3))


def empty(writers: int, slots: int = SLOTS) -> Table:
    specs = table_specs(SPACES, (), T, NUM_ENVS // writers, same_step=True)
    return Table(aligned_zeros(Table.required(specs, writers, slots)), specs, writers, slots)


def filled(writers: int, count: int) -> Table:
    """A table in which every number shows its place: rollout, step and lane, the same for any ``writers``."""
    table, lanes = empty(writers), NUM_ENVS // writers
    for sequence in range(count):
        for writer in range(writers):
            slot = table.slot(table.claim(writer, sequence))
            lane = np.arange(writer * lanes, (writer + 1) * lanes)
            number = 1000 * sequence + 10 * np.arange(T + 1)[:, None] + lane
            slot["obs"][...] = number[..., None]
            slot["action"][...] = number % 3
            slot["reward"][...] = number
            slot["valid"][:T] = True
            slot["continues"][...] = (sequence + lane) % 2
            ended = [int(own) for own in lane if (own + sequence) % 3 == 0]
            slot["final_count"][...] = len(ended)
            for entry, own in enumerate(ended):
                slot["final_t"][entry] = own % T
                slot["final_lane"][entry] = own - lane[0]
                slot["final.obs"][entry] = -1000 * sequence - own
            table.push(writer, sequence)
    return table


def first_priority(slot: dict, config: None) -> np.ndarray:
    return slot["reward"][:-1] / 1000


def ranked(table: Table) -> tuple[Table, SumTree]:
    """The slots that a table holds, ranked by their rewards as they would have been when they were written."""
    tree = SumTree(aligned_zeros(SumTree.required(10_000)), table.arrays["valid"].size)
    ranking = Ranking(1.0, f"{__name__}:first_priority", None)
    for writer in range(table.writers):
        last = table.written(writer)
        for sequence in range(max(0, last - SLOTS), last):
            index = table.index(writer, sequence)
            enter(tree, ranking, table.slot(index), index, sequence)
    return table, tree


def same(left: dict, right: dict) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("count", [1, 4, 13])
def test_contents_do_not_depend_on_the_number_of_writers(count: int) -> None:
    one = contents(filled(1, count), [count])
    assert same(one, contents(filled(2, count), [count] * 2))
    assert same(one, contents(filled(4, count), [count] * 4))
    # All but one slot of a ring of five.
    assert one["obs"].shape == (min(count, SLOTS - 1), T + 1, NUM_ENVS, 2)
    assert one["reward"][-1, 2, 3] == 1000 * (count - 1) + 23


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (4, 1), (2, 4)])
def test_a_restored_table_holds_the_same(before: int, after: int) -> None:
    kept = contents(filled(before, 9), [9] * before)
    table = empty(after)
    assert restore(table, kept) == 9
    assert [table.written(writer) for writer in range(after)] == [9] * after
    assert same(kept, contents(table, [9] * after))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (4, 1)])
def test_priorities_come_back_exactly(before: int, after: int) -> None:
    table, tree = ranked(filled(before, 9))
    kept = contents(table, [9] * before, tree)
    # The row of slot 7, step 1, lane 3 has (1000 * 7 + 10 + 3) / 1000; row T has none.
    assert kept["priority"][2, 1, 3] == pytest.approx(7.013, abs=2**-22)
    assert (kept["priority"][:, T] == 0).all()
    again, copy = empty(after), SumTree(aligned_zeros(SumTree.required(10_000)), empty(after).arrays["valid"].size)
    restore(again, kept, copy)
    assert same(kept, contents(again, [9] * after, copy))
    assert copy.max_priority() == tree.max_priority() > 8.0
    assert copy.total() == pytest.approx(kept["priority"].sum())


def test_rows_without_priorities_do_not_fit_where_they_are_needed() -> None:
    tree = SumTree(aligned_zeros(SumTree.required(10_000)), empty(1).arrays["valid"].size)
    with pytest.raises(ValueError, match="its rows have no priorities"):
        restore(empty(1), contents(filled(1, 2), [2]), tree)


def test_a_smaller_table_keeps_the_newest() -> None:
    kept = contents(filled(2, 4), [4] * 2)
    table = empty(2, slots=3)
    assert restore(table, kept) == 4
    assert np.array_equal(contents(table, [4, 4])["obs"], kept["obs"][2:])
    assert (contents(table, [4, 4])["final.obs"] == kept["final.obs"][kept["final_slot"] >= 2]).all()


def test_as_much_of_one_writer_as_of_another_is_kept() -> None:
    table = filled(2, 3)
    table.claim(1, 3)
    table.push(1, 3)
    assert contents(table, [3, 4])["obs"].shape[0] == 3
    # The slot that is being overwritten is left out: writer 0 is filling the slot of its oldest sequence.
    for sequence in (3, 4):
        table.claim(0, sequence)
        table.push(0, sequence)
    table.claim(0, 5)
    assert contents(table, [3, 4])["obs"].shape[0] == 2


def test_rows_of_another_layout_are_refused() -> None:
    kept = contents(filled(1, 2), [2])
    with pytest.raises(ValueError, match=r"its obs is missing, not float32 \[4, 4, 2\]"):
        restore(empty(1), {name: values for name, values in kept.items() if name != "obs"})
    with pytest.raises(ValueError, match=r"its reward is float32 \[4, 3\], not float32 \[4, 4\]"):
        restore(empty(1), {**kept, "reward": kept["reward"][:, :, :3]})
    with pytest.raises(ValueError, match=r"its action is float64 \[4, 4\], not int64 \[4, 4\]"):
        restore(empty(1), {**kept, "action": kept["action"].astype(np.float64)})


@pytest.mark.parametrize("name", [*contents(filled(1, 2), [2])])
def test_each_array_is_needed(name: str) -> None:
    kept = contents(filled(1, 2), [2])
    with pytest.raises(ValueError, match=r"its .* is |its sequence"):
        restore(empty(1), {other: values for other, values in kept.items() if other != name})


@pytest.mark.parametrize("name", ["reward", "continues", "final_t", "final.obs"])
def test_fewer_of_one_array_are_refused(name: str) -> None:
    kept = contents(filled(1, 4), [4])
    with pytest.raises(ValueError, match=f"its {name} has {len(kept[name]) - 1} entries, not {len(kept[name])}"):
        restore(empty(1), {**kept, name: kept[name][1:]})


@pytest.mark.parametrize(("before", "after", "slots"), [(1, 1, SLOTS), (1, 2, SLOTS), (4, 1, 9), (2, 4, 3)])
@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_transfer_leaves_what_contents_and_restore_do(monkeypatch, before, after, slots, part_bytes) -> None:
    monkeypatch.setattr("penstock.replay.contents._PART_BYTES", part_bytes)
    source, ranks = ranked(filled(before, 9))
    one, two = empty(after, slots), empty(after, slots)
    trees = [SumTree(aligned_zeros(SumTree.required(10_000)), one.arrays["valid"].size) for _ in range(2)]
    restore(one, contents(source, [9] * before, ranks), trees[0])
    assert transfer(source, [0] * before, [9] * before, ranks, two, trees[1]) == min(SLOTS, slots) - 1
    assert same(contents(one, [9] * after, trees[0]), contents(two, [9] * after, trees[1]))
    assert all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)
    assert [one.first(writer) for writer in range(after)] == [two.first(writer) for writer in range(after)]


def test_a_transfer_takes_as_much_of_one_writer_as_of_another() -> None:
    source = filled(2, 3)
    source.claim(1, 3)
    source.push(1, 3)
    target = empty(1)
    assert transfer(source, [0, 0], [3, 4], None, target, None) == 3
    assert (target.first(0), target.written(0)) == (1, 4)
    assert np.array_equal(contents(source, [3, 4])["obs"], contents(target, [4])["obs"])


def test_what_was_not_restored_is_not_there() -> None:
    table = empty(1, slots=9)
    restore(table, contents(filled(1, 9), [9]))
    assert (table.first(0), table.written(0)) == (5, 9)
    assert contents(table, [9])["obs"].shape[0] == 4
