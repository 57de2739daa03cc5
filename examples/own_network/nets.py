"""A network of one's own: any ``torch.nn.Module`` of this form can be learned with.

    penstock train --env CartPole-v1 --model own_network.nets:make_policy

docs/own-network.md says what is expected of it.
"""

from torch import Tensor, nn

from penstock.types import Spaces


class Gated(nn.Module):
    """An MLP whose hidden layer is switched by gates, with actions and value on top."""

    def __init__(self, inputs: int, outputs: int, width: int = 64) -> None:
        super().__init__()
        self.signal, self.gate = nn.Linear(inputs, width), nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.action, self.value = nn.Linear(width, outputs), nn.Linear(width, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs ``[n, outputs]`` and values ``[n]`` of observations ``[n, ...]``."""
        x = self.norm(self.signal(obs).tanh() * self.gate(obs).sigmoid())
        return self.action(x), self.value(x).squeeze(1)


def make_policy(spaces: Spaces, outputs: int) -> nn.Module:
    """Called with the spaces of one environment, and with the number of outputs that its actions need."""
    return Gated(spaces.obs[0][1].size, outputs)
