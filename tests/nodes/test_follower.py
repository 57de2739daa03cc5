"""FollowerNode: what it samples while its table is refilled from another machine."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.cluster.fetched import Fetched
from penstock.cluster.rings import HostedShards, take_news
from penstock.nodes.learner import FollowerNode, follower
from penstock.nodes.learner.goals import TurnGoal
from penstock.replay.sampler import Sampler
from tests.replay.world import lane_steps, make_table, write

STEPS, SLOTS = 4, 4
MIN_ROWS = STEPS * 2


class Steps:
    """Samples a minibatch of one row at each step."""

    def __init__(self, settings: object, ports: object) -> None:
        self.table = make_table(STEPS, 1, 1, SLOTS, same_step=True)
        self.updater = SimpleNamespace(state=dict)
        self.done = 0
        self.sampled: list[int] = []
        self._sampler = Sampler(self.table, 1, ("obs",), n_step=1, gamma=0.9, stack={})

    def start(self, state: object) -> None:
        """It begins."""

    def leave(self) -> None:
        """It ends."""

    def until(self, goal: TurnGoal) -> Iterator[None]:
        while self.done < goal.last:
            stamp = np.zeros(1, np.int64)
            self._sampler.sample((1, self.done), {"stamp": stamp}, list(goal.taken))
            self.sampled += stamp.tolist()
            self.done += 1
            yield None


def test_rows_that_are_replaced_between_two_steps_of_a_goal_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "GradientSteps", Steps)
    home = make_table(STEPS, 1, 1, SLOTS, same_step=True)
    hosted = HostedShards(home, None, 1)
    schedule = SimpleNamespace(min_rows=MIN_ROWS)
    spec = SimpleNamespace(replay=lambda: (schedule, None))
    settings: Any = SimpleNamespace(updater=SimpleNamespace(spec=spec))
    board = SimpleNamespace(read=lambda into: 0)
    ports: Any = SimpleNamespace(stopping=lambda: False, board_reader=lambda role: board, finished=lambda: None)
    node = FollowerNode(settings)
    node.open(ports)
    steps: Any = node._steps

    def feed(begin: int, end: int) -> None:
        """Slots are written at home, and come here at once."""
        for sequence in range(begin, end):
            write(home, 0, sequence, [lane_steps(0, 80, sequence, same_step=True)], np.zeros(1, bool), same_step=True)
        take_news(steps.table, None, hosted.news([0], [end], 0), Fetched(()))

    def run(rounds: int) -> None:
        for _ in range(rounds):
            if node.ready():
                node.step()

    run(2)
    assert not steps.sampled
    feed(0, 3)
    run(3)
    assert steps.done == 3
    # This machine heard nothing for a while. All slots below its goal are overwritten at home, so its ring begins anew.
    feed(3, 11)
    run(4)
    assert steps.done > 3
    assert set(steps.sampled[3:]) <= {8, 9, 10}
