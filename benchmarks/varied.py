"""Made-up rows with random numbers in them, so that an update has something to compute."""

import numpy as np

from penstock.types import Arrays, Discrete, Spaces

__all__ = ["varied"]


def varied(spaces: Spaces, arrays: Arrays, generator: np.random.Generator) -> Arrays:
    """Made-up rows with random observations, actions, rewards and values.

    Args:
        spaces: of the environment.
        arrays: rows of `penstock.updates.made_up`; they are changed in place.
        generator: of the numbers.
    """
    for name, values in arrays.items():
        space = dict(spaces.obs).get(name.removeprefix("next."))
        if name == "action":
            high = spaces.action.n if isinstance(spaces.action, Discrete) else None
            drawn = generator.integers(0, high, values.shape) if high else generator.uniform(-1, 1, values.shape)
            values[...] = drawn
        elif name == spaces.mask or name in {"weight", "importance", "discount"}:
            continue
        elif values.dtype == np.uint8:
            values[...] = generator.integers(0, 256, values.shape)
        elif values.dtype == np.float32:
            values[...] = 0.3 * generator.standard_normal(values.shape)
        elif isinstance(space, Discrete):
            values[...] = generator.integers(space.start, space.start + space.n, values.shape)
    if "log_prob" in arrays:
        arrays["log_prob"][...] -= 1.0
    return arrays
