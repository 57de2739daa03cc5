"""Learners that meet over torch.distributed: the bits of rounds in shared memory, and one that is lost."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions, TCPStore

from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.gradient_exchange.gossip import Gossip
from penstock.gradient_exchange.process_group import gloo, transport
from penstock.gradient_exchange.process_group.gloo import OverGloo
from penstock.gradient_exchange.process_group.rendezvous import KeeperSide, OtherSide
from penstock.gradient_exchange.process_group.rounds import ProcessGroupRounds
from penstock.memory.rounds import Joined, Rounds
from penstock.program.graph import ProcessGroup
from penstock.types import ArraySpec
from penstock.updates.team import DissolvedError

STATE = (ArraySpec("critic", (40, 25), "float32"), ArraySpec("update", (), "int64"))
Found = TypeVar("Found")


class Notices:
    """A board of one process."""

    def __init__(self) -> None:
        self._latest: tuple[int, dict[str, np.ndarray]] = (-1, {})

    def version(self) -> int:
        return self._latest[0]

    def read(self, into: Mapping[str, np.ndarray]) -> int:
        version, arrays = self._latest
        for name, values in into.items():
            values[...] = arrays[name]
        return version

    def publish(self, arrays: Mapping[str, np.ndarray], version: int) -> None:
        self._latest = version, {name: values.copy() for name, values in arrays.items()}

    def fresh(self, rollout: int) -> bool:
        del rollout
        return True


def member_over_gloo(
    board: Notices, count: int, specs: tuple[ArraySpec, ...], me: int, device: str = "cpu"
) -> ProcessGroupRounds:
    """One member of a process group, which finds the others through ``board``."""
    members = tuple(f"learner.{number}" for number in range(count))
    edge = ProcessGroup("gradients", members, specs, "127.0.0.1", "team", device)
    way = OtherSide(edge, board, me) if me else KeeperSide(edge, board, board)
    return ProcessGroupRounds(way, count, specs, me=me, alive=lambda: False)


class Group:
    """Makes the members of one process group."""

    def __init__(self, count: int, device: str = "cpu") -> None:
        self._count = count
        self._device = device
        self._board = Notices()

    def member(self, me: int) -> AllReduce:
        rounds = member_over_gloo(self._board, self._count, STATE, me, self._device)
        return AllReduce(rounds, me=me, alive=lambda: False)


def state(number: int) -> dict[str, np.ndarray]:
    return {"critic": np.full((40, 25), number, np.float32), "update": np.array(number)}


def gradient(number: int) -> dict[str, np.ndarray]:
    return {"critic": np.random.default_rng(number).normal(size=1000).astype(np.float32)}


def entered(team: AllReduce | Gossip, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Join, and let the others join. Returns the state with which this one begins."""
    while (found := team.enter(own)) is None:
        time.sleep(0.001)
    team.admit(own)
    return found


def together(*calls: Callable[[], Found]) -> list[Found]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(60) for one in [pool.submit(call) for call in calls]]


@pytest.fixture
def without_collections() -> Iterator[None]:
    """No garbage collector: what is freed has no cycle."""
    gc.disable()
    yield
    gc.enable()


def test_the_mean_has_the_bits_of_rounds_in_shared_memory(segment) -> None:
    weights = (3.0, 1.0, 2.5)
    shared = segment(Rounds.required(3, STATE))
    near = [AllReduce(Rounds(shared.bytes, 3, STATE, me), me=me, alive=lambda: False) for me in range(3)]
    group = Group(3)
    all_over = threading.Barrier(3)

    def life(team: AllReduce, me: int) -> list[bytes]:
        entered(team, state(0))
        means = [team("policy", gradient(7 * step + me), weights[me])["critic"].tobytes() for step in range(3)]
        all_over.wait(60)
        team.leave()
        return means

    expected = together(*(partial(life, near[me], me) for me in range(3)))
    found = together(*(partial(life, group.member(me), me) for me in range(3)))
    assert found == expected
    assert len(set(found[0])) == 3


