"""Networks of one's own: without memory, with one, and an actor with its critic.

Any ``torch.nn.Module`` of such a form can be learned with.

    penstock train --env CartPole-v1 --model own_network.nets:make_policy
    penstock train --env CartPole-v1 --model own_network.nets:Remembering
    penstock train --env Pendulum-v1 --algo sac --model own_network.nets:Steering

docs/own-network.md says what is expected of them.
"""

import torch
from torch import Tensor, nn

from penstock.types import Spaces


class Gated(nn.Module):
    """A perceptron whose hidden layer is switched by gates, with actions and value on top."""

    def __init__(self, inputs: int, outputs: int, width: int = 64) -> None:
        super().__init__()
        self.signal, self.gate = nn.Linear(inputs, width), nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.action, self.value = nn.Linear(width, outputs), nn.Linear(width, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs ``[n, outputs]`` and values ``[n]`` of observations ``[n, ...]``."""
        x = self.norm(self.signal(obs).tanh() * self.gate(obs).sigmoid())
        return self.action(x), self.value(x).squeeze(1)


class Remembering(nn.Module):
    """The same with a memory of 32 numbers, which is zero when an episode begins."""

    carry = {"h": 32}  # noqa: RUF012 - a plain attribute is easier to write

    def __init__(self, spaces: Spaces, outputs: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(spaces.obs[0][1].size, 32)
        self.head = Gated(32, outputs)

    def forward(self, obs: Tensor, carry: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As above, and the carry ``[n, 32]`` that the next step of each environment begins with."""
        h = self.cell(obs, carry["h"])
        return *self.head(h), {"h": h}


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


def make_policy(spaces: Spaces, outputs: int) -> nn.Module:
    """Called with the spaces of one environment, and with the number of outputs that its actions need."""
    return Gated(spaces.obs[0][1].size, outputs)
