"""Two tasks whose best return is known and whose goal is hard to find. Each lane keeps which states it has visited.

They are named `benchmarks.hidden_goals:DeepSea` and `:Chain`. Which action is right in a state depends on `layout`, so
runs with several layouts are several tasks of the same kind. Observations are one-hot. Judges nothing.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.lib.format import open_memmap

from penstock.types import Array

__all__ = ["CASES", "Chain", "DeepSea", "HiddenGoal", "first_visits"]

Step = tuple[Array, float, bool, bool, dict[str, Any]]


class HiddenGoal(gymnasium.Env[Array, int]):
    """What both tasks share: observations, the right action of each state, and what a lane has visited.

    Args:
        states: number of states, without the goal.
        actions: number of actions.
        layout: seed of the right actions.
        visits: folder in which each lane keeps its first visits; ``None``: it keeps none.
    """

    def __init__(self, states: int, actions: int, layout: int, visits: str | None) -> None:
        self.observation_space = Box(0.0, 1.0, (states,), np.float32)
        self.action_space = Discrete(actions)
        self.states = states
        self.right: list[int] = np.random.default_rng(layout).integers(actions, size=states).tolist()
        self._visits = visits
        self._seen: set[int] = set()
        self._steps = 0
        self._first: Array | None = None

    def see(self, state: int, *, goal: bool = False) -> None:
        """Keep that this step was taken in ``state``, and whether it has reached the goal.

        The file is made at the first step, because penstock also opens environments that it never steps.
        """
        self._steps += 1
        if self._visits is None:
            return
        if self._first is None:
            path = Path(self._visits) / f"{uuid4().hex}.npy"
            self._first = open_memmap(path, "w+", np.int64, (self.states + 1,))  # type: ignore[no-untyped-call]
        for place in (state, self.states) if goal else (state,):
            if place not in self._seen:
                self._seen.add(place)
                self._first[place] = self._steps

    def shown(self, state: int) -> Array:
        """The observation of a state: float32 ``[states]``."""
        obs = np.zeros(self.states, np.float32)
        obs[state] = 1.0
        return obs


class DeepSea(HiddenGoal):
    """A square sea. A step goes one row down, and one column to the right or to the left. The best return is 0.99.

    A dive begins at the top left and ends at the bottom. The reward of the last step is 1 where it goes right from the
    last column, which takes a step to the right in each row. Steps to the right cost 0.01 in all, so what is learned
    before the goal is found leads away from it. As I. Osband et al., "Deep Exploration via Randomized Value Functions",
    2019, https://arxiv.org/abs/1703.07608.

    Args:
        size: rows, and columns.
        layout: seed of which action goes right in each state.
        visits: as for `HiddenGoal`.
    """

    BEST = 0.99
    COST = 0.01

    def __init__(self, size: int, layout: int, visits: str | None = None) -> None:
        super().__init__(size * size, 2, layout, visits)
        self.size = size
        self._row = self._column = 0

    @property
    def reachable(self) -> int:
        """Number of states that a dive may pass."""
        return self.size * (self.size + 1) // 2

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin at the top left."""
        super().reset(seed=seed, options=options)
        self._row = self._column = 0
        return self.shown(0), {}

    def step(self, action: int) -> Step:
        """Go one row down."""
        state = self._row * self.size + self._column
        goes_right = action == self.right[state]
        self._row += 1
        ended = self._row == self.size
        goal = goes_right and ended and self._column == self.size - 1
        self.see(state, goal=goal)
        self._column = min(self._column + 1, self.size - 1) if goes_right else max(self._column - 1, 0)
        # An episode that has ended shows a state that no value is asked of.
        obs = self.shown(0 if ended else self._row * self.size + self._column)
        return obs, goal - goes_right * self.COST / self.size, ended, False, {}


class Chain(HiddenGoal):
    """Rooms one behind the other. One of four doors leads on, the others end the episode. The best return is 1.

    Each new room gives the same reward. So every part of the way is rewarded, but an episode sees a far room only if it
    makes no mistake before.

    Args:
        size: number of rooms; the goal is behind the last one.
        layout: seed of which door leads on.
        visits: as for `HiddenGoal`.
    """

    BEST = 1.0
    DOORS = 4

    def __init__(self, size: int, layout: int, visits: str | None = None) -> None:
        super().__init__(size, self.DOORS, layout, visits)
        self._room = 0

    @property
    def reachable(self) -> int:
        """Number of rooms."""
        return self.states

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin in the first room."""
        super().reset(seed=seed, options=options)
        self._room = 0
        return self.shown(0), {}

    def step(self, action: int) -> Step:
        """Open a door."""
        leads_on = action == self.right[self._room]
        goal = leads_on and self._room == self.states - 1
        self.see(self._room, goal=goal)
        self._room += leads_on and not goal
        return self.shown(self._room), leads_on / self.states, goal or not leads_on, False, {}


CASES: dict[str, tuple[type[DeepSea | Chain], int]] = {"deep-sea": (DeepSea, 8), "chain": (Chain, 22)}
"""Name -> task and size."""


def first_visits(folder: Path, lanes: int, timesteps: int) -> Array:
    """The first visit of each state, and of the goal, by any lane: int64 ``[states + 1]``; 0 where there was none.

    A visit is counted in steps of all lanes together, which take their steps side by side: the first step of each of
    eight lanes counts as 8.

    Args:
        folder: what the environments of one run were given as ``visits``.
        lanes: how many they were.
        timesteps: of the run. Lanes go on until their process ends, and later visits do not count.

    Raises:
        ValueError: not every lane, or another environment too, has kept its visits.
    """
    found = sorted(folder.glob("*.npy"))
    if len(found) != lanes:
        raise ValueError(f"{lanes} lanes have kept their visits in {len(found)} files of {folder}")
    steps = np.stack([np.load(path) for path in found])
    first = np.where(steps > 0, steps * lanes, timesteps + 1).min(axis=0)
    return np.where(first > timesteps, 0, first)
