"""ReplayLearnerNode: which gradient steps its next life takes, together with learners that have gone on meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from penstock.memory.segment import Segment
from penstock.nodes.learner import ReplayLearnerNode, steps
from penstock.planning import plan
from penstock.supervision.recovery import recover
from penstock.topologies import async_off_policy
from penstock.types import Array, Arrays
from penstock.updates.contract import Stateful
from penstock.updates.team import DissolvedError
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts
from tests.planned import prepared

MIN_ROWS, SLOT_ROWS = 16, 16
"""Each slot has 8 steps of 2 lanes. Every fourth row after the first 16 makes a gradient step due."""
SMALL = {
    "algo": "dqn",
    "backend": "fused",
    "sync_mode": "non_blocking",
    "exchange": "allreduce",
    "learners": 2,
    "num_workers": 2,
    "num_envs": 4,
    "num_steps": 8,
    "min_rows": MIN_ROWS,
    "updates_per_step": 0.25,
    "mini_batch_size": 8,
    "hidden_sizes": (4,),
}


class Team:
    """The other learner. It takes each step as well, and shows where turns ended."""

    others: ClassVar[Arrays | None] = None
    """Its state, if it has gone on after the keeper died."""
    ends: ClassVar[list[int]] = []
    """Gradient steps at the end of each turn."""
    losses: ClassVar[list[Callable[[], None]]] = []
    """What happens before the next gradients come together: a machine is lost, and its learner with it."""

    def __init__(self, *_: object) -> None:
        self._steps = 0

    def join(self, state: Arrays) -> Arrays:
        return state if self.others is None else self.others

    def begin(self, updater: Stateful) -> bool:
        return True

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        if self.losses:
            self.losses.pop()()
            raise DissolvedError("a learner is lost")
        return gradients

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        return arrays

    def settle(self, updater: Stateful) -> None:
        self.ends.append(int(updater.state()["gradient_steps"]))

    def weigh(self, factor: float) -> None: ...

    def gather(self, values: Array) -> list[Array]:
        return [values]

    def lost(self) -> bool:
        return False

    def meeting(self) -> int:
        return 0

    def sent(self) -> int:
        return 0

    def end(self) -> None: ...

    def leave(self) -> None: ...


class Run:
    """A run whose table is filled by hand."""

    def __init__(self, timesteps: int, **settings: object) -> None:
        settings = {**SMALL, **settings, "timesteps": timesteps}
        program = async_off_policy.build(plan(prepared(**settings), Path("run"), quiet=True))
        node = program.node("learner")
        self._settings = replace(node.settings, steps=replace(node.settings.steps, team=f"{__name__}:Team"))
        self._program, self._group = program, node.group
        self._wiring = Wiring(program.edges, [(each.name, each.group) for each in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "test")
        self._wiring.attach(self._segment.bytes)
        self._lives = 0
        Team.others, Team.ends, Team.losses = None, [], []

    def close(self) -> None:
        self._segment.close()

    def spread(self) -> None:
        """From here on, lives of the learner are told that the other one is on another machine."""
        self._settings = replace(self._settings, steps=replace(self._settings.steps, spread=True))

    def forget(self, worker: int) -> None:
        """The machine that has all rows of an environment node is lost."""
        table = self._wiring.table_memory("rollouts")
        table.forget(worker, table.written(worker))

    def ranks(self, worker: int) -> Array:
        """The priorities of the rows of an environment node, whose shard it has for itself."""
        trees, table = self._wiring.trees("rollouts"), self._wiring.table_memory("rollouts")
        assert trees is not None
        return trees.shard(worker).read(np.arange(table.arrays["valid"][0].size))

    def rank(self, worker: int, priority: float) -> None:
        """Give the rows of the first slot of an environment node this priority, if they can be sampled."""
        trees, ranks = self._wiring.trees("rollouts"), self.ranks(worker)
        assert trees is not None
        rows = np.flatnonzero(ranks)
        trees.shard(worker).update(rows, np.zeros(len(rows), np.int64), np.full(len(rows), priority))

    def collect(self, worker: int) -> None:
        """Push a slot of one environment node."""
        table = NodePorts(self._wiring, f"env.{worker}", f"env.{worker}", 100 + worker).stream_writer("rollouts")
        index = table.claim(0)
        assert index is not None
        slot = table.slot(index)
        slot["valid"][...] = True
        slot["first_lane"][...] = 2 * worker
        table.push(index)

    def begin(self) -> None:
        """The next life of the learner."""
        former = tuple(range(1, self._lives + 1))
        self._lives += 1
        self.node = ReplayLearnerNode(self._settings)
        self.node.open(NodePorts(self._wiring, "learner", self._group, self._lives, former))

    def die(self) -> None:
        assert recover(self._wiring, self._program, self._group, {"learner": self._lives})

    def work(self) -> None:
        """Go on until there is nothing to do."""
        while self.node.ready():
            self.node.step()

    def steps(self) -> int:
        """Gradient steps that are committed."""
        committed = self._wiring.record("learner").current()
        assert committed is not None
        return int(committed.arrays["gradient_steps"])


@pytest.fixture
def run(request) -> Iterator[Run]:
    made = Run(getattr(request, "param", 10_000))
    yield made
    made.close()


def replaced_in_the_middle_of_a_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others know the goal of the dead life: step 8. More rollouts have come since, which make 12 steps due."""
    monkeypatch.setattr(steps, "STEP_LIMIT_S", -1.0)
    run.begin()
    for worker in (0, 1):
        run.collect(worker)
    run.work()
    assert (Team.ends, run.steps()) == ([4], 4)
    run.collect(0)
    while run.node._steps.done < 6:
        run.node.step()
    Team.others = {name: np.array(values) for name, values in run.node._steps.updater.state().items()}
    run.die()
    run.collect(1)
    run.begin()
    run.work()


