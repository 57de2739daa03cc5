"""Tiny environments of PettingZoo for the tests of all packages. They need the package ``pettingzoo``."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec

__all__ = ["Duel", "Lives", "MaskedPair", "Others", "Signals", "TurnsEnv", "Worth", "in_turns"]


class Signals(ParallelEnv):
    """Each of ``size`` agents sees a sign of its own, 0 or 1. All get 1 if all name their own sign, else 0.

    An episode has 5 steps, so its best return is 5; guessing gives 5 / 2 ** size.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "signals"}
    LENGTH = 5

    def __init__(self, size: int = 2, render_mode: str | None = None) -> None:
        self.possible_agents = [f"agent_{number}" for number in range(size)]
        self.render_mode = render_mode

    def observation_space(self, agent):
        return Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.steps = 0
        return self._show(), {agent: {} for agent in self.agents}

    def step(self, actions):
        reward = float(all(actions[agent] == self.signs[agent] for agent in self.agents))
        self.steps += 1
        agents, over = list(self.agents), self.steps >= self.LENGTH
        obs = self._show()
        if over:
            self.agents = []
        return (
            obs,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)

    def _show(self):
        self.signs = {agent: int(self.random.integers(2)) for agent in self.agents}
        return {agent: np.eye(2, dtype=np.float32)[sign] for agent, sign in self.signs.items()}


class Lives(ParallelEnv):
    """Agents by a timetable: ``born`` and ``dies`` count the steps of an episode. The observation is the clock.

    ``short`` lives from the beginning and is terminated by step 2. ``long`` is truncated by step 5. ``late`` sees its
    first observation after step 3, and leaves by step 5 without a flag. Each living agent gets 1 a step.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "lives"}
    BORN: ClassVar[dict[str, int]] = {"short": 0, "long": 0, "late": 3}
    DIES: ClassVar[dict[str, int]] = {"short": 2, "long": 5, "late": 5}

    def __init__(self, masks: bool = False) -> None:
        self.possible_agents = ["short", "long", "late"]
        self.masks = masks
        self.seeds: list[int | None] = []

    def observation_space(self, agent):
        return Box(0.0, 10.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.clock = 0
        self.agents = ["short", "long"]
        return self._seen(self.agents), self._infos(self.agents)

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        acted = list(self.agents)
        self.clock += 1
        self.agents = [agent for agent in self.possible_agents if self.BORN[agent] <= self.clock < self.DIES[agent]]
        ends = {agent: self.clock == self.DIES[agent] for agent in acted}
        here = [agent for agent in self.possible_agents if agent in acted or agent in self.agents]
        return (
            self._seen(here),
            dict.fromkeys(acted, 1.0),
            {"short": ends.get("short", False)},
            {"long": ends.get("long", False)},
            self._infos(here),
        )

    def _seen(self, agents):
        return {agent: np.array([self.clock], np.float32) for agent in agents}

    def _infos(self, agents):
        masks = {"action_mask": np.array([1, 0])} if self.masks else {}
        return {agent: {"clock": self.clock, **masks} for agent in agents}


class Duel(ParallelEnv):
    """Two agents. Each is paid its action minus that of the other. The observation is the step and its own place."""

    metadata: ClassVar[dict[str, Any]] = {"name": "duel"}
    possible_agents: ClassVar[list[str]] = ["one", "two"]

    def __init__(self, length: int = 2) -> None:
        self.length = length

    def observation_space(self, agent):
        return Box(0.0, 9.0, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        self.taken: list[dict[str, int]] = []
        return self._seen(), {agent: {"steps": 0} for agent in self.agents}

    def step(self, actions):
        self.taken.append({agent: int(action) for agent, action in actions.items()})
        one, two = (float(actions[agent]) for agent in self.possible_agents)
        self.steps += 1
        over = dict.fromkeys(self.possible_agents, self.steps >= self.length)
        if self.steps >= self.length:
            self.agents = []
        infos = {agent: {"steps": self.steps} for agent in self.possible_agents}
        return self._seen(), {"one": one - two, "two": two - one}, over, dict.fromkeys(over, False), infos

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)

    def _seen(self):
        places = enumerate(self.possible_agents)
        return {agent: np.array([min(self.steps, 9), place], np.float32) for place, agent in places}


class MaskedPair(Signals):
    """Of four choices the mask in the observation allows the sign of the agent and one that is never right."""

    def __init__(self) -> None:
        super().__init__(2)

    def observation_space(self, agent):
        return Dict({"observation": Box(0.0, 1.0, (2,), np.float32), "action_mask": Box(0, 1, (4,), np.int8)})

    def action_space(self, agent):
        return Discrete(4)

    def step(self, actions):
        for agent, action in actions.items():
            assert action in {self.signs[agent], 3}, "a masked action was taken"
        return super().step(actions)

    def _show(self):
        seen = super()._show()
        return {
            agent: {"observation": row, "action_mask": np.array([*row, 0, 1], np.int8)} for agent, row in seen.items()
        }


class Others(Signals):
    """Its second agent has more choices than the first."""

    def action_space(self, agent):
        return Discrete(2 + self.possible_agents.index(agent))


class TurnsEnv(AECEnv):
    """Its agents act in turns."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns"}
    possible_agents: ClassVar[list[str]] = ["one", "two"]


def in_turns():
    """The agents of ``Signals`` behind PettingZoo's other interface."""
    env = parallel_to_aec(Signals())
    env.metadata["is_parallelizable"] = True
    return env


class Worth(ParallelEnv):
    """Half of the reward is what the state said before the step, which no agent sees; half is for naming a sign.

    The state is a number of -1 or 1, newly chosen in each step, and an agent's own sign is 0 or 1. So the value of an
    observation alone is the same whatever the state is.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "worth"}
    possible_agents: ClassVar[list[str]] = ["one", "two"]
    LENGTH = 4

    def observation_space(self, agent):
        return Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def state(self):
        return self.worth.astype(np.float64)

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        return self._show(), {}

    def step(self, actions):
        rewards = {agent: 5.0 * float(self.worth[0]) + (actions[agent] == self.signs[agent]) for agent in self.agents}
        self.steps += 1
        over = dict.fromkeys(self.agents, self.steps >= self.LENGTH)
        obs = self._show()
        if self.steps >= self.LENGTH:
            self.agents = []
        return obs, rewards, over, {}, {}

    def _show(self):
        self.worth = self.random.choice([-1.0, 1.0], 1)
        self.signs = {agent: int(self.random.integers(2)) for agent in self.agents}
        return {agent: np.array([sign], np.float32) for agent, sign in self.signs.items()}


parallel_env = Signals
