"""Running networks over sequences from a table, from the carry that was stored when they were collected.

Pure functions on named tensors. Knows no loss.

    burn-in: rows 0 .. b - 1 of m sequences run without gradient, only for the carry behind them
    learned: rows b .. L run from there

Source: Kapturowski et al. 2019, section 3, https://openreview.net/forum?id=r1lyTjAqYX.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from penstock.algorithm import Tensors

__all__ = ["behind_burn_in", "learned_rows"]


def learned_rows(minibatch: Tensors, burn_in: int) -> dict[str, Tensor]:
    """The rows behind the burn-in: fields ``[m, L + 1 - b, ...]``, ``weight`` ``[m, L - b]``. Leaves out the carry.

    Args:
        minibatch: as `penstock.algorithm.AlgorithmSpec.sampled` gives it.
        burn_in: b.
    """
    return {
        name: values[:, burn_in:] if values.dim() > 1 else values
        for name, values in minibatch.items()
        if not name.startswith("carry.")
    }


def behind_burn_in(
    run: Callable[[Tensors], Mapping[str, Tensor]],
    minibatch: Tensors,
    fields: Sequence[str],
    carry: Mapping[str, Tensor],
    burn_in: int,
) -> dict[str, Tensor]:
    """The inputs of a network for the learned rows: fields ``[m, L + 1 - b, ...]``, ``first`` and the carry.

    Args:
        run: the network, without gradient: inputs of rows -> the carry behind the last of them.
        minibatch: as for `learned_rows`.
        fields: the observation fields that the network takes.
        carry: name -> ``[m, size]``: before row 0.
        burn_in: b.
    """
    names = (*fields, "first")
    if burn_in:
        with torch.no_grad():
            carry = run({**{name: minibatch[name][:, :burn_in] for name in names}, **carry})
    return {**{name: minibatch[name][:, burn_in:] for name in names}, **carry}
