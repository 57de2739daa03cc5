"""Says in plain words how the spaces of a bundle differ from those of a run. Judges nothing else."""

from penstock.types import ActionSpace, Box, Composite, Discrete, Leaf, Spaces

__all__ = ["difference"]


def difference(own: Spaces, other: Spaces) -> str:
    """How these spaces differ, to be read after "its spaces"; empty: they do not."""
    # Without what a checkpoint does not record.
    if repr(own) == repr(other):
        return ""
    ours, theirs = _described(own), _described(other)
    return "have other bounds" if ours == theirs else f"are {ours}, not {theirs}"


def _described(spaces: Spaces) -> str:
    seen = ", ".join(f"{name} {_leaf(space)}" for name, space in spaces.obs)
    return f"{seen} and action {_action(spaces.action)}"


def _action(space: ActionSpace) -> str:
    if not isinstance(space, Composite):
        return _leaf(space)
    return ", ".join(f"{'.'.join(map(str, path))} {_leaf(leaf)}" for path, leaf in space.leaves)


def _leaf(space: Leaf) -> str:
    match space:
        case Box():
            bounds = f"in [{min(space.low, default=0.0):g}, {max(space.high, default=0.0):g}]"
            return f"{space.dtype}{[*space.shape]} {bounds}"
        case Discrete():
            return f"of {space.n} choices" + (f" from {space.start}" if space.start else "")
        case _:
            return f"of {[*space.sizes]} choices"
