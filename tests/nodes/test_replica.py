"""The rounds of a learner that steps together with the keeper, while the keeper is replaced."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.memory.board import Board
from penstock.memory.segment import Segment
from penstock.memory.table import Table as TableMemory
from penstock.nodes.learner import steps
from penstock.nodes.learner.replica import ReplicaNode, ReplicaSettings, goal_specs, goal_values
from penstock.nodes.learner.sampling import Sampled
from penstock.nodes.learner.steps import Goal
from penstock.planning import plan
from penstock.program.graph import Program, Table
from penstock.topologies import async_off_policy
from tests.planned import prepared

TOGETHER = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "sync_mode": "non_blocking",
    "exchange": "allreduce",
    "learners": 2,
    "runtime": "local",
    "num_envs": 2,
    "num_workers": 2,
    "num_steps": 4,
    "mini_batch_size": 8,
    "hidden_sizes": (8, 8),
}
WRITERS = 2


class Keeper:
    """The other learner, which dies before step ``at``. Its next life asks for gradient steps up to ``wanted``."""

    def __init__(self, at: int, wanted: int, *, late: bool) -> None:
        specs = goal_specs(WRITERS, ())
        self.goals = Board(Segment.create(Board.required(specs), "test").bytes, specs)
        self.rounds: list[int | str] = []
        self._at, self._wanted, self._late = at, wanted, late

    def ask(self, last: int) -> None:
        goal = Goal(last, (0,) * WRITERS, 0.0)
        self.goals.publish(goal_values(goal, 0), self.goals.version() + 1)

    def there(self) -> bool:
        """False once: the other learner waits, and the next life asks meanwhile."""
        if not self._late and len(self.rounds) == self._at and self.goals.version() == 0:
            self.ask(self._wanted)
            return False
        return True

    def meet(self, what: int | str) -> None:
        """Both have come to this round. A next life that is late asks while the other one already waits here."""
        if self._late and what == self._at:
            self.ask(self._wanted)
        self.rounds.append(what)


class Learning:
    """The updater and the team of the replica, which notes each round."""

    keeper: Keeper

    def __init__(self, *_: object) -> None:
        self.gradient_steps = 0

    def join(self, state: dict[str, Any]) -> None:
        """Begin with its own state."""

    def load(self, state: dict[str, Any]) -> None:
        self.gradient_steps = int(state["gradient_steps"])

    def learn(self, *_: object) -> dict[str, Any]:
        self.keeper.meet(self.gradient_steps)
        self.gradient_steps += 1
        return {}

    def begin(self, _: object) -> bool:
        return self.keeper.there()

    def settle(self, _: object) -> None:
        self.keeper.meet("settle")

    state = buffers = metrics = sent = end = leave = weigh = gather = lost = meeting = lambda *_: 0


@cache
def built() -> Program:
    """The graph of two learners that step together."""
    return async_off_policy.build(plan(prepared(**TOGETHER), Path("run"), quiet=True))


def rounds(keeper: Keeper, asked: int) -> list[int | str]:
    """The rounds of a replica that was asked for steps up to ``asked`` before the keeper died."""
    Learning.keeper = keeper
    program = built()
    found = program.node("learner.1").settings.steps
    settings = replace(found, build=f"{__name__}:Learning", team=f"{__name__}:Learning", shards=1)
    edge = next(edge for edge in program.edges if isinstance(edge, Table))
    memory = Segment.create(TableMemory.required(edge.arrays, WRITERS, edge.slots), "test").bytes
    ports: Any = SimpleNamespace(
        board_reader=lambda _: keeper.goals,
        table=lambda _: TableMemory(memory, edge.arrays, WRITERS, edge.slots),
        priorities=lambda _: None,
        busy=lambda *_: nullcontext(),
        span=lambda _: nullcontext(),
        stopping=lambda: False,
        count=lambda _: None,
    )
    node = ReplicaNode(ReplicaSettings(settings, None))
    node.open(ports)
    keeper.ask(asked)
    while node.ready():
        node.step()
    return keeper.rounds


@pytest.fixture(autouse=True)
def samples_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "sampling", lambda *_, **__: SimpleNamespace(take=lambda *_: Sampled({}, {})))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("at", "wanted"), [(at, wanted) for at in range(5) for wanted in range(at + 1, 9)])
def test_it_takes_the_steps_that_the_keepers_next_life_wants(at: int, wanted: int, late: bool) -> None:
    """The next life finds other rollouts, so its turn may be longer or shorter."""
    assert rounds(Keeper(at, wanted, late=late), 5) == [*range(wanted), "settle"]


def test_a_turn_without_a_step_has_no_end_in_common() -> None:
    assert rounds(Keeper(3, 3, late=False), 5) == [0, 1, 2]