def test_a_new_life_ends_its_turn_where_the_others_do(run, monkeypatch) -> None:
    """The 4 steps that are left follow in the next turn."""
    replaced_in_the_middle_of_a_turn(run, monkeypatch)
    assert Team.ends == [4, 8, 12]
    run.collect(1)
    run.work()
    assert Team.ends == [4, 8, 12, 16]
    assert run.steps() == (5 * SLOT_ROWS - MIN_ROWS) // 4


@pytest.mark.parametrize("run", [4 * SLOT_ROWS], indirect=True)
def test_steps_that_the_last_turn_has_left_are_taken(run, monkeypatch) -> None:
    replaced_in_the_middle_of_a_turn(run, monkeypatch)
    assert run.steps() == (4 * SLOT_ROWS - MIN_ROWS) // 4


def test_steps_that_wait_until_each_shard_has_enough_rows_survive_a_death(run) -> None:
    """Two slots of the first shard make 4 steps due. The second shard has no row to take them on."""
    run.begin()
    run.collect(0)
    run.collect(0)
    run.work()
    assert run.steps() == 0
    run.die()
    run.begin()
    run.collect(1)
    run.work()
    assert run.steps() == (3 * SLOT_ROWS - MIN_ROWS) // 4


def test_steps_wait_for_more_rows_if_a_machine_is_lost_with_those_of_its_shard(run) -> None:
    run.spread()
    run.begin()
    for worker in (0, 1):
        run.collect(worker)
    Team.losses.append(lambda: run.forget(1))
    run.work()
    # The turn is committed without its four steps: the second shard has nothing to sample from.
    assert (Team.losses, Team.ends, run.steps()) == ([], [], 0)
    run.collect(1)
    run.work()
    assert run.steps() == (3 * SLOT_ROWS - MIN_ROWS) // 4


def test_a_machine_that_is_lost_without_rows_costs_no_step(run) -> None:
    run.spread()
    run.begin()
    for worker in (0, 1):
        run.collect(worker)
    Team.losses.append(lambda: None)
    run.work()
    assert (Team.losses, Team.ends, run.steps()) == ([], [4], 4)


def test_a_new_life_does_not_go_to_a_goal_that_learners_on_other_machines_have_given_up(run, monkeypatch) -> None:
    """The machine of the other one was lost as well, with the rows of the second shard."""
    monkeypatch.setattr(steps, "STEP_LIMIT_S", -1.0)
    run.spread()
    run.begin()
    for worker in (0, 1):
        run.collect(worker)
    run.work()
    run.collect(0)
    while run.node._steps.done < 6:
        run.node.step()
    run.die()
    run.forget(1)
    run.begin()
    run.work()
    assert (Team.ends, run.steps()) == ([4], 4)
    run.collect(1)
    run.work()
    assert run.steps() == (4 * SLOT_ROWS - MIN_ROWS) // 4


def test_rows_of_a_machine_that_is_lost_get_no_priority_back(monkeypatch) -> None:
    """They would be sampled for ever, and nobody has them."""
    monkeypatch.setattr(steps, "STEP_LIMIT_S", -1.0)
    with closing(Run(10_000, algo="apex")) as run:
        run.spread()
        run.begin()
        for worker in (0, 1):
            run.collect(worker)
        run.rank(0, 1.0)
        before = run.ranks(0)
        while run.node._steps.done < 1:
            run.node.step()
        assert (run.ranks(0) != before).any()
        run.node._steps.take_back()
        assert np.array_equal(run.ranks(0), before)
        while run.node._steps.done < 2:
            run.node.step()
        run.forget(0)
        run.rank(0, 0.0)
        run.node._steps.take_back()
        assert not run.ranks(0).any()
