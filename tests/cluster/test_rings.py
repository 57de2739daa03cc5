"""A host has the shard of its learners as home has it, however many parts it comes in."""

import numpy as np
import pytest

from penstock.cluster import rings
from penstock.cluster.fetched import Fetched
from penstock.cluster.rings import HostedShards, RowRanks, take_news
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTrees
from tests.replay.world import lane_steps, make_table, write

STEPS, SHARDS, WRITERS, SLOTS = 4, 2, 4, 3
HEIGHT = STEPS + 1


class Side:
    """A table and its priorities."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.table: Table = make_table(STEPS, 1, WRITERS, slots, same_step=True)
        rows = self.table.arrays["valid"].size
        self.trees = SumTrees(aligned_zeros(SumTrees.required(rows, SHARDS)), rows, SHARDS)

    def write(self, sequence: int) -> None:
        """Fill one slot of each writer."""
        for writer in range(WRITERS):
            steps = [lane_steps(writer, STEPS * (sequence + 1) + 1, sequence, same_step=True)]
            write(self.table, writer, sequence, steps, np.zeros(1, bool), same_step=True)
            first = self.table.index(writer, sequence) * HEIGHT
            self.trees.set(first, sequence, np.arange(HEIGHT) + writer + sequence)

    def fill(self, begin: int, end: int) -> None:
        """Fill these slots of each writer."""
        for sequence in range(begin, end):
            self.write(sequence)


def carry(home: Side, host: Side, hosted: HostedShards, taken: int, meeting: int = 0) -> int:
    """Bring shard 1 up to a goal. Returns the number of parts."""
    for part in range(1, 100):
        news = hosted.news([1], [taken] * WRITERS, meeting)
        take_news(host.table, host.trees, news, Fetched(()))
        if news.whole:
            return part
    raise AssertionError("it does not end")


def same(home: Side, host: Side, below: int) -> None:
    for writer in (2, 3):
        held = home.table.held(writer, below)
        assert host.table.held(writer, below) == held
        for sequence in range(below - held, below):
            index = home.table.index(writer, sequence)
            there, here = host.table.slot(index), home.table.slot(index)
            assert all(np.array_equal(there[name], here[name]) for name in ("obs", "reward", "valid"))
            rows = np.arange(index * HEIGHT, (index + 1) * HEIGHT)
            assert np.array_equal(host.trees.read(rows), home.trees.read(rows))
    assert host.table.written(0) == 0
    assert host.trees.shard(1).max_priority() == home.trees.shard(1).max_priority()


@pytest.mark.parametrize("limit", [1, rings.PART_BYTES], ids=["slot by slot", "at once"])
def test_each_goal_brings_what_is_new(monkeypatch, limit: int) -> None:
    monkeypatch.setattr(rings, "PART_BYTES", limit)
    home, host = Side(), Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    for sequence in range(5):
        home.write(sequence)
        parts = carry(home, host, hosted, sequence + 1)
        # Two writers, and the last part has the last slot.
        assert parts == (2 if limit == 1 else 1)
        same(home, host, sequence + 1)


def test_a_host_that_fell_behind_keeps_what_it_has_until_newer_slots_come(monkeypatch) -> None:
    home, host = Side(), Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    home.write(0)
    home.write(1)
    take_news(host.table, host.trees, hosted.news([1], [2] * WRITERS, 0), Fetched(()))
    # All slots that the host has are overwritten at home before it hears of home again. The link is slow.
    for sequence in range(2, 6):
        home.write(sequence)
    monkeypatch.setattr(rings, "PART_BYTES", 1)
    held = []
    for _ in range(4):
        news = hosted.news([1], [6] * WRITERS, 0)
        take_news(host.table, host.trees, news, Fetched(()))
        held.append([host.table.held(writer, host.table.written(writer)) for writer in (2, 3)])
        assert news.whole == (len(held) == 4)
    # Writer 3 has its two old slots until its first new one comes.
    assert held == [[1, 2], [1, 1], [2, 1], [2, 2]]
    same(home, host, 6)


def test_over_a_link_that_is_too_slow_slots_of_each_writer_come_in_turn(monkeypatch) -> None:
    monkeypatch.setattr(rings, "PART_BYTES", 1)
    home = Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    came = []
    for sequence in range(6):
        home.write(sequence)
        came += [slot.writer for slot in hosted.news([1], [sequence + 1] * WRITERS, 0).slots]
    assert came == [2, 3] * 3


def test_after_a_meeting_all_slots_come_anew() -> None:
    home, host = Side(), Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    home.write(0)
    home.write(1)
    carry(home, host, hosted, 2)
    # What a learner has ranked in a turn that was given up.
    host.trees.shard(1).update(np.array([0]), np.array([0]), np.array([900.0]))
    carry(home, host, hosted, 2, meeting=1)
    same(home, host, 2)


def test_a_slot_that_is_overwritten_on_its_way_is_left_out(monkeypatch) -> None:
    home, host = Side(), Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    home.write(0)
    home.write(1)
    # The writers come round while the slots are copied.
    monkeypatch.setattr(home.table, "oldest", lambda writer: 1)
    news = hosted.news([1], [2] * WRITERS, 0)
    assert news.begins == {2: 1, 3: 1}
    assert [(slot.writer, slot.sequence) for slot in news.slots] == [(2, 1), (3, 1)]
    take_news(host.table, host.trees, news, Fetched(()))
    assert [host.table.held(writer, 2) for writer in (2, 3)] == [1, 1]


def test_what_learners_have_ranked_counts_for_the_slots_that_are_there_then() -> None:
    home, host = Side(), Side()
    hosted = HostedShards(home.table, home.trees, SHARDS)
    home.fill(0, 2)
    take_news(host.table, host.trees, hosted.news(range(SHARDS), [2] * WRITERS, 0), Fetched(()))
    # Three slots a ring: sequence 3 lies where 0 was.
    home.fill(2, 4)
    places = [(2, 1, 1), (2, 0, 2), (3, 2, 0)]
    rows = np.array([home.table.index(writer, sequence) * HEIGHT + step for writer, sequence, step in places])
    stamps = np.array([sequence for _, sequence, _ in places])
    ranked = [RowRanks(rows, stamps, np.array(priorities)) for priorities in ([40.0, 50.0, 60.0], [41.0, 51.0, 61.0])]
    news = hosted.news(range(SHARDS), [4] * WRITERS, 0)
    take_news(host.table, host.trees, news._replace(ranked=tuple(ranked)), Fetched(()))
    # The last one counts, also for a slot that comes with it. Step 2 of writer 2 in sequence 3 has 2 + 2 + 3.
    assert host.trees.read(rows).tolist() == [41, 7, 61]
