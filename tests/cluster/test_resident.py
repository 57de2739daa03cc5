"""A host alone has the rows of its shards: home lets go of them, ranks them, and forgets them if the host is lost."""

import mmap

import numpy as np
import pytest

from penstock.cluster import rings
from penstock.cluster.fetched import Fetched, RolloutName, WantedRollout
from penstock.cluster.observation_fields import only
from penstock.cluster.parcels import packed
from penstock.cluster.resident import ResidentShards
from penstock.cluster.rings import take_news
from penstock.errors import PenstockError
from penstock.memory import table_pages
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.types import Array
from tests.cluster.test_rings import HEIGHT, SHARDS, STEPS, WRITERS, Side, carry, same
from tests.replay.world import world_specs

SLOTS = 8


class Home(Side):
    """The table of home, and what it knows of the host of shard 1. Parts of slots are given back, however small."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(SLOTS)
        monkeypatch.setattr(table_pages, "PART_BYTES", 1)
        self.hosted = self.new_host()

    def new_host(self) -> ResidentShards:
        return ResidentShards(self.table, self.trees, SHARDS, self.give_back, ())

    def give_back(self, part: Array) -> None:
        """As the system does it."""
        part[...] = 0

    def emptied(self, writer: int, below: int) -> list[int]:
        """The sequences of a writer whose content is gone."""
        indices = {sequence: self.table.index(writer, sequence) for sequence in range(below)}
        return [sequence for sequence, index in indices.items() if not self.table.arrays["obs"][index].any()]

    def priorities(self, writer: int, sequence: int) -> list[float]:
        first = self.table.index(writer, sequence) * HEIGHT
        return self.trees.read(np.arange(first, first + HEIGHT)).tolist()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(monkeypatch)


def test_home_lets_go_of_what_its_host_has_and_a_commit_accounts_for(home: Home) -> None:
    home.fill(0, 4)
    carry(home, Side(SLOTS), home.hosted, 4)
    # The host has not said yet that it has them.
    home.hosted.let_go([4] * WRITERS)
    assert home.emptied(2, 4) == []
    home.hosted.arrived()
    home.hosted.let_go([2] * WRITERS)
    assert home.emptied(2, 4) == [0, 1]
    # The last slot says where the lanes of its writer go on.
    home.hosted.let_go([4] * WRITERS)
    assert (home.emptied(2, 4), home.emptied(3, 4)) == ([0, 1, 2], [0, 1, 2])
    # Shard 0 is sampled at home.
    assert (home.emptied(0, 4), home.emptied(1, 4)) == ([], [])
    # What home knows of its rows stays.
    assert home.table.held(2, 4) == 4
    assert home.priorities(2, 0) == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_host_goes_on_with_its_slots_while_home_lets_go_of_them(home: Home) -> None:
    host, whole = Side(SLOTS), Side(SLOTS)
    for sequence in range(20):
        home.write(sequence)
        whole.write(sequence)
        carry(home, host, home.hosted, sequence + 1)
        home.hosted.arrived()
        home.hosted.let_go([sequence + 1] * WRITERS)
        same(whole, host, sequence + 1)
    # All but the last slot and the older half of the ring, which was given back before.
    assert len(home.emptied(2, 20)) > 0


@pytest.mark.parametrize("limit", [8 * HEIGHT, rings.PART_BYTES], ids=["slot by slot", "at once"])
def test_after_a_meeting_priorities_come_anew_and_slots_do_not(home: Home, monkeypatch, limit: int) -> None:
    host, whole = Side(SLOTS), Side(SLOTS)
    home.fill(0, 12)
    whole.fill(0, 12)
    carry(home, host, home.hosted, 12)
    home.hosted.arrived()
    home.hosted.let_go([12] * WRITERS)
    # What a learner has ranked in a turn that was given up.
    row = host.table.index(0, 9) * HEIGHT
    assert host.trees.shard(1).update(np.array([row]), np.array([9]), np.array([900.0])) == 1
    monkeypatch.setattr(rings, "PART_BYTES", limit)
    parts, slots, ranked = 0, 0, set()
    whole_news = False
    while not whole_news:
        news = home.hosted.news([1], [12] * WRITERS, 1)
        take_news(host.table, host.trees, news, Fetched(()))
        parts, slots, whole_news = parts + 1, slots + len(news.slots), news.whole
        ranked |= {(part.writer, part.sequence + at) for part in news.ranks for at in range(len(part.priorities))}
    same(whole, host, 12)
    assert slots == 0
    # Of the ring of eight slots one is left out: its writer may be filling it.
    assert ranked == {(writer, sequence) for writer in (2, 3) for sequence in range(5, 12)}
    assert parts == (14 if limit == 8 * HEIGHT else 1)
    # The next goal of the same meeting brings new slots only.
    monkeypatch.setattr(rings, "PART_BYTES", 1 << 20)
    home.write(12)
    whole.write(12)
    news = home.hosted.news([1], [13] * WRITERS, 1)
    assert (len(news.slots), news.ranks) == (2, ())
    take_news(host.table, host.trees, news, Fetched(()))
    same(whole, host, 13)


def test_a_host_that_is_lost_takes_the_rows_with_it_that_home_let_go_of(home: Home) -> None:
    home.fill(0, 12)
    carry(home, Side(SLOTS), home.hosted, 12)
    home.hosted.arrived()
    home.hosted.let_go([10] * WRITERS)
    total = home.trees.shard(1).total()
    # Of two writers, sequences 4 to 9: the ring has eight slots, and 10 and 11 are still at home.
    assert home.hosted.lose() == 2 * 6 * STEPS
    assert [home.table.held(writer, 12) for writer in range(WRITERS)] == [7, 7, 2, 2]
    assert home.priorities(2, 9) == [0.0] * HEIGHT
    assert home.priorities(2, 10) == [12.0, 13.0, 14.0, 15.0, 16.0]
    left = sum(sum(home.priorities(writer, sequence)) for writer in (2, 3) for sequence in (10, 11))
    assert home.trees.shard(1).total() == left < total
    # Another host gets what is left, and what comes.
    host, other = Side(SLOTS), home.new_host()
    home.write(12)
    news = other.news([1], [13] * WRITERS, 2)
    assert news.begins == {2: 10, 3: 10}
    take_news(host.table, host.trees, news, Fetched(()))
    same(home, host, 13)
    assert host.trees.shard(1).total() == home.trees.shard(1).total()


OBSERVATIONS = ("obs", "final.obs")


class Apart(Home):
    """A home that never has the observations of shard 1: its host has fetched them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.host = Side(SLOTS)
        self.held = Fetched(OBSERVATIONS)

    def new_host(self) -> ResidentShards:
        return ResidentShards(self.table, self.trees, SHARDS, self.give_back, OBSERVATIONS)

    def write(self, sequence: int) -> None:
        super().write(sequence)
        for writer in (2, 3):
            slot, name = self.table.slot(self.table.index(writer, sequence)), RolloutName(7, 10 + sequence)
            self.held.put(WantedRollout(f"env.{writer}", 0, writer, name), packed(only(slot, OBSERVATIONS)))
            for field in OBSERVATIONS:
                slot[field][...] = -1
            self.hosted.fetched(writer, name)

    def bring(self, taken: int) -> int:
        """Bring the host up to a goal. Returns the number of parts."""
        for part in range(1, 100):
            news = self.hosted.news([1], [taken] * WRITERS, 0)
            take_news(self.host.table, self.host.trees, news, self.held)
            if news.whole:
                return part
        raise AssertionError("it does not end")


