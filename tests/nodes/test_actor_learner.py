"""ActorLearnerNode: which rollout it takes next, while other nodes free slots and fill them anew."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from penstock.algorithm import UpdaterSettings
from penstock.algorithms.a3c.spec import A3CConfig, spec
from penstock.nodes.learner import ActorLearnerNode, ActorLearnerSettings
from penstock.types import Arrays, Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0))),), Discrete(2))
LEARNERS = 2
"""Environment node k has lane k."""


class Rollouts:
    """Stream ``rollouts``: in its slot, a rollout of this node was freed, and the other node fills the slot anew."""

    def __init__(self, *, lane: int, rollout: int, sequence: int) -> None:
        self.arrays: Arrays = {}
        self._content = {"first_lane": np.array(lane), "rollout": np.array(rollout)}
        self._sequence = sequence

    def written(self) -> dict[int, int]:
        return {self._sequence: 0}

    def slot(self, index: int) -> Arrays:
        return self._content


class Gradients:
    """Stream ``gradients``: it only keeps what is claimed."""

    def __init__(self) -> None:
        self.claimed: list[int] = []

    def written(self) -> dict[int, int]:
        return {}

    def free(self) -> int:
        return 1

    def claim(self, sequence: int) -> None:
        self.claimed.append(sequence)


class Ports:
    """What the node of environment node 1 is given."""

    def __init__(self, rollouts: Rollouts) -> None:
        self._rollouts, self.gradients = rollouts, Gradients()

    def stream_reader(self, edge: str) -> Rollouts:
        return self._rollouts

    def stream_writer(self, edge: str) -> Gradients:
        return self.gradients

    def board_reader(self, edge: str) -> None:
        return None

    def stopping(self) -> bool:
        return False

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def busy(self, what: str, limit_s: float) -> Iterator[None]:
        yield


def build(*_: object) -> None:
    """In place of an updater: no gradient is found here."""


@pytest.mark.parametrize(
    ("lane", "rollout", "sequence", "claimed"),
    [
        # Its own rollout 7, complete.
        (1, 7, 7 * LEARNERS + 1, [7 * LEARNERS + 1]),
        # The slot is that of rollout 9 of the other node, which has written the rollout's number, but not its lane yet.
        (1, 9, 9 * LEARNERS, []),
    ],
)
def test_the_sequence_of_a_slot_says_whose_rollout_it_holds(lane, rollout, sequence, claimed) -> None:
    config = A3CConfig()
    updater = UpdaterSettings("", config, spec(SPACES, config), SPACES, "cpu", 1, 0, learner=1)
    settings = ActorLearnerSettings(f"{__name__}:build", updater, 1, LEARNERS, 100, 1.0)
    ports = Ports(Rollouts(lane=lane, rollout=rollout, sequence=sequence))
    node = ActorLearnerNode(settings)
    node.open(ports)
    node.step()
    assert ports.gradients.claimed == claimed
