"""The runs of `benchmarks.learning.broad`: tasks, algorithms and steps of `broad.toml`, in the order of training.

Trains nothing, and draws nothing.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.learning.pairs import OURS, PEER, Pair, at_defaults
from benchmarks.learning.run import HERE

__all__ = ["RESULTS", "Run", "runs", "tasks"]

RESULTS = HERE / "results/broad"
SEEDS = 3
THREE_SEEDS = frozenset({"dqn", "ppo", "sac", "td3"})
"""Algorithms of which all seeds are trained. The others are trained with seed 0."""
OF_PEER = frozenset({"a2c", "ddpg", "dqn", "ppo", "sac", "td3"})
"""Algorithms that stable-baselines3 has, too."""

Tasks = Mapping[str, Mapping[str, int]]
"""Task -> algorithm -> steps."""


class Run(NamedTuple):
    """One training of either side."""

    task: str
    algo: str
    timesteps: int
    side: str
    seed: int

    def path(self) -> Path:
        """Where its result stands."""
        folder = self.task.rpartition(":")[2].replace("/", "-")
        return RESULTS / folder / f"{self.algo}-{self.side}-{self.seed}.json"

    def pair(self) -> Pair:
        """The settings of both sides."""
        return at_defaults(self.algo, self.task, self.timesteps, environment="sb3-broad")


def tasks() -> Tasks:
    """What `broad.toml` lists."""
    return tomllib.loads((HERE / "broad.toml").read_text("utf-8"))


def runs(listed: Tasks) -> Iterator[Run]:
    """All runs, in the order in which they are taken."""
    for seed in range(SEEDS):
        for task, algorithms in listed.items():
            for algo, timesteps in algorithms.items():
                if seed and algo not in THREE_SEEDS:
                    continue
                for side in (OURS, PEER) if algo in OF_PEER else (OURS,):
                    yield Run(task, algo, timesteps, side, seed)