def test_what_all_gather_may_be_larger_than_their_state() -> None:
    group = Group(2)
    brought = [np.random.default_rng(me).normal(size=5000) for me in range(2)]
    all_over = threading.Barrier(2)

    def life(me: int) -> list[bytes]:
        team = group.member(me)
        entered(team, state(0))
        found = [values.tobytes() for values in team.gather(brought[me])]
        team("policy", gradient(me), 1.0)
        all_over.wait(60)
        team.leave()
        return found

    expected = [values.tobytes() for values in brought]
    assert together(*(partial(life, me) for me in range(2))) == [expected, expected]


def test_all_begin_with_the_state_of_the_keeper() -> None:
    group = Group(2)
    keeper, other = together(*(partial(entered, group.member(me), state(4 + me)) for me in range(2)))
    assert other["critic"].tobytes() == keeper["critic"].tobytes() == state(4)["critic"].tobytes()
    assert int(other["update"]) == 4


@pytest.mark.parametrize("leaves", [0, 1, 2])
def test_when_one_leaves_the_others_hear_of_it_and_all_meet_anew(leaves: int) -> None:
    group = Group(3)
    teams = [group.member(me) for me in range(3)]
    all_over = threading.Barrier(3)

    def life(me: int) -> float:
        team = teams[me]
        entered(team, state(0))
        team("policy", gradient(me), 1.0)
        all_over.wait(60)
        if me != leaves:
            with pytest.raises(DissolvedError):
                team("policy", gradient(me), 1.0)
        team.leave()
        begun = entered(team, state(me))
        team("policy", gradient(me), 1.0)
        return float(begun["critic"][0, 0])

    assert together(*(partial(life, me) for me in range(3))) == [0.0, 0.0, 0.0]


def test_a_later_life_takes_the_place_of_a_member_that_is_silent() -> None:
    group = Group(2)
    keeper, silent, later = group.member(0), group.member(1), group.member(1)
    together(partial(entered, keeper, state(0)), partial(entered, silent, state(0)))

    def waiting() -> None:
        with pytest.raises(DissolvedError):
            keeper("policy", gradient(0), 1.0)
        keeper.leave()
        entered(keeper, state(3))

    _, begun = together(waiting, partial(entered, later, state(9)))
    assert float(begun["critic"][0, 0]) == 3.0
    assert silent.lost()


class Held:
    """An updater with a state and nothing else."""

    def __init__(self, number: int) -> None:
        self.values = state(number)

    def state(self) -> dict[str, np.ndarray]:
        return self.values

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        self.values |= values


def wait_for(end: ProcessGroupRounds) -> None:
    """Wait until the last round of this member is over."""
    while not end.over():
        end.sleep(end.word(), 0.01)


def test_of_four_learners_that_gossip_one_is_lost_and_all_meet_anew() -> None:
    """Learners 1 and 3 wait for the state of learner 2, which has left. Learner 0 is no neighbour of it."""
    board = Notices()
    ends = [member_over_gloo(board, 4, STATE, me) for me in range(4)]
    settled = threading.Barrier(4)

    def life(me: int) -> tuple[float, float]:
        end, held = ends[me], Held(me)
        team = Gossip(end, me=me, alive=lambda: False)
        entered(team, held.state())
        team.settle(held)
        settled.wait(60)
        if me in {1, 3}:
            end.send([held.values["critic"]], 1.0, [me, 2])
            with pytest.raises(DissolvedError):
                wait_for(end)
        while me != 2 and not team.lost():
            time.sleep(0.001)
        team.leave()
        begun = Held(me)
        begun.load(entered(team, state(8)))
        team.settle(begun)
        return float(held.values["critic"][0, 0]), float(begun.values["critic"][0, 0])

    found = together(*(partial(life, me) for me in range(4)))
    # The means of a ring of four, as of 3, 0 and 1 for learner 0.
    assert [before for before, _ in found] == pytest.approx([4 / 3, 1.0, 2.0, 5 / 3])
    assert [after for _, after in found] == [8.0] * 4


