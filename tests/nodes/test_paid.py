"""Rows count as paid once it is committed that they are: a life that takes over needs the rollouts that are not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.memory.segment import Segment
from penstock.nodes.learner.parameter import ParameterNode
from penstock.nodes.learner.replay import ReplayLearnerNode
from penstock.nodes.learner.work import WorkingNode
from penstock.planning import plan
from penstock.program.graph import Program
from penstock.topologies import async_off_policy
from penstock.types import Array
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts
from tests.planned import prepared

ROWS = 8
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "sync_mode": "non_blocking",
    "num_envs": 2,
    "num_workers": 1,
    "num_steps": ROWS // 2,
    "mini_batch_size": 4,
    "updates_per_step": 0.25,
    "hidden_sizes": (8, 8),
    "backend": "fused",
}


class Applier:
    """Holds a state, and changes nothing."""

    def __init__(self, *_: object) -> None:
        self._state: dict[str, Array] = {}

    def load(self, state: Mapping[str, Array]) -> None:
        self._state = {name: values.copy() for name, values in state.items()}

    def state(self) -> dict[str, Array]:
        return self._state

    def apply(self, *_: object) -> None:
        """Nothing."""


class Ports(NodePorts):
    """Compares what is noted as paid with what is committed."""

    noted = 0

    def note(self, counter: str, value: int) -> None:
        if counter == "paid":
            committed = self.record("learner").current()
            assert committed is not None
            owed = int(committed.arrays.get("owed", 0))
            assert value <= int(committed.arrays["steps"]) - 4 * owed
            self.noted = value
        super().note(counter, value)


class Run:
    """A learner, and an environment node that pushes rollouts."""

    def __init__(self, **settings: Any) -> None:
        self.program: Program = async_off_policy.build(plan(prepared(**SMALL, **settings), Path("run"), quiet=True))
        self.wiring = Wiring(self.program.edges, [(node.name, node.group) for node in self.program.nodes])
        self.wiring.attach(Segment.create(self.wiring.nbytes, "test").bytes)
        self.ports = Ports(self.wiring, "learner", "learner", 1)
        self.rollouts = NodePorts(self.wiring, "env.0", "env.0", 2).stream_writer("rollouts")
        self.settings = self.program.node("learner").settings

    def push(self) -> None:
        index = self.rollouts.claim(0)
        assert index is not None
        self.rollouts.slot(index)["valid"][...] = True
        self.rollouts.push(index)

    def run(self, node: WorkingNode) -> None:
        while node.ready():
            node.step()


def test_a_turn_is_paid_once_it_is_committed() -> None:
    run = Run(min_rows=1000)
    node = ReplayLearnerNode(run.settings)
    node.open(run.ports)
    run.push()
    run.run(node)
    assert run.ports.noted == ROWS


def test_gradient_steps_are_paid_once_they_are_committed() -> None:
    run = Run(min_rows=ROWS, learners=2, max_policy_lag=5)
    node = ParameterNode(replace(run.settings, build=f"{__name__}:Applier"))
    node.open(run.ports)
    for _ in range(2):
        run.push()
    run.run(node)
    # The second rollout makes two gradient steps due.
    assert run.ports.noted == ROWS
    gradients = NodePorts(run.wiring, "learner.1", "learner.1", 3).stream_writer("gradients")
    for step in (1, 2):
        index = gradients.claim(step)
        assert index is not None
        gradients.slot(index)["step"][...] = step
        gradients.push(index)
    run.run(node)
    assert run.ports.noted == 2 * ROWS
