"""Action masks as environments give them: in ``info``, or under the key ``action_mask`` of a Dict observation.

Reads and checks them. Does not decide whether an algorithm uses them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.envs.given_arrays import array_given
from penstock.errors import BadDataError, SpaceError
from penstock.types import ActionSpace, Array, Box, Composite, Discrete, Leaf, LeafPath, MultiDiscrete, Spaces

__all__ = [
    "IN_INFO",
    "IN_OBSERVATION",
    "KEY",
    "Masks",
    "check_mask",
    "lane_of",
    "late_mask",
    "mask_given",
    "mask_in",
    "mask_rows",
    "unusable_mask",
    "with_mask",
]

KEY = "action_mask"
IN_INFO = KEY
"""Name of the field for a mask that comes in ``info``."""
IN_OBSERVATION = f"obs.{KEY}"
"""Name of the field for a mask that is a part of the observation."""


def mask_given(spaces: Spaces, info: Any) -> str | None:
    """The field of the action mask that an environment gives, or ``None``.

    Args:
        spaces: of one lane, without a mask.
        info: of a first observation.
    """
    return unusable_mask(spaces, info) if spaces.action.choices else None


def unusable_mask(spaces: Spaces, info: Any) -> str | None:
    """As `mask_given`, but also for actions without choices, which a mask cannot be used for."""
    if any(_is_part(field, IN_OBSERVATION) for field, _ in spaces.obs):
        return IN_OBSERVATION
    return IN_INFO if isinstance(info, Mapping) and info.get(KEY) is not None else None


def check_mask(name: str, spaces: Spaces, mask: str | None, info: Any) -> None:
    """Check that a mask fits the action space.

    Args:
        name: of the environment, for error texts.
        spaces: as for `mask_given`.
        mask: its result.
        info: as for `mask_given`.

    Raises:
        SpaceError: the mask has another width, or is no mask.
    """
    width = sum(spaces.action.choices)
    whole = dict(spaces.obs).get(IN_OBSERVATION)
    if mask == IN_OBSERVATION and whole is not None:
        if whole.size != width:
            raise SpaceError(f"{mask} of {name} has {whole.size} elements, but its actions have {width} choices")
        if isinstance(spaces.action, Discrete) and isinstance(whole, Box) and len(whole.shape) > 1:
            raise SpaceError(f"{mask} of {name} {_axes(whole.shape, width)}")
    elif mask == IN_INFO:
        try:
            _Form(spaces.action).read(info[KEY], f"{KEY} in the info of {name}")
        except BadDataError as error:
            raise SpaceError(str(error)) from None


def late_mask(lane_name: str) -> BadDataError:
    """The error for an info with a mask, if the first reset before the run gave no mask."""
    return BadDataError(
        f"info of {lane_name} has an {KEY}, but that of the first reset had none, or None, so it is not used: give it "
        "in every info from the first reset on, with 1 for each choice where all are possible"
    )


def mask_in(rows: Mapping[str, Array]) -> Array | None:
    """The action mask among the fields of rows that an algorithm with masks learns from; ``None`` if there is none."""
    return next((rows[name] for name in (IN_INFO, IN_OBSERVATION) if name in rows), None)


def with_mask(spaces: Spaces, mask: str | None) -> Spaces:
    """The same spaces with one field for the action mask, in place of the mask's parts.

    Raises:
        SpaceError: nothing else is observed.
    """
    if mask is None:
        return spaces
    others = tuple((name, space) for name, space in spaces.obs if not _is_part(name, mask))
    if not others:
        raise SpaceError("the observation holds nothing but an action mask; give it at least one more field")
    field = (mask, Box((sum(spaces.action.choices),), "uint8", (0.0,), (1.0,)))
    return Spaces(tuple(sorted((*others, field), key=lambda one: one[0])), spaces.action, mask)


def _is_part(field: str, mask: str) -> bool:
    return field == mask or field.startswith(f"{mask}.")


class Masks:
    """The action masks of the lanes of one source.

    Args:
        spaces: of one lane, with a mask.
        lane_names: for error texts.

    Attributes:
        rows: uint8 ``[B, choices]``: the latest mask of each lane.
    """

    def __init__(self, spaces: Spaces, lane_names: Sequence[str]) -> None:
        self._field = spaces.mask
        self._form = _Form(spaces.action)
        self._names = [f"{spaces.mask} of {name}" for name in lane_names]
        self._lane_names = lane_names
        self.rows = np.zeros((len(lane_names), self._form.width), np.uint8)

    def take(self, lane: int, obs: Any, info: Any, *, goes_on: bool) -> None:
        """Take the mask of one lane from its observation or info.

        Args:
            lane: its number in the source.
            obs: its observation.
            info: its info.
            goes_on: the episode goes on. If it has ended, the mask may be missing, or forbid everything.

        Raises:
            BadDataError: there is no mask, it does not fit the action space, or it forbids everything.
        """
        if goes_on and self._given(obs, info) is None:
            raise self._missing(lane)
        self.rows[lane] = self.read(lane, obs, info)
        # Finding which element is stuck takes longer than finding that none is.
        if goes_on and not self._form.free(self.rows[lane : lane + 1]).all():
            self._check(np.array([lane]))

    def read(self, lane: int, obs: Any, info: Any) -> Array:
        """The mask of one lane in its observation or info, uint8 ``[choices]``; 0 if there is none.

        Raises:
            BadDataError: it does not fit the action space.
        """
        given = self._given(obs, info)
        return np.zeros(self._form.width, np.uint8) if given is None else self._form.read(given, self._names[lane])

    def take_all(self, obs: Any, info: Any, *, of: Array, goes_on: Array) -> None:
        """Take the masks of several lanes from a batch of observations, or from the info of all lanes together.

        Args:
            obs: batch of observations.
            info: of all lanes. ``_action_mask`` bool ``[B]`` says which of them have a mask in it.
            of: bool ``[B]``: the lanes whose masks are taken.
            goes_on: bool ``[B]``: as for `take`.

        Raises:
            BadDataError: as for `take`.
        """
        given = self._given(obs, info)
        has = np.zeros(len(of), bool) if given is None else of
        if self._field == IN_INFO and f"_{KEY}" in info:
            has = has & np.asarray(info[f"_{KEY}"], bool)
        for lane in np.flatnonzero(of & ~has):
            if goes_on[lane]:
                raise self._missing(int(lane))
            self.rows[lane] = 0
        for lane in np.flatnonzero(has):
            self.rows[lane] = self._form.read(lane_of(given, int(lane)), self._names[lane])
        self._check(np.flatnonzero(of & goes_on))

    def _given(self, obs: Any, info: Any) -> Any:
        source = info if self._field == IN_INFO else obs
        return source.get(KEY) if isinstance(source, Mapping) else None

    def _missing(self, lane: int) -> BadDataError:
        where = "info" if self._field == IN_INFO else "observation"
        return BadDataError(f"{where} of {self._lane_names[lane]} has no {KEY}, but the first one had")

    def _check(self, lanes: Array) -> None:
        """Raise if the mask of one of these lanes forbids everything."""
        for at, element in np.argwhere(~self._form.free(self.rows[lanes])):
            of = self._form.named(element)
            raise BadDataError(f"{self._names[lanes[at]]} forbids every choice{of}: at least one must be possible")


def mask_rows(space: ActionSpace, given: Any, count: int | None, what: str, *, may_forbid_all: bool = False) -> Array:
    """Action masks that a caller gives, uint8 ``[n, choices]``.

    Args:
        space: the action space.
        given: one mask, as `_Form.read` takes it, or a batch of masks.
        count: n of a batch; ``None``: one mask is given.
        what: begins an error's text.
        may_forbid_all: nobody acts by these masks.

    Raises:
        BadDataError: a mask does not fit the action space, or forbids everything; or there are fewer than n.
    """
    form = _Form(space)
    try:
        masks = [given] if count is None else [lane_of(given, lane) for lane in range(count)]
    except (IndexError, TypeError):
        raise BadDataError(
            f"{what} is no batch of {count} masks; a mask is {form.width} numbers, 1 where a choice is possible, else 0"
        ) from None
    rows = np.stack([form.read(mask, what) for mask in masks]) if masks else np.zeros((0, form.width), np.uint8)
    for lane, element in [] if may_forbid_all else np.argwhere(~form.free(rows)):
        raise BadDataError(f"{what} forbids every choice{form.named(element)} in row {lane}")
    return rows


def lane_of(given: Any, lane: int) -> Any:
    """One lane of a batched array, of an array of objects, or of a dict or tuple of these."""
    if isinstance(given, Mapping):
        return {key: lane_of(inner, lane) for key, inner in given.items()}
    if isinstance(given, tuple):
        return tuple(lane_of(inner, lane) for inner in given)
    return None if given is None else given[lane]


@dataclass(frozen=True)
class _Form:
    """The form of a mask for one action space."""

    space: ActionSpace

    @cached_property
    def width(self) -> int:
        """Number of choices of all elements."""
        return sum(self.space.choices)

    @cached_property
    def starts(self) -> Array:
        """The place of each element's first choice."""
        return np.cumsum((0, *self.space.choices[:-1]))

    def free(self, masks: Array) -> Array:
        """Whether masks leave each element a choice: bool ``[n, elements]`` for masks ``[n, width]``."""
        return np.logical_or.reduceat(masks, self.starts, axis=1)

    def named(self, element: int) -> str:
        """Which element of an action, for error texts; empty if it has one only."""
        return f" of element {element}" if len(self.starts) > 1 else ""

    def read(self, given: Any, what: str) -> Array:
        """A mask as uint8 ``[width]``.

        Args:
            given: an array of as many numbers as there are choices; for a MultiDiscrete also a tuple of an array for
                each element; for a Dict or Tuple of actions also a dict or tuple of the masks of its leaves.
            what: begins an error's text.

        Raises:
            BadDataError: it is no array, has another width, or holds other values than 0 and 1.
        """
        try:
            parts = _parts(self.space, given, what)
            found = np.concatenate([np.ravel(part) for part in parts]) if len(parts) > 1 else np.ravel(parts[0])
        except ValueError:
            raise BadDataError(f"{what} is no array: its rows have different lengths") from None
        is_array = found.dtype.kind in "biuf"
        if is_array and len(found) != self.width:
            raise BadDataError(f"{what} has {len(found)} elements, but the actions have {self.width} choices")
        if not is_array or not ((found == 0) | (found == 1)).all():
            shown = found if is_array else repr(given)
            raise BadDataError(f"{what} is {one_line(shown)}; a mask holds 1 where a choice is possible, else 0")
        return found.astype(np.uint8)


