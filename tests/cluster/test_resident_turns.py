"""Turns of a run whose second shard stays on a host: home learns as if it still had the rows that it let go of."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.cluster import observation_fields, publications
from penstock.cluster.cut import host_program, own_stream, with_relay
from penstock.cluster.fetched import RolloutName
from penstock.cluster.fetches import Fetches
from penstock.cluster.host import OWNER, Host
from penstock.cluster.messages import Task
from penstock.cluster.stand_in import stand_in
from penstock.memory import table_pages
from penstock.nodes.learner import ReplayLearnerNode
from penstock.replay.contents import contents
from penstock.types import Array, Arrays
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import sharded_program, wired
from tests.nodes import test_replay_learner as doubles

TURNS = 40
"""Rings have 17 slots, so they go round twice."""
MACHINE: Any = object()


class Run:
    """The keeper of a run at home, and a host with the shard of the other learner. Rollouts are made by hand."""

    def __init__(self, give_back: Callable[[Array], object]) -> None:
        settings = {"algo": "apex", "env": "CartPole-v1", "hidden_sizes": (4,), "backend": "fused"}
        whole = sharded_program(**settings, save_interval=10 * TURNS, timesteps=10**6, table_on="learners")
        self.program = program = with_relay(whole)
        self.wiring = wired(program)
        self.host = Host(host_program(whole), [])
        self.publications = publications.Publications(program, self.wiring, give_back)
        self.envs = [
            NodePorts(self.wiring, name, name, 100 + number).stream_writer("rollouts")
            for number, name in enumerate(("env.0", "env.1"))
        ]
        learner = program.node("learner")
        steps = replace(learner.settings.steps, team=f"{doubles.__name__}:Team")
        doubles.Team.others, doubles.Team.ends, doubles.Team.losses = None, [], []
        self.node = ReplayLearnerNode(replace(learner.settings, steps=steps))
        self.node.open(NodePorts(self.wiring, "learner", learner.group, 1))
        self.random = np.random.default_rng(5)
        self.turns = 0

    def turn(self) -> None:
        self.turns += 1
        for worker in range(len(self.envs)):
            self.collect(worker)
        while self.node.ready():
            self.node.step()
        # The relay hands the goal on, and lets go of what was committed before.
        for _, board, publication, rollouts in self.publications.due({"learner.1": MACHINE}):
            self.publications.arrived(MACHINE, board, asyncio.run(self.host.publish(board, publication, rollouts)))
        self.publications.let_go()

    def collect(self, worker: int) -> None:
        env = self.envs[worker]
        index = env.claim(0)
        assert index is not None
        self.fill(env.slot(index), worker)
        env.push(index)

    def fill(self, slot: Arrays, worker: int) -> None:
        for array in slot.values():
            array[...] = self.random.normal(size=array.shape) if array.dtype.kind == "f" else 0
        slot["valid"][...] = slot["continues"][...] = True
        slot["first_lane"][...] = 2 * worker
        # Each lane is in its first episode: so many actions since its reset.
        slot["lane_position"][:, 2] = self.turns * (len(slot["valid"]) - 1)

    def state(self) -> Arrays:
        committed = self.wiring.record("learner").current()
        assert committed is not None
        return committed.arrays

    def shard(self) -> Arrays:
        """The rows of the second shard on the host."""
        table, trees = self.host._wiring.table_memory("rollouts"), self.host._wiring.trees("rollouts")
        return contents(table.shard(1, 2), [TURNS], trees.shard(1))


class FarRun(Run):
    """The environment node of the second shard is on a third machine. Its observations go straight to the host."""

    def __init__(self, give_back: Callable[[Array], object]) -> None:
        super().__init__(give_back)
        node = self.program.node("env.1")
        self.stand_in = stand_in(self.program, self.wiring, node, 101, ())
        self.fetches = Fetches(self.program)
        self.source = Host(self.host._program, [])
        self.far: Any = FarMachine(self.source)
        self.source._tasks["env.1"] = Task(node, 101, (), 1, (), apart=self.fetches.apart("env.1"))
        edges = self.source._program.node("env.1").edges
        self.writer = NodePorts(self.source._wiring, "env.1", "env.1", 101, edges=edges).stream_writer("rollouts")

    def collect(self, worker: int) -> None:
        if worker == 0:
            super().collect(worker)
            return
        index = self.writer.claim(self.turns)
        assert index is not None
        self.fill(self.writer.slot(index), worker)
        self.writer.push(index)
        (filled,) = self.source._filled_slots()
        (call,) = self.fetches.due([(self.far, filled)], {"learner.1": MACHINE})
        assert (call.machine, call.method) == (MACHINE, "fetch")
        self.fetches.answered(call.number, asyncio.run(self.host.fetch(*call.arguments)))
        complete = self.fetches.complete(filled)
        assert complete is not None
        assert self.stand_in.deliver(complete)
        self.publications.fetched(MACHINE, "env.1", RolloutName(filled.life, filled.sequence))
        self.source._wiring.stream(own_stream("rollouts", "env.1")).release(filled.slot, OWNER)


class FarMachine:
    """A machine whose host is in this process."""

    def __init__(self, host: Host) -> None:
        self.actor = SimpleNamespace(observations=SimpleNamespace(remote=host.observations))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    monkeypatch.setattr(publications, "put_again", lambda held: held)
    monkeypatch.setattr(table_pages, "PART_BYTES", 1)


def test_nothing_is_learned_from_rows_that_home_has_let_go_of() -> None:
    given = []

    def spoil(part: Array) -> None:
        # Not zeros: whatever read them would learn something else in any case.
        given.append(part.nbytes)
        part.view(np.uint8)[...] = 0xFF

    spoilt, kept = Run(spoil), Run(lambda part: None)
    for _ in range(TURNS):
        spoilt.turn()
        kept.turn()
    assert given
    found, expected = spoilt.state(), kept.state()
    assert int(found["gradient_steps"]) > 100
    assert found["taken"].tolist() == [TURNS, TURNS]
    different = {name for name, values in expected.items() if found[name].tobytes() != values.tobytes()}
    assert different <= {"elapsed_s"}
    # The host has the same rows, with the same priorities, as one whose home has let go of nothing.
    here, there = spoilt.shard(), kept.shard()
    assert len(here["valid"]) == 16
    assert all(np.array_equal(here[name], there[name]) for name in there)
    assert np.isfinite(here["obs"]).all()


def test_home_learns_the_same_without_ever_having_the_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_fields, "LEAST_BYTES", 0)
    apart, whole = FarRun(lambda part: None), Run(lambda part: None)
    for _ in range(TURNS):
        apart.turn()
        whole.turn()
    found, expected = apart.state(), whole.state()
    assert int(found["gradient_steps"]) > 100
    different = {name for name, values in expected.items() if found[name].tobytes() != values.tobytes()}
    assert different <= {"elapsed_s"}
    here, there = apart.shard(), whole.shard()
    assert len(here["valid"]) == 16
    assert all(np.array_equal(here[name], there[name]) for name in there)
    assert here["obs"].any()
    # Memory that was never written is zeros.
    shards = [apart.wiring.table_memory("rollouts").shard(number, 2) for number in (0, 1)]
    assert [bool(shard.arrays["obs"].any()) for shard in shards] == [True, False]
    assert shards[1].arrays["reward"].any()
