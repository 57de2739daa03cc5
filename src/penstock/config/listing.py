"""The text of `penstock algos`: one line for each algorithm, from its entry, package and spec. Prints nothing."""

from penstock.algorithm_lookup import ACTION_KINDS, ActionKind, find_algorithm
from penstock.registry import ALGORITHMS, load
from penstock.types import ActionSpace, Box, Composite, Discrete, MultiDiscrete, Spaces

__all__ = ["algorithm_lines"]

_EXAMPLES: dict[ActionKind, ActionSpace] = {
    "discrete": Discrete(2),
    "bounded": Box((1,), "float32", (-1.0,), (1.0,)),
    "unbounded": Box((1,), "float32", (float("-inf"),), (float("inf"),)),
    "multi_discrete": MultiDiscrete((2, 2), (0, 0), (2,), "int64"),
    "composite": Composite(((("one",), Discrete(2)),)),
}
_KINDS: dict[tuple[ActionKind, ...], str] = {
    ACTION_KINDS: "any",
    ("discrete", "bounded", "unbounded"): "Discrete, Box",
    ("bounded", "unbounded"): "Box",
    ("bounded",): "Box with bounds",
    ("discrete",): "Discrete",
}


def algorithm_lines() -> tuple[str, ...]:
    """One line for each algorithm: name, action spaces, topology, description with the paper.

    Raises:
        ConfigError: an entry names a package that does not exist.
    """
    rows = [_row(name) for name in ALGORITHMS.names()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return tuple(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])) for row in rows
    )


def _row(name: str) -> tuple[str, str, str, str]:
    found = find_algorithm(name)
    # Any space of the right kind will do, because the topology does not depend on it.
    spaces = Spaces((("obs", Box((1,), "float32", (-1.0,), (1.0,))),), _EXAMPLES[found.actions[0]])
    topology: str = load(found.spec)(spaces, found.config()).topology
    text: str = load(f"{found.package}:__doc__") or found.config.__doc__ or ""
    return name, _KINDS.get(found.actions, ", ".join(found.actions)), topology, text.splitlines()[0].rstrip(".")
