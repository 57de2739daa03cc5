"""LSTM and GRU cells over time, as torch functions. Knows no network and no parameters' layout.

Time comes first: ``[T, m, ...]`` for m lanes. Where ``first`` is true an episode begins: the state before that row is
zero.

Float32 on the CPU runs as one operator for the whole sequence, on the native kernels. Every other dtype and device, and
a program of ``torch.export``, runs as a loop of torch operators over the steps.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.torch_networks import operators

__all__ = ["Scan", "gru", "lstm"]


class Scan(NamedTuple):
    """Outputs of all rows, and the state behind the last one."""

    output: Tensor
    """``[T, m, size]``."""
    state: tuple[Tensor, ...]
    """``[m, size]`` each."""


def lstm(x: Tensor, recurrent: Tensor, first: Tensor, state: tuple[Tensor, ...]) -> Scan:
    """A long short-term memory; see `penstock.policies.LSTM`.

    Args:
        x: ``[T, m, 4 size]``: inputs times weights, plus bias.
        recurrent: ``U``, ``[size, 4 size]``.
        first: bool ``[T, m]``.
        state: ``h`` and ``c`` before the first row.
    """
    h, c = state
    if _has_operator(x):
        output, *after = operators.lstm(x, recurrent, first, h, c)[:3]
        return Scan(output, tuple(after))
    keep = (~first).to(x.dtype).unsqueeze(2)
    outputs = []
    for t in range(x.shape[0]):
        h, c = h * keep[t], c * keep[t]
        i, f, g, o = torch.addmm(x[t], h, recurrent).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return Scan(torch.stack(outputs), (h, c))


def gru(x: Tensor, recurrent: Tensor, bias: Tensor, first: Tensor, state: tuple[Tensor, ...]) -> Scan:
    """A gated recurrent unit; see `penstock.policies.GRU`.

    Args:
        x: ``[T, m, 3 size]``: inputs times weights, plus bias.
        recurrent: ``U``, ``[size, 3 size]``.
        bias: ``d``, ``[3 size]``.
        first: bool ``[T, m]``.
        state: ``h`` before the first row.
    """
    (h,) = state
    if _has_operator(x):
        output, after, _ = operators.gru(x, recurrent, bias, first, h)
        return Scan(output, (after,))
    keep = (~first).to(x.dtype).unsqueeze(2)
    size = recurrent.shape[0]
    outputs = []
    for t in range(x.shape[0]):
        h = h * keep[t]
        own = torch.addmm(bias, h, recurrent)
        gates = torch.sigmoid(x[t, :, : 2 * size] + own[:, : 2 * size])
        n = torch.tanh(x[t, :, 2 * size :] + gates[:, :size] * own[:, 2 * size :])
        z = gates[:, size:]
        h = (1.0 - z) * n + z * h
        outputs.append(h)
    return Scan(torch.stack(outputs), (h,))


def _has_operator(x: Tensor) -> bool:
    # A program of torch.export is run without penstock, and so without its operators.
    return not torch.compiler.is_exporting() and x.dtype == torch.float32 and x.device.type == "cpu"
