"""LSTM and GRU over time as torch operators, which call the native kernels. For float32 on the CPU only.

They are operators so that autograd, and a graph traced from torch functions, hold one node for the whole sequence and
one for its gradient. Gradients have no gradients of their own. The operators are registered on import. See
`penstock.kernels.recurrent` for the arrays.
"""

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from penstock.kernels import recurrent as kernels
from penstock.types import Array

__all__ = ["gru", "lstm"]

P = ParamSpec("P")
R = TypeVar("R")


class Context(Protocol):
    """What autograd keeps of a call for its gradient."""

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


def _operator(name: str, empty: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as an operator of this name.

    `torch.library.custom_op` would do so in one line, but the first call of such an operator imports torch's compiler.
    The import takes a second of one core, at each start of each learner.

    Args:
        name: the operator's name in ``torch.ops.penstock``.
        empty: makes room for what the operator returns. A traced graph calls it in the operator's place.
    """

    def register(kernel: Callable[P, R]) -> Callable[P, R]:
        schema = torch.library.infer_schema(kernel, mutates_args=())
        torch.library.define(f"penstock::{name}", schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(f"penstock::{name}", "cpu", kernel)
        torch.library.register_fake(f"penstock::{name}", empty)
        operator: Callable[P, R] = getattr(torch.ops.penstock, name).default
        return operator

    return register


def _empty_lstm(
    x: Tensor, recurrent: Tensor, first: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Room for what `lstm` returns."""
    (steps, lanes), size = first.shape, recurrent.shape[0]
    return (
        _by_lanes(x, steps, lanes, size),
        h.new_empty((lanes, size)),
        c.new_empty((lanes, size)),
        x.new_empty((steps, lanes, 4 * size)),
        x.new_empty((steps, lanes, size)),
    )


@_operator("lstm", _empty_lstm)
def lstm(
    x: Tensor, recurrent: Tensor, first: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output ``[T, m, size]``, ``h`` and ``c`` behind the last row; then gates and cells for the gradient."""
    found = _empty_lstm(x, recurrent, first, h, c)
    output, last_h, last_c, gates, cells = (_rows(part) for part in found)
    kernels.lstm(
        x=_rows(x),
        recurrent=_whole(recurrent),
        first=first.numpy(),
        h=_whole(h),
        c=_whole(c),
        output=output,
        last_h=last_h,
        last_c=last_c,
        gates=gates,
        cells=cells,
    )
    return found


def _empty_lstm_gradients(  # noqa: PLR0917 - operators have positional arguments
    d_output: Tensor,
    d_last_h: Tensor,
    d_last_c: Tensor,
    recurrent: Tensor,
    first: Tensor,
    h: Tensor,
    c: Tensor,
    output: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the gradients of x, recurrent, h and c."""
    del d_last_h, d_last_c, output, gates, cells
    (steps, lanes), size = first.shape, recurrent.shape[0]
    return (
        _by_lanes(d_output, steps, lanes, 4 * size),
        recurrent.new_empty((size, 4 * size)),
        h.new_empty((lanes, size)),
        c.new_empty((lanes, size)),
    )


@_operator("lstm_backward", _empty_lstm_gradients)
def _lstm_backward(  # noqa: PLR0917
    d_output: Tensor,
    d_last_h: Tensor,
    d_last_c: Tensor,
    recurrent: Tensor,
    first: Tensor,
    h: Tensor,
    c: Tensor,
    output: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    found = _empty_lstm_gradients(d_output, d_last_h, d_last_c, recurrent, first, h, c, output, gates, cells)
    d_x, d_recurrent, d_h, d_c = (_rows(part) for part in found)
    kernels.lstm_backward(
        d_output=_rows(d_output),
        d_last_h=_whole(d_last_h),
        d_last_c=_whole(d_last_c),
        recurrent=_whole(recurrent),
        first=first.numpy(),
        h=_whole(h),
        c=_whole(c),
        output=_rows(output),
        gates=_whole(gates),
        cells=_whole(cells),
        d_x=d_x,
        d_recurrent=d_recurrent,
        d_h=d_h,
        d_c=d_c,
    )
    return found


def _keep_lstm(ctx: Context, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, recurrent, first, h, c = inputs
    outputs, _, _, gates, cells = output
    # Else autograd makes zeros for gates and cells, as large as the inputs.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(recurrent, first, h, c, outputs, gates, cells)


def _differentiate_lstm(
    ctx: Context, d_output: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None, *of_kept: Tensor | None
) -> tuple[Tensor | None, ...]:
    del of_kept
    recurrent, first, h, c, output, gates, cells = ctx.saved_tensors
    behind = (_or_zeros(d_output, output), _or_zeros(d_last_h, h), _or_zeros(d_last_c, c))
    d_x, d_recurrent, d_h, d_c = _lstm_backward(*behind, recurrent, first, h, c, output, gates, cells)
    return d_x, d_recurrent, None, d_h, d_c


torch.library.register_autograd("penstock::lstm", _differentiate_lstm, setup_context=_keep_lstm)


def _empty_gru(x: Tensor, recurrent: Tensor, bias: Tensor, first: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for what `gru` returns."""
    del bias
    (steps, lanes), size = first.shape, recurrent.shape[0]
    return (
        _by_lanes(x, steps, lanes, size),
        h.new_empty((lanes, size)),
        x.new_empty((steps, lanes, 4 * size)),
    )


@_operator("gru", _empty_gru)
def gru(x: Tensor, recurrent: Tensor, bias: Tensor, first: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Output ``[T, m, size]`` and ``h`` behind the last row; then gates for the gradient."""
    found = _empty_gru(x, recurrent, bias, first, h)
    output, last_h, gates = (_rows(part) for part in found)
    kernels.gru(
        x=_rows(x),
        recurrent=_whole(recurrent),
        bias=_whole(bias),
        first=first.numpy(),
        h=_whole(h),
        output=output,
        last_h=last_h,
        gates=gates,
    )
    return found


def _empty_gru_gradients(  # noqa: PLR0917
    d_output: Tensor, d_last_h: Tensor, recurrent: Tensor, first: Tensor, h: Tensor, output: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the gradients of x, recurrent, bias and h."""
    del d_last_h, output, gates
    (steps, lanes), size = first.shape, recurrent.shape[0]
    return (
        _by_lanes(d_output, steps, lanes, 3 * size),
        recurrent.new_empty((size, 3 * size)),
        recurrent.new_empty(3 * size),
        h.new_empty((lanes, size)),
    )


@_operator("gru_backward", _empty_gru_gradients)
def _gru_backward(  # noqa: PLR0917
    d_output: Tensor, d_last_h: Tensor, recurrent: Tensor, first: Tensor, h: Tensor, output: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    found = _empty_gru_gradients(d_output, d_last_h, recurrent, first, h, output, gates)
    d_x, d_recurrent, d_bias, d_h = (_rows(part) for part in found)
    kernels.gru_backward(
        d_output=_rows(d_output),
        d_last_h=_whole(d_last_h),
        recurrent=_whole(recurrent),
        first=first.numpy(),
        h=_whole(h),
        output=_rows(output),
        gates=_whole(gates),
        d_x=d_x,
        d_recurrent=d_recurrent,
        d_bias=d_bias,
        d_h=d_h,
    )
    return found


def _keep_gru(ctx: Context, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, recurrent, _, first, h = inputs
    outputs, _, gates = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(recurrent, first, h, outputs, gates)


def _differentiate_gru(
    ctx: Context, d_output: Tensor | None, d_last_h: Tensor | None, *of_kept: Tensor | None
) -> tuple[Tensor | None, ...]:
    del of_kept
    recurrent, first, h, output, gates = ctx.saved_tensors
    behind = (_or_zeros(d_output, output), _or_zeros(d_last_h, h))
    d_x, d_recurrent, d_bias, d_h = _gru_backward(*behind, recurrent, first, h, output, gates)
    return d_x, d_recurrent, d_bias, None, d_h


torch.library.register_autograd("penstock::gru", _differentiate_gru, setup_context=_keep_gru)


def _by_lanes(like: Tensor, steps: int, lanes: int, width: int) -> Tensor:
    """An empty ``[T, m, width]`` in the memory order ``[m, T, width]``, which is that of the layers around it."""
    return like.new_empty((lanes, steps, width)).transpose(0, 1)


def _or_zeros(gradient: Tensor | None, of: Tensor) -> Tensor:
    """Autograd gives no gradient for what nothing depends on."""
    return torch.zeros_like(of) if gradient is None else gradient


def _rows(tensor: Tensor) -> Array:
    """The same memory, or a copy if rows are not contiguous."""
    found = tensor.detach()
    return (found if found.stride(-1) == 1 else found.contiguous()).numpy()


def _whole(tensor: Tensor) -> Array:
    """The same memory, or a copy if it is not contiguous."""
    return tensor.detach().contiguous().numpy()
