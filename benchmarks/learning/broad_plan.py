"""The runs of `benchmarks.learning.broad`: tasks, algorithms and steps of `broad.toml`, in the order of training.

Trains nothing, and draws nothing.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learning.pairs import OURS, PEER, Pair, at_defaults
from benchmarks.learning.run import HERE

__all__ = ["RESULTS", "Run", "runs", "tasks"]

RESULTS = HERE / "results/broad"
SEEDS = 3
THREE_SEEDS = frozenset({"a3c", "appo", "dqn", "impala", "ppo", "sac", "td3"})
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

    def result(self) -> dict[str, Any] | None:
        """What its file holds; ``None`` if there is no file, or one of other settings than today's."""
        stored = self._stored()
        return None if self._differences(stored) else stored

    def outdated(self) -> dict[str, tuple[Any, Any]]:
        """Setting -> its value in the file and today's, where they differ. Empty if there is no file."""
        return self._differences(self._stored())

    def _stored(self) -> dict[str, Any] | None:
        if not (path := self.path()).exists():
            return None
        stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return stored

    def _differences(self, stored: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
        """As :meth:`outdated`. A setting that only one of both names is younger than the file, or gone: not compared.

        A new setting does by default what was done before it.
        """
        if stored is None:
            return {}
        today = self.pair().settings()[self.side]
        both = {name: (value, today[name]) for name, value in stored["settings"].items() if name in today}
        return {name: values for name, values in both.items() if values[0] != values[1]}


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
