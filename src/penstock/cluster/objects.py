"""Objects of Ray: what home puts once, and each machine fetches by itself."""

from typing import Any

import ray

from penstock.cluster.messages import Publication
from penstock.cluster.ray_errors import NO_ROOM
from penstock.types import Array

__all__ = ["as_object", "put_again"]


def as_object(content: Publication | dict[int, Array]) -> Any:  # noqa: ANN401 - Ray's own type
    """A publication, or the rollouts of a batch by their slots, as an object of Ray.

    Raises:
        NO_ROOM: one of these errors; the object store has no room for it.
    """
    return ray.put(content)


def put_again(held: Any) -> Any:  # noqa: ANN401 - Ray's own type
    """The content of an object of this machine as another one, which no other machine has a copy of.

    ``None`` if the object store has no room for it.
    """
    try:
        return ray.put(ray.get(held))
    except NO_ROOM:
        return None
