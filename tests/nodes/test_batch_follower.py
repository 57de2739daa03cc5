"""BatchFollowerNode: by which policy its next life makes the targets of a batch."""

import numpy as np
import pytest

from penstock.algorithm import Schedule
from penstock.algorithms.appo.spec import APPOConfig, init_state, spec
from penstock.nodes.learner import BatchFollowerNode, BatchFollowerSettings
from penstock.nodes.learner.goals import BatchGoal
from penstock.nodes.learner.gradient_slot import slot_specs
from penstock.nodes.learner.handed_on_epochs import HandedOnEpochs, HandedOnEpochSettings
from penstock.program.rollout import rollout_specs
from penstock.topologies.learners import GRADIENTS_TEAM
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


class Line(Ports):
    """Boards and streams between `HandedOnEpochs` and one real follower, whose life may end before it finds more."""

    def __init__(self, updater: UpdaterSettings, rollouts: Rollouts, first: Arrays) -> None:
        super().__init__(rollouts, {})
        self._updater, self._policy = updater, Board(UPDATE, **first)
        shared = updater.spec.shared()
        self._gradient = {part.name: np.zeros(part.shape, part.dtype) for part in slot_specs(shared)}
        self._told, self._version, self._handed_on = Board(-1), -1, False
        self._follower: BatchFollowerNode | None = None
        self.deaths: list[int] = []
        """Numbers of minibatches before which the follower dies."""

    def stream_reader(self, edge: str) -> object:
        return self._rollouts if edge == "rollouts" else self

    def stream_writer(self, edge: str) -> "Line":
        return self

    def board_reader(self, edge: str) -> Board:
        return self._policy if edge == "policy" else self._told

    def board_writer(self, edge: str) -> "Line":
        return self

    def sign(self) -> list[int]:
        return [0]

    def publish(self, arrays: Arrays, version: int) -> None:
        kept = {name: np.array(values) for name, values in arrays.items()}
        self._told._version, self._told._arrays = version, {**kept, "progress": np.array(0.0, np.float32)}
        if int(kept["done"]) in self.deaths:
            self._follower = None

    def written(self) -> dict[int, int]:
        return {}

    def claim(self, sequence: int) -> int:
        return 0

    def slot(self, index: int) -> Arrays:
        return self._gradient

    def push(self, index: int) -> None:
        self._handed_on = True

    def take(self) -> int | None:
        """Let the follower compute the gradient that is asked for."""
        if self._follower is None:
            self._follower = BatchFollowerNode(
                BatchFollowerSettings(
                    "penstock.updates.eager.stream:build_stream_follower",
                    self._updater,
                    self._updater.spec.schedule,
                    GRADIENTS_TEAM,
                    rollouts=1,
                    work_limit_s=1.0,
                )
            )
            self._follower.open(self)
        while self._follower.ready() and not self._handed_on:
            self._follower.step()
        return 0

    def release(self, index: int) -> None:
        self._handed_on = False


@pytest.mark.parametrize("death", [1, 2, 3])
def test_a_death_within_a_batch_changes_no_bit_where_each_step_renews_the_target(death: int) -> None:
    """4 gradient steps, each followed by a copy to the target network. The next life's targets are the first life's."""
    config = APPOConfig(target_every=1, hidden_sizes=(8,), num_steps=8, mini_batch_size=8, epochs=2, lr=0.1)
    found = spec(SPACES, config)
    updater = UpdaterSettings("penstock.algorithms.appo.learn:build", config, found, SPACES, "cpu", 1, 0, waits=True)
    numbers = np.random.default_rng(0)
    rollouts = Rollouts({0: 0})
    rollouts.arrays = {
        part.name: np.zeros((1, *part.shape), part.dtype)
        for part in rollout_specs(SPACES, found.row, 8, 2, same_step=False)
    }
    rollouts.arrays["valid"][:, :-1] = True
    for name in ("obs", "reward", "value", "log_prob"):
        rollouts.arrays[name][...] = numbers.uniform(-1.0, 0.0, rollouts.arrays[name].shape)
    rollouts.slot = lambda index: {name: values[index] for name, values in rollouts.arrays.items()}  # type: ignore[method-assign]
    first = init_state(SPACES, config, 0)

    def learned(deaths: list[int]) -> Arrays:
        line = Line(updater, rollouts, first)
        applier = "penstock.updates.eager.stream:build_stream_applier"
        epochs = HandedOnEpochs(
            HandedOnEpochSettings(applier, updater, found.schedule, 1, 1.0),
            line,
            rollouts,  # type: ignore[arg-type]
        )
        line.deaths = deaths
        epochs.updater.load({**epochs.updater.state(), **first})
        for _ in epochs.learn(BatchGoal((0,), UPDATE, 0.0), lambda: False):
            pass
        return {name: values.copy() for name, values in epochs.updater.state().items()}

    undisturbed, disturbed = learned([]), learned([death])
    assert int(undisturbed["gradient_steps"]) == 4
    assert not np.array_equal(undisturbed["actor"], first["actor"])
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(disturbed[name], values, err_msg=name)


def policy_board(version: int, config: APPOConfig) -> Board:
    return Board(version, **{part.name: 1.0 for part in spec(SPACES, config).published()})


def begun(monkeypatch, joined_at: int, done: int, policy: Board, config: APPOConfig) -> BatchFollowerNode:
    monkeypatch.setattr(Team, "joined_at", joined_at)
    monkeypatch.setattr(Team, "done", done)
    updater = UpdaterSettings("", config, spec(SPACES, config), SPACES, "cpu", 1, 0, learner=1, sharing=2)
    schedule = Schedule(epochs=9, mini_batch_size=4)
    settings = BatchFollowerSettings(
        f"{__name__}:Updater", updater, schedule, f"{__name__}:make_team", rollouts=2, work_limit_s=1.0
    )
    node = BatchFollowerNode(settings)
    node.open(Ports(Rollouts({0: 0, 1: 0}), {"parameters": Board(BEGUN + done), "policy": policy}))
    return node