def _parts(space: ActionSpace, given: Any, what: str) -> list[Array]:
    """The arrays that make up a mask, in the order of the choices."""
    if isinstance(space, Composite) and isinstance(given, Mapping | tuple):
        leaves = [(path, leaf) for path, leaf in space.leaves if leaf.choices]
        return [part for path, leaf in leaves for part in _parts(leaf, _picked(given, path, leaf, what), what)]
    if isinstance(space, MultiDiscrete) and isinstance(given, tuple):
        return [array_given(part) for part in given]
    mask = array_given(given)
    if isinstance(space, Discrete) and mask.ndim > 1:
        raise BadDataError(f"{what} {_axes(mask.shape, space.n)}")
    return [mask]


def _axes(shape: tuple[int, ...], choices: int) -> str:
    """What is wrong with a mask of more than one axis for a Discrete."""
    return f"has the shape {list(shape)}; the mask of a Discrete has one axis: [{choices}]"


def _picked(given: Any, path: LeafPath, leaf: Leaf, what: str) -> Any:
    """The mask of one leaf. ``None`` on the way stands for a leaf whose choices are all possible."""
    for key in path:
        if given is None:
            break
        try:
            given = given[key]
        except (KeyError, IndexError, TypeError):
            name = ".".join(map(str, path))
            raise BadDataError(f"{what} has no part {name}: give None there if all its choices are possible") from None
    return np.ones(sum(leaf.choices), np.uint8) if given is None else given
