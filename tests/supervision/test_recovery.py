"""What is taken back from the dead, and what is counted of it."""

from penstock.memory.segment import Segment
from penstock.program.graph import NodeSpec, Program, Record, Stream
from penstock.supervision.recovery import recover
from penstock.types import ArraySpec
from penstock.wiring.edges import Wiring

ENV, LEARNER = 1, 2
ROWS = 6
LANES = tuple(ArraySpec(name, (2,), "int64") for name in ("lane_collected", "lane_spoilt"))
ROLLOUT = (ArraySpec("valid", (ROWS // 2 + 1, 2), "bool"), ArraySpec("first_lane", (), "int64"), *LANES)
CONSUMED = tuple(ArraySpec(name, (1,), "int64") for name in ("consumed_slot", "consumed_sequence"))


class Run:
    """An environment node that has pushed a rollout, and a learner."""

    def __init__(self) -> None:
        self.program = Program(
            (NodeSpec("env.0", "env", None, "env.0"), NodeSpec("learner", "learner", None, "learner")),
            (
                Stream("rollouts", ("env.0",), ("learner",), ROLLOUT, 2, "wait"),
                Record("record", "learner", (*LANES, *CONSUMED)),
            ),
            ("learner",),
        )
        self.wiring = Wiring(self.program.edges, [(node.name, node.group) for node in self.program.nodes])
        self.wiring.attach(Segment.create(self.wiring.nbytes, "test").bytes)
        self.rollouts = self.wiring.stream("rollouts")
        index = self.rollouts.claim(ENV, 0)
        assert index is not None
        self.rollouts.slot(index)["valid"][...] = True
        self.rollouts.push(index, ENV)

    def redone(self, node: str, life: int) -> int:
        """Rows that are learned again because this node has died."""
        assert recover(self.wiring, self.program, node, {node: life})
        return self.wiring.counters.get(node, "redone")


def test_rows_that_a_learner_was_at_are_redone() -> None:
    run = Run()
    assert run.rollouts.take(LEARNER) is not None
    assert run.redone("learner", LEARNER) == ROWS


def test_rows_that_wait_for_a_learner_are_not_redone_because_their_environment_node_dies() -> None:
    run = Run()
    assert run.redone("env.0", ENV) == 0
    assert run.rollouts.ready() == 1
