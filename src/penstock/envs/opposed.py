"""Opposed: an environment of several agents as one of a single agent, which learns. Opponents play the others."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.config.opponents import ALL_SCORES, SCORE
from penstock.envs.fields import field_paths
from penstock.envs.opponent_lane import OpponentLane
from penstock.envs.opponents import Candidate, Pool
from penstock.envs.rows import as_number, as_truth
from penstock.errors import BadDataError, EnvError

__all__ = ["LEARNER", "Opposed"]

LEARNER = "learner"
"""The name of the only agent."""
_CHOICES = 1
"""Sets the choices of an episode apart from what the environment generates from the same seed."""
_SLOWEST = 0.05
"""Share of a new score in the mean against an opponent, at least. So scores of long ago are forgotten."""


class Opposed:
    """A ``ParallelEnv`` whose only agent is another one of the environment in each episode.

    The episode of the environment ends with the one of this agent.

    Args:
        whose: begins an error's text.
        pool: the opponents, shared by the environments of this process.
        env: a ``ParallelEnv`` whose agents all have the same spaces.

    Raises:
        EnvError: it has a single agent.
    """

    def __init__(self, whose: str, pool: Pool, env: Any) -> None:
        if len(env.possible_agents) < 2:
            raise EnvError(f"{whose} has one agent only: leave out --opponents")
        self.possible_agents = [LEARNER]
        self.agents: list[str] = []
        self.metadata = env.metadata
        self.render, self.close = env.render, env.close
        self.take_version = pool.take_version
        self._whose = whose
        self._pool = pool
        self._env = env
        self._all = list(env.possible_agents)
        self._lanes: dict[Any, OpponentLane] = {}
        self._learner: Any = None
        self._noise_seed = 0
        self._obs: dict[Any, Any] = {}
        self._infos: Mapping[Any, Any] = {}
        self._ended: set[Any] = set()
        self._returns: dict[Any, float] = {}
        self._scores: dict[Candidate, float] = {}
        """The learner's mean score against each opponent."""
        self._met: dict[Candidate, int] = {}

    def observation_space(self, agent: Any) -> Any:
        """That of all agents."""
        del agent
        return self._env.observation_space(self._all[0])

    def action_space(self, agent: Any) -> Any:
        """That of all agents."""
        del agent
        return self._env.action_space(self._all[0])

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: choose the agent that learns, and the opponent.

        Raises:
            EnvError: there is no agent.
        """
        obs, infos = self._env.reset(seed=seed)
        here = [agent for agent in self._all if agent in set(self._env.agents)]
        if not here:
            raise EnvError(f"{self._whose} begins an episode without an agent")
        random = np.random.default_rng(None if seed is None else [seed, _CHOICES])
        self._learner = here[int(random.integers(len(here)))]
        self._noise_seed = int(random.integers(2**62))
        self._candidate, self._opponent = self._pool.choose(random, self._scores)
        for lane in self._lanes.values():
            lane.leave()
        self._obs, self._infos = dict(obs), infos
        self._ended.clear()
        self._returns = {}
        self.agents = [LEARNER]
        return self._of_learner(obs), self._of_learner(infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Let all agents act.

        Raises:
            BadDataError: an agent has no observation, or one that does not fit; or a reward is no number.
            EnvError: no run has planned the opponents.
        """
        acting = list(self._env.agents)
        given = {agent: actions[LEARNER] if agent == self._learner else self._move(agent) for agent in acting}
        obs, rewards, terminations, truncations, infos = self._env.step(given)
        self._infos = infos
        for agent in acting:
            earned = as_number(rewards.get(agent, 0.0), f"reward of agent {agent}")
            self._returns[agent] = self._returns.get(agent, 0.0) + earned
            for name, flags in (("terminated", terminations), ("truncated", truncations)):
                if flags.get(agent) and as_truth(flags[agent], f"{name} of agent {agent} of {self._whose}"):
                    self._ended.add(agent)
        for agent in set(self._env.agents).difference(acting):
            # It comes, or comes again: then it begins an episode of its own.
            self._ended.discard(agent)
            if (lane := self._lanes.get(agent)) is not None and lane.taken:
                lane.leave()
        # Keep the last observation of an ended agent, which may be asked for an action without getting a new one. An
        # agent that is alive must get a new one.
        self._obs = {agent: seen for agent, seen in self._obs.items() if agent in self._ended} | dict(obs)
        over = self._learner in self._ended or self._learner not in self._env.agents
        self.agents = [] if over else [LEARNER]
        told = self._of_learner(infos)
        if over:
            info = told.get(LEARNER)
            told = {LEARNER: {**(info if isinstance(info, Mapping) else {}), **self._scored()}}
        parts = (obs, rewards, terminations, truncations)
        return (*map(self._of_learner, parts), told)

    def _move(self, agent: Any) -> Any:
        if agent not in self._obs:
            raise BadDataError(f"{self._whose}: agent {agent} is alive, but it gets no observation")
        lane = self._lanes.get(agent)
        if lane is None:
            if agent not in self._all:
                raise EnvError(f"{self._whose} has the agent {agent}, which its possible_agents do not name")
            paths = field_paths(self._env.observation_space(agent))
            name = f"agent {agent} of {self._whose}"
            lane = self._lanes[agent] = OpponentLane(self._pool.spaces, paths, name, self._all.index(agent))
        if not lane.taken:
            lane.take(self._opponent.begin(lane, self._noise_seed))
        return lane.move(self._obs[agent], self._infos.get(agent), goes_on=agent not in self._ended)

    def _scored(self) -> dict[str, float]:
        """The episode's score as episode metrics: 1 won, 0.5 as good as the best other agent, 0 lost."""
        mine = self._returns[self._learner]
        best = max((value for agent, value in self._returns.items() if agent != self._learner), default=-math.inf)
        # Two sums of the same rewards in another order may differ in their last bits.
        equal = math.isclose(mine, best, rel_tol=1e-12, abs_tol=1e-9)
        score = 0.5 if equal else float(mine > best)
        times = self._met[self._candidate] = self._met.get(self._candidate, 0) + 1
        before = self._scores.get(self._candidate, 0.5)
        self._scores[self._candidate] = before + (score - before) * max(1.0 / (times + 1), _SLOWEST)
        return {ALL_SCORES: score, f"{SCORE}{self._candidate.label}": score}

    def _of_learner(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        return {LEARNER: values[self._learner]} if self._learner in values else {}
