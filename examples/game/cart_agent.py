"""The agent of the example game: two spaces are all that it needs. The bodies are JSON, which is the default."""

import numpy as np
from gymnasium.spaces import Box, Discrete

import penstock


class CartAgent(penstock.Agent):
    """Sees position, speed, angle and angular speed; pushes the cart left (0) or right (1)."""

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)
