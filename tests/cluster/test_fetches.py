"""Observations go from the host that made them to that of their learner, and home knows where they are."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from penstock.cluster import fetches, host_calls, observation_fields
from penstock.cluster.cut import host_program, own_stream, with_relay
from penstock.cluster.fetched import RolloutName, WantedRollout
from penstock.cluster.fetches import Fetches
from penstock.cluster.host import OWNER, Host
from penstock.cluster.messages import FilledSlot, Task
from penstock.cluster.observation_fields import observation_bytes, readers_apart
from penstock.cluster.observation_fields import observation_fields as fields_of
from penstock.cluster.parcels import unpack
from penstock.program.graph import Program
from penstock.types import Array
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import sharded_program, spread_program

ENVS = ("env.2", "env.3")
"""Those of the second learner's shard."""


class Machine:
    def __init__(self, name: str) -> None:
        self.actor = f"the host on {name}"


A, B, C = map(Machine, "abc")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Of a run with two learners, each with the rollouts of two environment nodes."""
    monkeypatch.setattr(observation_fields, "LEAST_BYTES", 0)
    return with_relay(sharded_program(num_workers=4, table_on="learners"))


def filled(group: str, sequence: int, life: int = 3, slot: int = 0, apart: bool = True) -> FilledSlot:
    return FilledSlot(group, life, slot, sequence, np.zeros(1, np.uint8), {}, {}, apart)


def wanted(one: FilledSlot) -> WantedRollout:
    return WantedRollout(one.group, one.slot, int(one.group[-1]), RolloutName(one.life, one.sequence))


def calls(of: Fetches, waiting: Sequence[tuple[Any, FilledSlot]], **placed: Any) -> list[tuple[Any, ...]]:
    at = {name.replace("_", "."): where for name, where in placed.items()}
    return [(call.number, call.machine, call.method, *call.arguments) for call in of.due(waiting, at)]


def test_observations_go_straight_only_where_home_needs_none(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fields_of(program) == ("obs", "final.obs")
    # Eight steps and the bootstrap row, one lane, three numbers.
    assert observation_bytes(program) == 9 * 1 * 3 * 4
    assert readers_apart(program) == dict.fromkeys(ENVS, "learner.1")
    normalized = with_relay(sharded_program(num_workers=4, table_on="learners", normalize_obs=True))
    assert readers_apart(normalized) == {}
    assert readers_apart(with_relay(sharded_program(num_workers=4))) == {}
    assert (readers_apart(with_relay(spread_program())), fields_of(with_relay(spread_program()))) == ({}, ())
    monkeypatch.setattr(observation_fields, "LEAST_BYTES", 9 * 3 * 4 + 1)
    assert readers_apart(program) == {}
    # On a host these are the same fields.
    assert fields_of(host_program(sharded_program(num_workers=4, table_on="learners"))) == ("obs", "final.obs")


def test_the_host_of_the_learner_fetches_and_only_then_the_rollout_is_complete(program: Program) -> None:
    of = Fetches(program)
    assert [of.apart(group) for group in ("env.0", *ENVS, "learner.1")] == [False, True, True, False]
    one, other, whole = filled("env.2", 5), filled("env.3", 6, slot=1), filled("env.0", 4, apart=False)
    waiting = [(A, one), (A, other), (A, whole)]
    assert of.complete(whole) is whole
    assert calls(of, waiting, learner_1=B) == [(0, B, "fetch", A.actor, [wanted(one), wanted(other)])]
    assert of.complete(one) is None
    # One call at a time for each pair of machines.
    assert calls(of, [*waiting, (A, filled("env.2", 7))], learner_1=B) == []
    of.answered(0, [True, False])
    assert (of.complete(one), of.host_of(one)) == (one, B)
    assert (of.complete(other), of.host_of(whole)) == (None, None)


def test_on_the_machine_of_its_learner_a_rollout_is_fetched_from_the_same_host(program: Program) -> None:
    one = filled("env.2", 5)
    assert calls(Fetches(program), [(B, one)], learner_1=B) == [(0, B, "fetch", None, [wanted(one)])]


def test_no_call_is_for_more_than_travels_at_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "PART_BYTES", 2 * observation_bytes(program) + 1)
    of = Fetches(program)
    many = [filled("env.2", sequence) for sequence in range(3)]
    waiting = [(A, one) for one in many]
    assert calls(of, waiting, learner_1=B) == [(0, B, "fetch", A.actor, [wanted(one) for one in many[:2]])]
    of.answered(0, [True, True])
    assert calls(of, waiting, learner_1=B) == [(1, B, "fetch", A.actor, [wanted(many[2])])]


@pytest.mark.parametrize("severed", [False, True], ids=["no learner", "hosts that do not reach each other"])
def test_home_fetches_what_no_host_can_and_delivers_it_whole(program: Program, severed: bool) -> None:
    of, one, placed = Fetches(program), filled("env.2", 5), {}
    if severed:
        placed = {"learner_1": B}
        assert calls(of, [(A, one)], **placed) == [(0, B, "fetch", A.actor, [wanted(one)])]
        of.answered(0, None)
        # Other hosts reach it.
        assert [call[2] for call in calls(of, [(C, filled("env.3", 6))], **placed)] == ["fetch"]
    ((number, *call),) = calls(of, [(A, one)], **placed)
    assert call == [A, "observations", [wanted(one)]]
    found = np.arange(3, dtype=np.uint8)
    of.answered(number, [found])
    complete = of.complete(one)
    assert complete is not None
    assert complete.observations is found
    assert of.host_of(one) is None
    # What was delivered is forgotten.
    assert calls(of, [], **placed) == []
    assert of.complete(one) is None


def test_what_a_lost_host_had_fetched_is_fetched_anew_to_where_the_learner_runs_next(program: Program) -> None:
    of, one, late = Fetches(program), filled("env.2", 5), filled("env.3", 6)
    calls(of, [(A, one)], learner_1=B)
    of.answered(0, [True])
    calls(of, [(A, one), (A, late)], learner_1=B)
    of.lose(B)
    assert of.complete(one) is None
    both = [wanted(one), wanted(late)]
    assert calls(of, [(A, one), (A, late)], learner_1=C) == [(2, C, "fetch", A.actor, both)]
    # The answer of a call for which it no longer matters.
    of.answered(1, [True])
    of.lose(A)
    of.answered(2, None)
    assert of.complete(late) is None


def test_a_way_to_a_lost_host_is_forgotten(program: Program) -> None:
    of = Fetches(program)
    for source in (A, C):
        ((number, *_),) = calls(of, [(source, filled("env.2", 5))], learner_1=B)
        of.answered(number, None)
    of.lose(A)
    assert of._severed == {(C, B)}
    of.lose(B)
    assert of._severed == set()


def test_home_fetches_once_what_found_no_room_on_its_way_to_another_host(program: Program) -> None:
    of, one, late = Fetches(program), filled("env.2", 5), filled("env.3", 6)
    ((number, *call),) = calls(of, [(A, one)], learner_1=B)
    assert call == [B, "fetch", A.actor, [wanted(one)]]
    of.answered(number, [])
    assert of.complete(one) is None
    ((number, *call),) = calls(of, [(A, one)], learner_1=B)
    assert call == [A, "observations", [wanted(one)]]
    of.answered(number, [np.arange(3, dtype=np.uint8)])
    assert of.complete(one) is not None
    # There is room now.
    ((number, *call),) = calls(of, [(A, one), (A, late)], learner_1=B)
    assert call == [B, "fetch", A.actor, [wanted(late)]]
    of.answered(number, [])
    of.lose(A)
    assert of._full == set()


class Hosts:
    """Two hosts without processes: one has an environment node, and the other one the learner."""

    def __init__(self) -> None:
        self.program = host_program(sharded_program(num_workers=4, table_on="learners"))
        self.source, self.target = Host(self.program, []), Host(self.program, [])
        self.actor: Any = SimpleNamespace(observations=SimpleNamespace(remote=self.source.observations))
        node = self.program.node("env.2")
        self.source._tasks["env.2"] = Task(node, 3, (), 1, (), apart=True)
        self.writer = NodePorts(self.source._wiring, "env.2", "env.2", 3, edges=node.edges).stream_writer("rollouts")

    def push(self, sequence: int) -> Array:
        """Fill a slot. Returns its observations."""
        index = self.writer.claim(sequence)
        assert index is not None
        slot = self.writer.slot(index)
        slot["obs"][...] = np.arange(slot["obs"].size).reshape(slot["obs"].shape) + 100 * sequence
        slot["reward"][...] = sequence
        self.writer.push(index)
        return slot["obs"].copy()

    def fetch(self, rollouts: Sequence[WantedRollout]) -> Any:
        return asyncio.run(self.target.fetch(self.actor, rollouts))


def test_a_host_sends_home_all_but_the_observations_and_gives_these_to_the_other_host(program: Program) -> None:
    hosts = Hosts()
    expected = hosts.push(5)
    (one,) = hosts.source._filled_slots()
    assert (one.apart, one.sequence, one.observations) == (True, 5, None)
    stream = hosts.source._wiring.stream(own_stream("rollouts", "env.2"))
    slot = stream.slot(one.slot)
    assert len(one.parcel) == sum(array.nbytes for name, array in slot.items() if name in _whole(slot))
    assert hosts.fetch([wanted(one)]) == [True]
    fetched = hosts.target._shards.fetched
    into = {name: np.zeros_like(array) for name, array in slot.items()}
    fetched.fill(2, RolloutName(3, 5), one.parcel, into)
    assert np.array_equal(into["obs"], expected)
    assert (into["reward"] == 5).all()
    # Its learner may run on the same machine.
    assert asyncio.run(hosts.source.fetch(None, [wanted(one)])) == [True]
    # An environment node without such a learner sends all.
    stream.release(one.slot, OWNER)
    hosts.source._tasks["env.2"] = hosts.source._tasks["env.2"]._replace(apart=False)
    assert hosts.push(7) is not None
    (two,) = hosts.source._filled_slots()
    unpack(two.parcel, into)
    assert into["obs"][0, 0, 0] == 700


def _whole(slot: dict[str, Array]) -> set[str]:
    """The fields of a slot without observations and without an episode's end that travel."""
    filled = {name for name in slot if name != "obs" and not name.startswith(("final", "episode_"))}
    return filled | {"final_count", "episode_count"}


