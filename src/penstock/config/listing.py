"""What `penstock algos` prints: a line for each algorithm, from its entry, package and spec. Prints nothing."""

from penstock.registry import ALGORITHMS, ActionKind, load
from penstock.types import Box, Discrete, Space, Spaces

__all__ = ["algorithm_lines"]

_EXAMPLES: dict[ActionKind, Space] = {
    "discrete": Discrete(2),
    "bounded": Box((1,), "float32", (-1.0,), (1.0,)),
    "unbounded": Box((1,), "float32", (float("-inf"),), (float("inf"),)),
}
_KINDS: dict[tuple[ActionKind, ...], str] = {
    ("discrete", "bounded", "unbounded"): "Discrete, Box",
    ("bounded", "unbounded"): "Box",
    ("bounded",): "Box with bounds",
    ("discrete",): "Discrete",
}


def algorithm_lines() -> tuple[str, ...]:
    """Name, action spaces, topology, what it is and its paper, of every algorithm.

    Raises:
        ConfigError: an entry names what is not there.
    """
    rows = [_row(name) for name in ALGORITHMS.names()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return tuple(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])) for row in rows
    )


def _row(name: str) -> tuple[str, str, str, str]:
    entry = ALGORITHMS[name]
    # An example of each kind stands for all: the topology is the algorithm's, whatever the space.
    spaces = Spaces((("obs", Box((1,), "float32", (-1.0,), (1.0,))),), _EXAMPLES[entry.actions[0]])
    topology: str = load(entry.spec)(spaces, load(entry.config)()).topology
    package = load(f"{entry.spec.partition(':')[0].rpartition('.')[0]}:__doc__") or load(entry.config).__doc__ or ""
    return name, _KINDS.get(entry.actions, ", ".join(entry.actions)), topology, package.splitlines()[0].rstrip(".")
