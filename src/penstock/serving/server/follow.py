"""Follower: lets an endpoint go on with the newest checkpoint of its run, while that trains."""

import asyncio
import logging
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.serving.server.endpoint import Endpoint
from penstock.serving.server.source import Source

__all__ = ["Follower"]

log = logging.getLogger("penstock.serve")

_LOOK_SECONDS = 1.0


class Follower:
    """Looks for a newer checkpoint once a second. One that is damaged is left out, and the present one goes on.

    1. The checkpoint is verified and loaded beside the present policy, in a thread.
    2. The engine is switched between two batches. No request waits for it, and sessions keep their memory.

    Args:
        endpoint: is switched.
        source: of the present policy.
        newest: the name of the newest checkpoint.
    """

    def __init__(self, endpoint: Endpoint, source: Source, newest: Callable[[], str]) -> None:
        self._endpoint = endpoint
        self._source = source
        self._newest = newest
        self._refused = -1
        """The version of a checkpoint that could not be used."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Switch, if there is a newer checkpoint."""
        found = Source.of_checkpoint(self._source.loader, self._source.path, self._newest())
        if found.version <= max(self._source.version, self._refused):
            return
        try:
            policy = await asyncio.to_thread(found.policy)
        except PenstockError as error:
            log.warning("version %d goes on: %s", self._source.version, error)
            self._refused = found.version
            return
        await self._endpoint.switch(found, policy)
        self._source = found
