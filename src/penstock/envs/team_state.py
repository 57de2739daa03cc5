"""Shows each agent of a PettingZoo environment the state of the whole environment, as one more field."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import EnvError

__all__ = ["OBSERVATION", "STATE", "ShownState"]

STATE = "state"
"""The field of the state."""
OBSERVATION = "observation"
"""The field of an agent's own observation, if that is no Dict."""


class ShownState:
    """A ``ParallelEnv`` whose observations are Dicts with `STATE`: what ``state()`` gives.

    A Dict of an agent keeps its fields; another observation becomes `OBSERVATION`. The space of the state is
    ``state_space``; without it, a Box of the shape of the first state.

    Args:
        whose: begins an error's text.
        env: a ``ParallelEnv``.

    Raises:
        EnvError: it gives no state, or an agent observes a field of this name already.
    """

    def __init__(self, whose: str, env: Any) -> None:
        from gymnasium.spaces import Box, Dict  # noqa: PLC0415  # takes 70 ms

        self.possible_agents = env.possible_agents
        self.metadata = env.metadata
        self.render, self.close = env.render, env.close
        self._env = env
        # Also if the space is known: it does not mean that there is a state().
        first = self._first_state(whose)
        space = getattr(env, "state_space", None)
        if space is None:
            space = Box(-np.inf, np.inf, first.shape, np.float32)
        self._observation_spaces = {}
        for agent in env.possible_agents:
            own = env.observation_space(agent)
            fields = dict(own.spaces) if isinstance(own, Dict) else {OBSERVATION: own}
            if STATE in fields:
                raise EnvError(f"{whose}: agent {agent} observes a field {STATE} already: leave with_state out")
            self._observation_spaces[agent] = Dict({**fields, STATE: space})

    @property
    def agents(self) -> Any:
        """The agents that act in the next step."""
        return self._env.agents

    def observation_space(self, agent: Any) -> Any:
        """The Dict that an agent observes."""
        return self._observation_spaces[agent]

    def action_space(self, agent: Any) -> Any:
        """As the environment's."""
        return self._env.action_space(agent)

    def reset(self, seed: int | None = None) -> tuple[dict[Any, Any], Any]:
        """Begin an episode."""
        obs, infos = self._env.reset(seed=seed)
        return self._shown(obs), infos

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Let the agents act."""
        obs, *others = self._env.step(actions)
        return (self._shown(obs), *others)

    def _shown(self, obs: Mapping[Any, Any]) -> dict[Any, Any]:
        state = self._env.state()
        return {
            agent: {**(own if isinstance(own, Mapping) else {OBSERVATION: own}), STATE: state}
            for agent, own in obs.items()
        }

    def _first_state(self, whose: str) -> Any:
        if not callable(getattr(self._env, "state", None)):
            raise EnvError(f"{whose} has no state(); leave with_state out")
        self._env.reset()
        try:
            return np.asarray(self._env.state())
        except NotImplementedError as error:
            # PettingZoo's own class has the method, and raises this where a subclass does not.
            raise EnvError(f"{whose} has no state(): {one_line(error)}; leave with_state out") from error
