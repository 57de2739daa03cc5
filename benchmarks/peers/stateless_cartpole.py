"""CartPole-v1 without its velocities: a policy needs memory. Both sides of a comparison step it.

It imports nothing of penstock: it also runs in the peers' own environments.
"""

from typing import Any

import gymnasium
from gymnasium.spaces import Box

POSITIONS = [0, 2]
"""Those of the cart and of the pole."""


class Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Leaves the positions of an observation."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        whole = env.observation_space
        if not isinstance(whole, Box):
            raise TypeError(f"CartPole has observations {whole}, not a Box")
        self.observation_space = Box(whole.low[POSITIONS], whole.high[POSITIONS], dtype=whole.dtype.type)

    def observation(self, observation: Any) -> Any:
        """The positions."""
        return observation[POSITIONS]


def make_env() -> gymnasium.Env[Any, Any]:
    """One environment."""
    return Positions(gymnasium.make("CartPole-v1"))
