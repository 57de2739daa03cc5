"""Made-up rows in the shapes of a run: observations within their spaces, no rewards, no ends. Imports no torch."""

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.types import Array, Arrays, ArraySpec, Discrete, Space, Spaces

__all__ = ["made_up_inputs", "made_up_rollout", "made_up_sample"]


def made_up_inputs(spec: AlgorithmSpec, spaces: Spaces, lanes: int) -> Arrays:
    """The inputs of ``act`` for these lanes."""
    carry = {part.name: np.zeros((lanes, *part.shape), part.dtype) for part in spec.policy.carry}
    return {
        **_observed(spaces, spaces.obs_specs(), (lanes,)),
        "noise": np.full((lanes, *spec.policy.noise.shape), 0.5, np.float32),
        "explore": np.ones(lanes, np.float32),
        **({"first": np.ones(lanes, np.bool_), **carry} if carry else {}),
    }


def made_up_rollout(spaces: Spaces, slot: tuple[ArraySpec, ...]) -> Arrays:
    """One slot of a stream, whose last row is the bootstrap row; ``slot`` has its arrays."""
    found = {part.name: np.zeros(part.shape, part.dtype) for part in slot}
    rows = found["reward"].shape
    found["valid"][:-1] = True
    return found | _observed(spaces, spaces.obs_specs(), rows)


def made_up_sample(spec: AlgorithmSpec, spaces: Spaces, count: int) -> Arrays:
    """``count`` units of a minibatch that is sampled from a table."""
    specs = spec.sampled(spaces)
    found = {part.name: np.zeros((count, *part.shape), part.dtype) for part in specs}
    for name in found.keys() & {"weight", "importance", "valid", "discount"}:
        found[name][...] = 1
    return found | _observed(spaces, specs, (count,))


def _observed(spaces: Spaces, specs: tuple[ArraySpec, ...], leading: tuple[int, ...]) -> Arrays:
    """The observations among these arrays, ``next.<field>`` included. Each lies within its space."""
    possible = {name: _possible(space) if name != spaces.mask else np.ones(()) for name, space in spaces.obs}
    found = {}
    for part in specs:
        name = part.name.removeprefix("next.")
        if name in possible:
            found[part.name] = np.zeros((*leading, *part.shape), part.dtype)
            # Large arrays of zeros take no memory until they are written.
            if possible[name].any():
                found[part.name][...] = possible[name]
    return found


def _possible(space: Space) -> Array:
    """The observation of a space that is nearest to zero."""
    if isinstance(space, Discrete):
        return np.array(space.start)
    nearest: Array = np.clip(np.zeros(space.size), space.low, space.high).reshape(space.shape)
    return nearest