@pytest.mark.parametrize("limit", [1, rings.PART_BYTES], ids=["slot by slot", "at once"])
def test_a_slot_is_whole_where_its_observations_were_fetched(monkeypatch, limit: int) -> None:
    monkeypatch.setattr(rings, "PART_BYTES", limit)
    home, whole = Apart(monkeypatch), Side(SLOTS)
    for sequence in range(0, 20, 2):
        for each in (sequence, sequence + 1):
            home.write(each)
            whole.write(each)
        assert home.bring(sequence + 2) == (4 if limit == 1 else 1)
        for writer in (2, 3):
            for each in range(max(0, sequence - 5), sequence + 2):
                index = whole.table.index(writer, each)
                expected, found = whole.table.slot(index), home.host.table.slot(index)
                assert all(np.array_equal(found[name], expected[name]) for name in ("obs", "reward", "final_count"))
                count = int(expected["final_count"])
                assert np.array_equal(found["final.obs"][:count], expected["final.obs"][:count])
        home.hosted.arrived()
        home.hosted.let_go([sequence + 2] * WRITERS)
    # Nothing is kept of what was named.
    assert not any(home.held._parcels.values())
    assert not any(home.hosted._fetched.values())


def test_what_was_fetched_and_never_named_is_dropped_with_the_next_rollout(monkeypatch) -> None:
    home = Apart(monkeypatch)
    home.fill(0, 3)
    # Of a life that died before home had delivered it.
    home.held.put(WantedRollout("env.2", 0, 2, RolloutName(6, 99)), np.zeros(1, np.uint8))
    home.bring(2)
    assert {writer: set(left) for writer, left in home.held._parcels.items()} == {
        writer: {RolloutName(7, 12)} for writer in (2, 3)
    }


