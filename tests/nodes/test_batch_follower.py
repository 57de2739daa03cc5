"""BatchFollowerNode: by which policy its next life makes the targets of a batch."""

import numpy as np
import pytest

from penstock.algorithm import Schedule
from penstock.algorithms.appo.spec import APPOConfig, spec
from penstock.nodes.learner import BatchFollowerNode, BatchFollowerSettings
from penstock.types import Arrays
from penstock.updates.settings import UpdaterSettings
from tests.nodes import test_stream_follower as stream
from tests.nodes.test_stream_follower import SPACES, Board, Ports, Rollouts

UPDATE, BEGUN, MERGED = 6, 30, 0.5


class Team(stream.Team):
    """Hands one gradient on. The state is that of board ``parameters``: all numbers are 2."""

    def watch(self, told: Arrays) -> None:
        self._told = told

    def join(self, state: Arrays) -> Arrays:
        told = {"slots": [0, 1], "update": UPDATE, "done": Team.joined_at, "begun": BEGUN, "progress": 0.5}
        for name, value in told.items():
            self._told[name][...] = value
        return {"actor": np.array(2.0 if Team.joined_at == Team.done else 1.0)}

    def begin(self, updater: stream.Updater) -> bool:
        if Team.joined_at != Team.done:
            self._told["done"][...] = Team.done
            updater.load({"actor": np.array(2.0)})
        return self.asked

    def end(self) -> None:
        self.asked = False

    joined_at = done = 0
    """Gradient steps of the batch when this life joined, and when its step begins."""
    asked = True


class Updater(stream.Updater):
    """Notes the policy by which targets are made, and that of a gradient."""

    _actor = 0.0

    def load(self, state: Arrays) -> None:
        self._actor = float(state["actor"].reshape(-1)[0])

    def state(self) -> Arrays:
        return {"actor": np.array(self._actor)}

    def begin(self, slots: list[int], progress: float) -> None:
        self.targets_by = self._actor

    def merge(self, slots: list[int]) -> None:
        """Changes the policy, as statistics of values do."""
        assert slots == [0, 1]
        self._actor += MERGED

    def minibatches(self, indices: np.ndarray, weights: np.ndarray) -> None:
        self.gradient_by = self._actor


def make_team(*_: object) -> Team:
    return Team()


@pytest.mark.parametrize(
    ("joined_at", "done", "published", "normalize_value", "targets_by"),
    [
        # In the middle of a batch the policy has moved on from 1 to 2.
        (3, 3, UPDATE, False, 1.0),
        # The batch's statistics of values count from its beginning.
        (3, 3, UPDATE, True, 1.0 + MERGED),
        # At its beginning board ``parameters`` has the policy before it, with these statistics.
        (0, 0, UPDATE, True, 2.0),
        # An earlier life has handed the first gradient on. The others do so between joining and the first step.
        (0, 1, UPDATE, False, 1.0),
        (0, 1, UPDATE, True, 1.0 + MERGED),
        # The batch is committed: what is found counts for nothing.
        (3, 3, UPDATE + 1, True, 2.0),
    ],
)
def test_a_new_life_makes_targets_by_the_policy_before_the_batch(
    monkeypatch, joined_at, done, published, normalize_value, targets_by
) -> None:
    config = APPOConfig(normalize_value=normalize_value)
    node = begun(monkeypatch, joined_at, done, policy_board(published, config), config)
    while node.ready():
        node.step()
    assert node._updater.targets_by == targets_by
    assert node._updater.gradient_by == 2.0


def test_a_new_life_waits_for_the_policy_before_the_batch(monkeypatch) -> None:
    """On another machine the parameters of the middle of a batch may come before that policy."""
    config = APPOConfig()
    policy = policy_board(UPDATE - 1, config)
    node = begun(monkeypatch, 3, 3, policy, config)
    while node.ready():
        node.step()
    assert not hasattr(node._updater, "targets_by")
    policy._version = UPDATE
    while node.ready():
        node.step()
    assert node._updater.targets_by == 1.0


def policy_board(version: int, config: APPOConfig) -> Board:
    return Board(version, **{part.name: 1.0 for part in spec(SPACES, config).published()})


def begun(monkeypatch, joined_at: int, done: int, policy: Board, config: APPOConfig) -> BatchFollowerNode:
    monkeypatch.setattr(Team, "joined_at", joined_at)
    monkeypatch.setattr(Team, "done", done)
    updater = UpdaterSettings("", config, spec(SPACES, config), SPACES, "cpu", 1, 0, learner=1, sharing=2)
    schedule = Schedule(epochs=9, mini_batch_size=4)
    settings = BatchFollowerSettings(
        f"{__name__}:Updater", updater, schedule, f"{__name__}:make_team", rollouts=2, open_limit_s=1.0
    )
    node = BatchFollowerNode(settings)
    node.open(Ports(Rollouts({0: 0, 1: 0}), {"parameters": Board(BEGUN + done), "policy": policy}))
    return node
