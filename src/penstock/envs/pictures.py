"""Pictures of an environment: what it renders, or else the image that it observes. Writes no file."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import EnvError
from penstock.types import Array

__all__ = ["picture_of"]

_MOST_CHANNELS = 4
"""An axis of at most so many elements holds colours, or the frames of a stack."""


def picture_of(name: str, env: Any, obs: Any) -> Array | None:
    """The present picture: uint8 ``[h, w, 3]``. ``None``: there is none.

    Args:
        name: of the environment, for error texts.
        env: one environment, or a vector environment, whose first lane counts.
        obs: the latest observation of that lane, as the environment gives it.

    Raises:
        EnvError: it fails to render, and observes no image.
    """
    observed = next((image for part in _parts(obs) if (image := _image(part)) is not None), None)
    try:
        rendered = _rendered(env)
    except NotImplementedError:  # what Gymnasium's own class raises if an environment does not render
        return observed
    except Exception as error:
        if observed is None:
            why = f"{type(error).__name__}: {one_line(error, 300)}"
            raise EnvError(f"environment {name} cannot render: {why}") from error
        return observed
    return observed if rendered is None else rendered


def _rendered(env: Any) -> Array | None:
    """What the environment renders, if that is an array of colours."""
    render = getattr(env, "render", None)
    found = render() if callable(render) else None
    if isinstance(found, list | tuple):
        # One frame of each lane, of which the first counts; or all frames since the last call: the newest counts.
        found = None if not found else found[0] if hasattr(env, "num_envs") else found[-1]
    if isinstance(found, np.ndarray) and found.ndim == 4 and hasattr(env, "num_envs"):
        # One array of all lanes.
        found = found[0] if len(found) else None
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[-1] not in {3, 4} or not found.size:
        return None
    # Colours from 0 to 1 would all be black.
    if not np.issubdtype(found.dtype, np.integer):
        return None
    return np.ascontiguousarray(found[..., :3], np.uint8)


def _parts(obs: Any) -> list[Any]:
    if isinstance(obs, Mapping):
        return [part for inner in obs.values() for part in _parts(inner)]
    if isinstance(obs, tuple):
        return [part for inner in obs for part in _parts(inner)]
    return [obs]


def _image(obs: Any) -> Array | None:
    """An observed image in colours. Of stacked frames it is the newest one, which is the last."""
    if not isinstance(obs, np.ndarray) or obs.dtype != np.uint8 or obs.ndim not in {2, 3} or not obs.size:
        return None
    image = obs[..., None] if obs.ndim == 2 else obs
    if image.shape[0] <= _MOST_CHANNELS < image.shape[-1]:
        image = np.moveaxis(image, 0, -1)
    if image.shape[-1] != 3:
        image = np.repeat(image[..., -1:], 3, axis=-1)
    return np.ascontiguousarray(image)