def test_a_slot_whose_observations_are_nowhere_ends_the_run_with_its_name(monkeypatch) -> None:
    home = Apart(monkeypatch)
    home.write(0)
    home.held = Fetched(OBSERVATIONS)
    with pytest.raises(PenstockError, match=r"writer 2 whose observations are not here: .*life=7, sequence=10"):
        home.bring(1)


def test_a_host_that_is_lost_takes_all_slots_with_it_whose_observations_home_never_had(monkeypatch) -> None:
    home = Apart(monkeypatch)
    home.fill(0, 6)
    home.bring(4)
    home.hosted.arrived()
    # Two slots of each writer were let go of, two more are on the host, and of two it has the observations only.
    home.hosted.let_go([2] * WRITERS)
    assert home.hosted.lose() == 2 * 6 * STEPS
    assert [home.table.held(writer, 6) for writer in range(WRITERS)] == [6, 6, 0, 0]
    assert home.trees.shard(1).total() == 0.0
    # The next host gets nothing of them, also if the learner had taken note of a part only.
    other, host = home.new_host(), Side(SLOTS)
    for taken in (5, 6):
        news = other.news([1], [taken] * WRITERS, 1)
        assert (news.slots, news.begins) == ([], {2: taken, 3: taken})
        take_news(host.table, host.trees, news, Fetched(OBSERVATIONS))
    # What comes from now on is there.
    Side.write(home, 6)
    news = other.news([1], [7] * WRITERS, 1)
    assert [(slot.writer, slot.sequence, slot.fetched) for slot in news.slots] == [(2, 6, None), (3, 6, None)]


def test_what_was_lost_counts_once(home: Home) -> None:
    home.fill(0, 6)
    for meeting in (0, 1):
        hosted = home.new_host()
        hosted.news([1], [6] * WRITERS, meeting)
        hosted.arrived()
        hosted.let_go([4] * WRITERS)
        assert hosted.lose() == (2 * 4 * STEPS if meeting == 0 else 0)


def test_a_shard_without_priorities_is_lost_as_well(home: Home) -> None:
    hosted, host = ResidentShards(home.table, None, SHARDS, home.give_back, ()), Side(SLOTS)
    home.fill(0, 3)
    take_news(host.table, None, hosted.news([1], [3] * WRITERS, 0), Fetched(()))
    hosted.arrived()
    # After a meeting there is nothing to bring.
    news = hosted.news([1], [3] * WRITERS, 1)
    assert (news.begins, news.slots, news.ranks, news.whole) == ({}, [], (), True)
    hosted.let_go([3] * WRITERS)
    assert hosted.lose() == 2 * 2 * STEPS


def test_memory_of_home_does_not_grow_with_the_table(monkeypatch) -> None:
    """Of two shards, home keeps one, and of the other one what its host has not got yet."""
    monkeypatch.setattr(table_pages, "PART_BYTES", 8 * mmap.PAGESIZE)
    specs, slots = world_specs(STEPS, 64, same_step=True), 256
    segment = Segment.create(Table.required(specs, 2, slots), "test")
    table = Table(segment.bytes, specs, 2, slots)
    hosted = ResidentShards(table, None, 2, segment.give_back, ())

    def touched() -> int:
        """Pages of the segment that hold something."""
        whole = segment.nbytes // mmap.PAGESIZE * mmap.PAGESIZE
        return int(segment.bytes[:whole].reshape(-1, mmap.PAGESIZE).any(1).sum())

    found = []
    for sequence in range(2 * slots):
        for writer in (0, 1):
            for array in table.slot(table.claim(writer, sequence)).values():
                array[...] = 1
            table.push(writer, sequence)
        hosted.news([1], [sequence + 1] * 2, 0)
        hosted.arrived()
        hosted.let_go([sequence + 1] * 2)
        if sequence + 1 in {slots, 2 * slots}:
            found.append(touched())
    both = segment.nbytes / mmap.PAGESIZE
    assert all(both / 2 < pages < 0.7 * both for pages in found)
    segment.close()
