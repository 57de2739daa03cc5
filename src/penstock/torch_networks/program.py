"""Exports a policy as a program of ``torch.export``, which torch runs without penstock. Trains nothing."""

import io
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from penstock.kernels.actions import bounds_of
from penstock.policies import PolicyGraph
from penstock.torch_networks.policy import Policy
from penstock.types import Array, Box, Composite, Discrete, Leaf, Spaces

__all__ = ["exported"]


def exported(graph: PolicyGraph, spaces: Spaces, published: Mapping[str, Array], inputs: Mapping[str, Array]) -> bytes:
    """The greedy policy as the content of a file that ``torch.export.load`` reads.

    ``program.module()(inputs)`` takes the inputs of the exported ONNX graph by name, as tensors ``[n, ...]``, and gives
    its outputs by name.

    Args:
        graph: the policy.
        spaces: of the environment.
        published: the policy's parameters and statistics, which become buffers.
        inputs: an example: input -> ``[n, ...]``.
    """
    module = _Greedy(graph, spaces, published)
    # Two rows: an example of one row would fix their number.
    example = {name: torch.as_tensor(np.concatenate([rows[:1], rows[:1]])) for name, rows in inputs.items()}
    rows = torch.export.Dim("n", min=1)
    program = torch.export.export(module, (example,), dynamic_shapes=({name: {0: rows} for name in example},))
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


class _Greedy(nn.Module):
    """``act`` without exploration, with the action in the environment's units."""

    def __init__(self, graph: PolicyGraph, spaces: Spaces, published: Mapping[str, Array]) -> None:
        super().__init__()
        self._policy = Policy(graph)
        self._space = spaces.action
        self._names = list(published)
        for place, values in enumerate(published.values()):
            self.register_buffer(f"published_{place}", torch.tensor(values))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by name, for inputs by name."""
        published = {name: self.get_buffer(f"published_{place}") for place, name in enumerate(self._names)}
        n = next(iter(inputs.values())).shape[0]
        noise = torch.zeros(n, *self._policy.graph.noise.shape)
        explore = torch.zeros(n)
        found = self._policy.act(published, {**inputs, "noise": noise, "explore": explore})
        action = found.pop("action").reshape(n, -1)
        if not isinstance(self._space, Composite):
            actions = {"action": _in_units(action, self._space)}
        else:
            actions = {
                ".".join(("action", *map(str, path))): _in_units(action[:, columns], leaf)
                for (path, leaf), (_, columns) in zip(self._space.leaves, self._space.columns(), strict=True)
            }
        return actions | {f"next.{name}" if name.startswith("carry.") else name: rows for name, rows in found.items()}


def _in_units(action: Tensor, space: Leaf) -> Tensor:
    """`penstock.kernels.actions.to_environment` as torch operations, for stored elements ``[n, size]`` of one leaf."""
    if isinstance(space, Discrete):
        return action[:, 0].to(torch.int64) + space.start
    dtype = getattr(torch, space.dtype)
    if not isinstance(space, Box):
        return (action.to(torch.int64) + torch.tensor(space.starts)).to(dtype).reshape(-1, *space.shape)
    values = action.to(torch.float64)
    low, high = (torch.tensor(bound.copy()) for bound in bounds_of(space))
    if space.bounded:
        values = torch.minimum(low + (values.clamp(-1.0, 1.0) + 1.0) / 2.0 * (high - low), high)
    elif space.partly_bounded:
        values = torch.minimum(torch.maximum(values, low), high)
    if not dtype.is_floating_point:
        values = values.round()
    return values.to(dtype).reshape(-1, *space.shape)
