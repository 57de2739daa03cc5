"""When snapshots of lanes are taken, and what a trial changes."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from penstock.envs.gymnasium import ScalarSource
from penstock.memory.action_log import ActionLog
from penstock.memory.segment import Segment
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.env.lanes import Lanes
from penstock.nodes.env.opened import Opened
from penstock.nodes.env.snapshots import LaneSnapshots
from penstock.nodes.env.trial import Trial, repeats
from tests.environments import PlantEnv

LANES, STEPS, CAPACITY = 2, 4, 16


class OwnPlantEnv(PlantEnv):
    """Is found in this module, as those that follow."""


class ManyNumbersEnv(PlantEnv):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = np.zeros(1 << 16)


class LockedEnv(PlantEnv):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class SharedNumbersEnv(PlantEnv):
    """Takes the random numbers of the process, which its reset seeds."""

    def reset(self, *, seed=None, options=None):
        np.random.seed(seed)
        random.seed(seed)
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, *ends = super().step(action)
        return obs, reward + np.random.normal() + random.random(), *ends


class Ports:
    name = "env.0"

    @contextlib.contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        yield


class Played:
    """Lanes that are stepped by hand, rollout after rollout."""

    def __init__(self, kind: type, snapshot_bytes: int = 1 << 16) -> None:
        self.trials = 0
        self.source = ScalarSource("plant", [kind() for _ in range(LANES)])
        spaces = self.source.spaces
        action = spaces.action_spec()
        needed = ActionLog.required(LANES, action, CAPACITY, snapshot_bytes)
        memory = Segment.create(needed, "test").bytes
        self.log = ActionLog(memory, LANES, action, ["obs"], CAPACITY, snapshot_bytes=snapshot_bytes)
        settings = EnvSettings(
            env=f"{__name__}:{kind.__name__}",
            vector=False,
            ignore_obs=(),
            spaces=spaces,
            worker=0,
            num_workers=1,
            first_lane=0,
            lanes=LANES,
            num_steps=STEPS,
            renew_every=STEPS,
            seed=0,
            starts=(LaneStart(),) * LANES,
            bad_numbers="stop",
            work_limit_s=10.0,
        )
        self.lanes = Lanes(settings, self.source, self.log, settings.starts)
        opened = Opened(self.source, None)
        self.snapshots = LaneSnapshots(settings, Ports(), self.log, opened, self.lanes, stacks={}, try_out=self._try)  # type: ignore[arg-type]
        self.lanes.reset()
        self.step = 0

    def _try(self, trial: Trial, limit_s: float) -> bool:
        self.trials += 1
        return repeats(trial, limit_s)

    def rollout(self) -> list[float]:
        """Play a rollout, and let snapshots be taken. Returns the rewards of lane 0."""
        rewards = []
        for _ in range(STEPS):
            action = np.full((LANES, 1), np.sin(self.step), np.float32)
            result = self.source.step(action, self.lanes.next_seed)
            for lane in range(LANES):
                self.log.append_lane(lane, action[lane], result.obs)
            self.lanes.returns += result.reward
            self.lanes.lengths += 1
            rewards.append(float(result.reward[0]))
            self.step += 1
        self.snapshots.after_rollout(self.step)
        return rewards

    def bases(self) -> list[int | None]:
        """At which step of its episode the base of each lane was taken."""
        found = [self.log.past(lane, self.log.position(lane)) for lane in range(LANES)]
        return [None if past is None or past.base is None else past.base.position.steps for past in found]


def test_a_snapshot_is_due_after_half_of_the_log_and_is_tried_once() -> None:
    played = Played(OwnPlantEnv)
    seen = []
    for _ in range(9):
        played.rollout()
        seen.append(played.bases()[0])
    # Taken at 4 to be tried, tried at 8: the first one that is kept.
    assert seen == [None, 8, 8, 16, 16, 24, 24, 32, 32]
    assert played.bases() == [32, 32]
    assert played.trials == 1


@pytest.mark.parametrize(("kind", "trials"), [(ManyNumbersEnv, 0), (LockedEnv, 0), (SharedNumbersEnv, 1)])
def test_an_environment_without_snapshots_is_not_tried_again(kind: type, trials: int) -> None:
    played = Played(kind)
    for _ in range(8):
        played.rollout()
    assert played.bases() == [None, None]
    assert played.trials == trials


def test_a_trial_does_not_change_the_random_numbers_of_the_process() -> None:
    tried = Played(SharedNumbersEnv)
    with_trial = [tried.rollout() for _ in range(6)]
    never = Played(SharedNumbersEnv, snapshot_bytes=0)
    assert [never.rollout() for _ in range(6)] == with_trial
    assert (tried.trials, never.trials) == (1, 0)


class Simulators:
    """What a library of C would keep: simulations, each with a number that its environment holds."""

    levels: ClassVar[dict[int, float]] = {}


class NumberedEnv(PlantEnv):
    """Holds the number of its simulation. To go on from it elsewhere means to go on with another simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.number = len(Simulators.levels)
        Simulators.levels[self.number] = 0.0

    def step(self, action):
        Simulators.levels[self.number] += float(action[0])
        obs, *rest = super().step(action)
        obs[2] = Simulators.levels[self.number]
        return obs, *rest

    def close(self):
        del Simulators.levels[self.number]


def test_a_trial_touches_nothing_that_an_attribute_names() -> None:
    Simulators.levels.clear()
    played = Played(NumberedEnv)
    for _ in range(8):
        played.rollout()
    assert played.trials == 1
    assert played.bases() == [None, None]
    assert list(Simulators.levels) == [0, 1]


@pytest.mark.parametrize("on_the_path", [False, True])
def test_a_file_of_the_users_takes_the_place_of_no_library_in_a_trial(tmp_path, monkeypatch, on_the_path: bool) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('no library')")
    monkeypatch.chdir(tmp_path)
    if on_the_path:
        # As where a process has looked for the user's environment.
        monkeypatch.syspath_prepend(tmp_path)
    played = Played(OwnPlantEnv)
    for _ in range(2):
        played.rollout()
    assert (played.trials, played.bases()) == (1, [8, 8])


class DyingEnv(PlantEnv):
    """Ends its process, unless that is the one of the test."""

    def step(self, action):
        if os.getpid() != int(os.environ["PLAYED_BY"]):
            os._exit(0)
        return super().step(action)


def test_an_environment_that_fails_elsewhere_goes_on_without_snapshots(monkeypatch) -> None:
    monkeypatch.setenv("PLAYED_BY", str(os.getpid()))
    played = Played(DyingEnv)
    for _ in range(8):
        played.rollout()
    assert played.trials == 1
    assert played.bases() == [None, None]
