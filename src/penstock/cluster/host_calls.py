"""Calls from one host to another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import ray

from penstock.cluster.fetched import WantedRollout
from penstock.cluster.ray_errors import NO_ROOM
from penstock.types import Array

__all__ = ["observations_from"]

ANSWER_S = 10.0
"""A host that does not give observations for so long counts as out of reach for the one that asks. Shorter than the
silence after which home gives a machine up."""


async def observations_from(host: Any, wanted: Sequence[WantedRollout]) -> Sequence[Array | None] | None:  # noqa: ANN401
    """As `penstock.cluster.host.Host.observations` of another host.

    ``None``: it does not answer. Empty: the object store of its machine has no room for the answer at present.

    Large ones lie in memory that Ray shares among the processes of this machine, until nobody has them any more.

    Args:
        host: the actor.
        wanted: rollouts on that host.
    """
    try:
        found: Sequence[Array | None] = await asyncio.wait_for(host.observations.remote(wanted), ANSWER_S)
    except NO_ROOM:
        return []
    except (ray.exceptions.RayError, TimeoutError):
        return None
    return found
