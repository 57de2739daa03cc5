"""What `penstock algos` prints: a line for each algorithm, from its entry, package and spec. Prints nothing."""

from penstock.algorithm_package import ActionKind, find_algorithm
from penstock.registry import ALGORITHMS, load
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
    found = find_algorithm(name)
    # An example of each kind stands for all: the topology is the algorithm's, whatever the space.
    spaces = Spaces((("obs", Box((1,), "float32", (-1.0,), (1.0,))),), _EXAMPLES[found.actions[0]])
    topology: str = load(found.spec)(spaces, found.config()).topology
    text: str = load(f"{found.package}:__doc__") or found.config.__doc__ or ""
    return name, _KINDS.get(found.actions, ", ".join(found.actions)), topology, text.splitlines()[0].rstrip(".")
