"""CartPole-v1 without its velocities: a policy needs memory. Both sides of a comparison step it.

It imports nothing of penstock: it also runs in the peers' own environments.
"""

from typing import Any

import gymnasium
from gymnasium.spaces import Box

POSITIONS = [0, 2]
"""Those of the cart and of the pole."""


class Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Leaves some numbers of an observation, such as its positions.

    Args:
        env: whose observations are vectors.
        kept: the places of these numbers.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], kept: list[int]) -> None:
        super().__init__(env)
        whole = env.observation_space
        if not isinstance(whole, Box):
            raise TypeError(f"the observations are {whole}, not a Box")
        self._kept = kept
        self.observation_space = Box(whole.low[kept], whole.high[kept], dtype=whole.dtype.type)

    def observation(self, observation: Any) -> Any:
        """The kept numbers."""
        return observation[self._kept]


def make_env() -> gymnasium.Env[Any, Any]:
    """One environment."""
    return Positions(gymnasium.make("CartPole-v1"), POSITIONS)
