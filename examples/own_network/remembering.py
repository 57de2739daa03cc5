"""A network of one's own with a memory.

penstock train --env CartPole-v1 --model own_network.remembering:Remembering
"""

from torch import Tensor, nn

from penstock.types import Spaces

from .nets import Gated


class Remembering(nn.Module):
    """The gated MLP behind a memory of 32 numbers, which is zero when an episode begins."""

    carry = {"h": 32}  # noqa: RUF012 - a plain attribute is easier to write

    def __init__(self, spaces: Spaces, outputs: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(spaces.obs[0][1].size, 32)
        self.head = Gated(32, outputs)

    def forward(self, obs: Tensor, carry: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Outputs and values, and the carry ``[n, 32]`` that the next step of each environment begins with."""
        h = self.cell(obs, carry["h"])
        return *self.head(h), {"h": h}
