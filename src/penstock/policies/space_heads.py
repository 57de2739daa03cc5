"""Which head an action space gets."""

from penstock.algorithm_lookup import ActionKind, check_actions
from penstock.errors import SpaceError
from penstock.policies import Categorical, Composed, Gaussian
from penstock.types import ActionSpace, Box, Composite, Discrete, Leaf, MultiDiscrete

__all__ = ["head_of", "kind_of", "size_of"]


def kind_of(action: ActionSpace) -> ActionKind:
    """The kind of an action space, for `check_actions`."""
    match action:
        case Discrete():
            return "discrete"
        case MultiDiscrete():
            return "multi_discrete"
        case Composite():
            return "composite"
        case Box():
            return "bounded" if action.bounded else "unbounded"


def size_of(action: ActionSpace, algorithm: str) -> int:
    """Number of elements of a bounded box of real numbers. Raises SpaceError for any other space."""
    check_actions(algorithm, ("bounded",), kind_of(action))
    head = head_of(action)
    return head.outputs


def head_of(action: ActionSpace) -> Gaussian | Categorical | Composed:
    """Gaussian for a box of real numbers, categorical for a Discrete, both side by side for several of them.

    Raises:
        SpaceError: an action, or a part of it, is a Box of integers or an empty Box.
    """
    match action:
        case Composite():
            return Composed(tuple(part for _, leaf in action.leaves for part in _parts_of(leaf)))
        case MultiDiscrete():
            return Composed(_parts_of(action))
        case _:
            (part,) = _parts_of(action)
            return part


def _parts_of(leaf: Leaf) -> tuple[Gaussian | Categorical, ...]:
    """One head for a Box or Discrete, one for each element of a MultiDiscrete."""
    if not isinstance(leaf, Box):
        return tuple(map(Categorical, leaf.choices))
    if not leaf.dtype.startswith("float") or leaf.size == 0:
        raise SpaceError(f"actions are a Box of {leaf.dtype} {list(leaf.shape)}: use float or Discrete")
    return (Gaussian(leaf.size),)
