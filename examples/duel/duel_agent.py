"""The agent of both sides of the duel: each sees the field from its own side, so that one policy can play either."""

import numpy as np
from gymnasium.spaces import Box, Discrete

import penstock


class DuelAgent(penstock.Agent):
    """Sees where it is, where its rival is, and where the coin lies; goes left (0), stays (1) or goes right (2)."""

    observation_space = Box(0.0, 1.0, (3,), np.float32)
    action_space = Discrete(3)