def test_what_is_in_the_slot_of_another_life_or_rollout_is_not_fetched(program: Program) -> None:
    hosts = Hosts()
    hosts.push(5)
    (one,) = hosts.source._filled_slots()
    mine = wanted(one)
    names = [mine._replace(name=RolloutName(2, 5)), mine._replace(name=RolloutName(3, 3))]
    others = [*names, mine._replace(group="env.3")]
    assert hosts.fetch([*others, mine]) == [False, False, False, True]


@pytest.mark.parametrize("how", ["lost", "silent"])
def test_a_host_that_does_not_answer_is_told_to_home_and_holds_nobody_up(
    program: Program, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(host_calls, "ANSWER_S", 0.01)

    async def answer(_: object) -> None:
        if how == "lost":
            raise ray.exceptions.ActorDiedError
        await asyncio.sleep(60)

    hosts = Hosts()
    hosts.actor = SimpleNamespace(observations=SimpleNamespace(remote=answer))
    assert hosts.fetch([WantedRollout("env.2", 0, 2, RolloutName(3, 5))]) is None


def test_a_host_that_has_no_room_for_its_answer_is_not_out_of_reach(program: Program) -> None:
    full = ray.exceptions.ObjectStoreFullError("no room for 10 MB")

    async def answer(_: object) -> None:
        raise ray.exceptions.RayTaskError("observations", "its traceback", full).as_instanceof_cause()

    hosts = Hosts()
    hosts.actor = SimpleNamespace(observations=SimpleNamespace(remote=answer))
    assert hosts.fetch([WantedRollout("env.2", 0, 2, RolloutName(3, 5))]) == []
