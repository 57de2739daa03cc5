"""An environment with unique transitions, an updater that logs the transitions it learned from, and a judge.

A transition's id is (lane, step of the lane's whole life). All episodes have the same length. The updater writes a line
of its log before the commit. So an update that was begun twice has two lines, and the last line counts.
"""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from penstock.metrics.jsonl import read_reports
from penstock.registry import UpdateBackend
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.seeding import episode_seed
from penstock.updates.settings import UpdaterSettings

LANES, EPISODES, LENGTH, SEED = 4, 4000, 10, 0
LOG = "ORACLE_LOG"
WHO = {episode_seed(SEED, lane, episode): (lane, episode) for lane in range(LANES) for episode in range(EPISODES)}
TERMS = ("learned", "in_flight", "stale", "spoilt")


class Numbered(gymnasium.Env):
    """Observes (lane, episode, step); the reward is minus the action's square."""

    observation_space = Box(-1.0, 1e6, (3,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        # Seeds that belong to no lane are those of an evaluation.
        self.lane, self.episode = WHO.get(seed, (-1, 0))
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        self.steps += 1
        return self._show(), self.reward(action), self.steps == LENGTH, False, {}

    def reward(self, action) -> float:
        return -(float(action[0]) ** 2)

    def _show(self):
        return np.array([self.lane, self.episode, self.steps], np.float32)


def noting(updater, obs: np.ndarray, unit: str):
    """Let an updater of a stream write down the ids of its rows, ``obs`` ``[slots, T + 1, lanes, 3]``.

    The ids are logged with the optimizer's step after the update.
    """

    class Noting(type(updater)):
        def begin(self, slots: Sequence[int], progress: float) -> None:
            self.seen: set[tuple[int, int]] = set()
            super().begin(slots, progress)

        def minibatches(self, indices, weights) -> None:
            rows = indices[weights > 0]
            if unit == "lane":
                rows = rows[:, None] + np.arange(obs.shape[1] - 1) * obs.shape[2]
            ids = obs.reshape(-1, 3)[rows.reshape(-1)].astype(int)
            self.seen |= {(int(lane), int(episode) * LENGTH + int(step)) for lane, episode, step in ids}
            super().minibatches(indices, weights)

        def finish(self) -> None:
            super().finish()
            line = json.dumps([int(self.state()["adam_step"]), sorted(self.seen)])
            # A line that a death cut short ends where the next begins.
            with Path(os.environ[LOG]).open("a") as log:
                log.write(f"\n{line}")

    updater.__class__ = Noting
    return updater


def build_fused(settings: UpdaterSettings, arrays: Mapping[str, np.ndarray]):
    from penstock.updates import fused

    return noting(fused.build(settings, arrays), arrays["obs"], settings.spec.unit)


UPDATES = {
    "fused": UpdateBackend(f"{__name__}:build_fused", native=True),
    "eager": UpdateBackend("tests.chaos.noting_eager:build"),
}


def judge(result: Result, log: Path) -> dict[str, float]:
    """Compare the committed history with the transitions of each lane. Returns the last line of the balance."""
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    history: dict[int, list[list[int]]] = {}
    for line in log.read_text().splitlines():
        try:
            step, ids = json.loads(line)
        except ValueError:
            continue
        history[step] = ids
    committed = [tuple(row) for step, ids in history.items() if step <= int(arrays["adam_step"]) for row in ids]
    learned = set(committed)
    assert len(learned) == len(committed) == int(arrays["steps"]) == result.steps
    collected, spoilt = arrays["lane_collected"], int(arrays["lane_spoilt"].sum())
    if not spoilt:
        # If a rollout is skipped, its episode is given up, so the ids of the episode's later steps do not occur.
        given = {(lane, step) for lane in range(LANES) for step in range(int(collected[lane]))}
        assert learned <= given
        assert len(given - learned) == int(arrays["stale"])
    assert int(collected.sum()) == len(learned) + int(arrays["stale"]) + spoilt
    return balanced(result)


def balanced(result: Result) -> dict[str, float]:
    """Check the balance of every line; returns the last one's."""
    lines = [report.values for report in read_reports(result.run_folder) if "rows/collected" in report.values]
    for values in lines:
        assert values["rows/collected"] == sum(values[f"rows/{term}"] for term in TERMS), values
    assert lines
    assert all(now["rows/collected"] >= before["rows/collected"] for before, now in itertools.pairwise(lines))
    return lines[-1]
