"""How a vector environment takes seeds: implementations differ, and none states its form, so it is found by trying."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.types import Array, Arrays

__all__ = ["SeedForm", "reset_with_seeds", "seed_form_of"]

SeedForm: TypeAlias = Callable[[Sequence[int], Array], Any]
"""One seed for each lane, and which lanes are reset (bool ``[B]``) -> what ``reset`` of the environment takes."""


def _every_lane(seeds: Sequence[int], _mask: Array) -> list[int]:
    """The form of SyncVectorEnv and AsyncVectorEnv: a list of one seed for each lane, reset or not."""
    return list(seeds)


def _reset_lanes(seeds: Sequence[int], mask: Array) -> Array:
    """The form of ale-py: an array of one seed for each reset lane."""
    return np.array([seed for seed, chosen in zip(seeds, mask, strict=True) if chosen])


def _rejections() -> tuple[type[Exception], ...]:
    """The errors by which environments refuse seeds that they do not understand."""
    from gymnasium.error import Error  # noqa: PLC0415  # needed for vector environments only

    return (TypeError, ValueError, AssertionError, RuntimeError, Error)


def seed_form_of(env: Any, observed: Callable[[Any], Arrays]) -> SeedForm | None:
    """The form in which an environment takes seeds together with a reset mask; ``None`` if it takes none.

    Each form is tried: all lanes are reset, then the last one again with the same seed. If all lanes observe the same
    as before, the environment has taken the form.

    Args:
        env: the vector environment.
        observed: makes observation fields of what ``reset`` returns.
    """
    last = env.num_envs - 1
    everyone, one = np.ones(env.num_envs, np.bool_), np.arange(env.num_envs) == last
    seeds = list(range(7, 7 + env.num_envs))
    others = [seed + 1000 for seed in seeds[:-1]] + seeds[-1:]
    for form in (_every_lane, _reset_lanes):
        try:
            before = {
                name: values.copy() for name, values in observed(env.reset(seed=form(seeds, everyone))[0]).items()
            }
            again = observed(env.reset(seed=form(others, one), options={"reset_mask": one.copy()})[0])
        except _rejections():
            continue
        # If this form is not refused, it is the environment's own, and another one may end its processes.
        return form if all(np.array_equal(before[name], again[name]) for name in before) else None
    return None


def reset_with_seeds(env: Any, seeds: Sequence[int]) -> Any:
    """Reset all lanes: each with its seed if the environment takes a seed for each, otherwise all with the first one.

    Returns:
        What ``env.reset`` returns. An environment that takes no seed is reset without.
    """
    for seed in (list(seeds), np.array(seeds), seeds[0]):
        try:
            return env.reset(seed=seed)
        except _rejections():
            continue
    return env.reset()