def test_a_swap_fails_once_a_member_is_gone_and_keeps_no_connection_open(without_collections) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stores = [store, TCPStore("127.0.0.1", store.port, is_master=False)]
    ends = together(*(partial(gloo.connect, stores[me], me, 2, "127.0.0.1") for me in range(2)))
    before = set(threading.enumerate())
    work = ends[0].swap(torch.zeros(8), {1: torch.empty(8)})
    # The other one goes without a word.
    ends.pop()
    with pytest.raises(RuntimeError, match="is lost"):
        work.wait(timedelta(seconds=20))
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    kept = weakref.ref(work)
    del work
    assert kept() is None


class Noted:
    """A group that notes to whom its member sends; also its way there, and work that is over at once."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ...]] = []

    def meet(self) -> "Noted":
        return self

    def broken(self) -> bool:
        return False

    def tell(self, values: object) -> "Noted":
        del values
        return self

    def gather(self, mine: torch.Tensor, into: list[torch.Tensor]) -> "Noted":
        for values in into:
            values.copy_(mine)
        self.sent.append(tuple(range(len(into))))
        return self

    def swap(self, mine: torch.Tensor, into: Mapping[int, torch.Tensor]) -> "Noted":
        for values in into.values():
            values.copy_(mine)
        self.sent.append(tuple(into))
        return self

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: timedelta) -> bool:
        del timeout
        return True


@pytest.mark.parametrize(("count", "to"), [(3, (0, 1, 2)), (4, (3, 1)), (12, (11, 1))])
def test_a_state_goes_to_the_two_neighbours_only(count: int, to: tuple[int, ...]) -> None:
    noted = Noted()
    rounds = ProcessGroupRounds(noted, count, STATE, me=0, alive=lambda: False)  # type: ignore[arg-type]
    team = Gossip(rounds, me=0, alive=lambda: False)
    entered(team, state(0))
    team.settle(Held(0))
    # First all meet at the end of the batch, and bring no array.
    meeting, states = noted.sent
    assert len(meeting) == count
    assert sorted(states) == sorted(to)


class Late:
    """A group whose work ends just after the first wait for it has timed out; also that work, and the way there."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._waits = 0

    def tell(self, values: object) -> "Late":
        del values
        return self

    def wait(self, timeout: timedelta) -> bool:
        del timeout
        self._waits += 1
        if self._fails or self._waits == 1:
            raise RuntimeError
        return True

    def is_completed(self) -> bool:
        return self._waits > 0

    def meet(self) -> "Late":
        return self

    def broken(self) -> bool:
        return False


def member(late: Late, me: int) -> ProcessGroupRounds:
    return ProcessGroupRounds(late, 2, STATE, me=me, alive=lambda: False)  # type: ignore[arg-type]


def test_a_round_that_ends_as_the_wait_for_it_times_out_is_no_loss() -> None:
    rounds = member(Late(fails=False), 1)
    assert rounds.join(anew=False) is Joined.ADMITTED
    assert rounds.members() == [0, 1]
    rounds = member(Late(fails=True), 1)
    assert rounds.join(anew=False) is Joined.WAITING
    assert rounds.members() == []


def test_no_round_has_begun_once_the_state_is_sent() -> None:
    rounds = member(Late(fails=False), 0)
    assert rounds.join(anew=True) is Joined.FOUNDED
    rounds.admit(state(1))
    assert not rounds.round_has_begun()


class Limits:
    """A group of gloo that notes how long its work may take."""

    def __init__(self) -> None:
        self.found: list[timedelta] = []

    def broadcast(self, tensors: object, opts: BroadcastOptions) -> None:
        del tensors
        self.found.append(opts.timeout)

    def allgather(self, output: object, tensors: object, opts: AllgatherOptions) -> None:
        del output, tensors
        self.found.append(opts.timeout)


def test_the_state_may_come_later_than_the_limit_for_connecting() -> None:
    limits = Limits()
    group = OverGloo(limits)
    group.tell(torch.zeros(1))
    group.gather(torch.zeros(1), [torch.zeros(1)])
    # By itself torch takes the group's limit, which is the one for connecting.
    assert limits.found == [transport.ROUND_LIMIT] * 2
