"""An actor of one's own with its critic.

penstock train --env Pendulum-v1 --algo sac --model own_network.steering:Steering
"""

import torch
from torch import Tensor, nn

from penstock.types import Spaces


class Judging(nn.Module):
    """A critic, for algorithms that learn the values of observation and action: SAC, TD3 and their relatives."""

    def __init__(self, spaces: Spaces, outputs: int) -> None:
        super().__init__()
        inputs = spaces.obs[0][1].size + spaces.action.size
        self.layers = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values ``[n, outputs]`` of observations and actions ``[n, ...]``."""
        return self.layers(torch.cat((obs, action), 1))


class Steering(nn.Module):
    """An actor for the same algorithms. It gives no value: its critic does."""

    critic = Judging

    def __init__(self, spaces: Spaces, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(spaces.obs[0][1].size, 64), nn.ReLU(), nn.Linear(64, outputs))

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs ``[n, outputs]``; without the line ``critic = Judging``, penstock makes the critics."""
        return self.layers(obs)
