"""How pictures of runs look: their style and their colours. Draws nothing."""

from typing import Any

__all__ = ["STYLE", "color"]

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F5539", "#444444")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, the darker ones first."""
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    # Names of runs and metrics may hold a dollar sign.
    "text.parse_math": False,
}


def color(number: int) -> str:
    """The colour of a run or side, by its place."""
    return _COLORS[number % len(_COLORS)]
