"""Returns of n steps within sequences of rows. Knows no networks and no table."""

import torch
from torch import Tensor

__all__ = ["n_step_returns"]


def n_step_returns(
    reward: Tensor, terminated: Tensor, valid: Tensor, value: Tensor, *, gamma: float, n_step: int
) -> Tensor:
    """``sum_{k<j} gamma^k r_{t+k} + gamma^j V(s_{t+j})`` for each row of m sequences of L rows: ``[m, L]``.

    j is ``n_step``, or less: the sum ends

    - behind a terminated row, whose next state is worth 0;
    - at a row that is not valid: it has the last observation of a truncated episode, or the one behind the sequence;
    - at row L.

    Args:
        reward: ``[m, L]``.
        terminated: bool ``[m, L]``.
        valid: bool ``[m, L]``. The result of a row that is not valid is its ``value``.
        value: ``V(s_t)`` ``[m, L + 1]``.
        gamma: discount of a step.
        n_step: at least 1.

    Source: Sutton and Barto 2018, equation 7.1; for action values Hessel et al. 2018,
    https://arxiv.org/abs/1710.02298.
    """
    found = value
    going = gamma * (~terminated).to(value.dtype)
    for _ in range(n_step):
        one_more = torch.where(valid, reward + going * found[:, 1:], value[:, :-1])
        found = torch.cat([one_more, value[:, -1:]], 1)
    return found[:, :-1]
