"""LSTM and GRU over whole sequences of some lanes, forward and backward. Multiplies no inputs with their weights.

Time comes first: ``[T, m, ...]`` for m lanes. Where ``first`` is true an episode begins: the state before that row is
zero, and no gradient passes it. One thread; results depend on the instruction-set level alone. All numbers are float32.

Arrays over time may have any strides along time and lanes, save ``gates`` and ``cells``, which are contiguous as all
other arrays are. Sources: see `penstock.policies.LSTM` and `penstock.policies.GRU`.
"""

from penstock.kernels import _native
from penstock.types import Array

__all__ = ["gru", "gru_backward", "lstm", "lstm_backward"]


def lstm(
    *,
    x: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    c: Array,
    output: Array,
    last_h: Array,
    last_c: Array,
    gates: Array,
    cells: Array,
    level: str | None = None,
) -> None:
    """Run an LSTM, and keep what its gradient needs.

    Args:
        x: ``[T, m, 4 size]``: inputs times weights, plus bias.
        recurrent: ``U``, ``[size, 4 size]``.
        first: bool ``[T, m]``.
        h: ``[m, size]``, before the first row.
        c: the same for the cell.
        output: ``[T, m, size]``, written.
        last_h: ``[m, size]``, written: ``h`` behind the last row.
        last_c: the same for the cell.
        gates: ``[T, m, 4 size]``, written: i, f, g, o.
        cells: ``[T, m, size]``, written: ``c`` behind each row.
        level: instruction-set level; ``None``: the fastest of this processor.

    Raises:
        ValueError: shapes do not agree.
    """
    _native.lstm(x, recurrent, first, h, c, output, last_h, last_c, gates, cells, level)


def lstm_backward(
    *,
    d_output: Array,
    d_last_h: Array,
    d_last_c: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    c: Array,
    output: Array,
    gates: Array,
    cells: Array,
    d_x: Array,
    d_recurrent: Array,
    d_h: Array,
    d_c: Array,
    level: str | None = None,
) -> None:
    """Write the gradients ``d_x``, ``d_recurrent``, ``d_h`` and ``d_c`` of what `lstm` took.

    ``d_output``, ``d_last_h`` and ``d_last_c`` are the gradients of what `lstm` wrote. The other arguments are those of
    `lstm`. Each gradient has the shape of its array.
    """
    _native.lstm_backward(
        d_output,
        d_last_h,
        d_last_c,
        recurrent,
        first,
        h,
        c,
        output,
        gates,
        cells,
        d_x,
        d_recurrent,
        d_h,
        d_c,
        level,
    )


def gru(
    *,
    x: Array,
    recurrent: Array,
    bias: Array,
    first: Array,
    h: Array,
    output: Array,
    last_h: Array,
    gates: Array,
    level: str | None = None,
) -> None:
    """Run a GRU, and keep what its gradient needs.

    Args:
        x: ``[T, m, 3 size]``: inputs times weights, plus bias.
        recurrent: ``U``, ``[size, 3 size]``.
        bias: ``d``, ``[3 size]``.
        first: bool ``[T, m]``.
        h: ``[m, size]``, before the first row.
        output: ``[T, m, size]``, written.
        last_h: ``[m, size]``, written: ``h`` behind the last row.
        gates: ``[T, m, 4 size]``, written: r, z, n, and part n of ``h U + d``.
        level: instruction-set level; ``None``: the fastest of this processor.

    Raises:
        ValueError: shapes do not agree.
    """
    _native.gru(x, recurrent, bias, first, h, output, last_h, gates, level)


def gru_backward(
    *,
    d_output: Array,
    d_last_h: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    output: Array,
    gates: Array,
    d_x: Array,
    d_recurrent: Array,
    d_bias: Array,
    d_h: Array,
    level: str | None = None,
) -> None:
    """Write the gradients ``d_x``, ``d_recurrent``, ``d_bias`` and ``d_h`` of what `gru` took.

    ``d_output`` and ``d_last_h`` are the gradients of what `gru` wrote. The other arguments are those of `gru`. Each
    gradient has the shape of its array.
    """
    _native.gru_backward(d_output, d_last_h, recurrent, first, h, output, gates, d_x, d_recurrent, d_bias, d_h, level)
