"""Follower: lets an endpoint go on with the newest checkpoint of its run, or with what is exported into its bundle."""

import asyncio
import logging
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.serving.bundle import DamagedBundleError
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.endpoints.version import Version
from penstock.serving.server.engines.contract import StartEngine
from penstock.serving.server.policy.acceptance import accepted
from penstock.serving.server.policy.source import Source

__all__ = ["Follower"]

log = logging.getLogger("penstock.serve")

_LOOK_SECONDS = 1.0


class Follower:
    """Looks for a newer version once a second. One that cannot be used is left out, and the present one goes on.

    1. The version is verified, loaded and tried beside the present policy, in a thread.
    2. Its engine is started. No request waits for it.
    3. It is introduced: it answers everything, or a share.

    A version is tried once. While two versions are loaded, no third one is.

    Args:
        endpoint: gets the newer versions.
        newest: where the newest version comes from. Called in a thread.
        start_engine: starts the engine of a version.
        introduce: lets a version answer: `Endpoint.switch`, or `Endpoint.begin_canary` with a share.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        newest: Callable[[], Source],
        start_engine: StartEngine,
        introduce: Callable[[Version], None],
    ) -> None:
        self._endpoint = endpoint
        self._newest = newest
        self._start_engine = start_engine
        self._introduce = introduce
        self._tried = endpoint.stable.number
        """The newest version that was taken or refused."""
        self._said = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception:  # the present version answers on, and a newer one may be good
                log.exception("%s: a newer version cannot be used", self._endpoint.name)

    async def look(self) -> None:
        """Take the newest version, if it was not tried yet."""
        if len(self._endpoint.versions) > 1:
            return
        try:
            found = await asyncio.to_thread(self._newest)
        except PenstockError as error:
            is_new = self._say_once(str(error))
            # A folder that is empty for a moment is no version.
            if is_new and isinstance(error, DamagedBundleError):
                self._endpoint.refused += 1
            return
        stable = self._endpoint.stable.number
        if found.version < stable:
            self._say_once(f"version {found.version}, which is there now, is older; a new start would serve it")
        if found.version <= self._tried:
            return
        self._tried = found.version
        try:
            policy = await asyncio.to_thread(accepted, found, self._endpoint.limits.quantized)
            version = self._endpoint.made(found.version, policy)
            version.engine = await self._start_engine(found, policy, version)
        except PenstockError as error:
            self._endpoint.refused += 1
            self._say_once(str(error))
        else:
            self._introduce(version)

    def _say_once(self, why: str) -> bool:
        """Log why the present version goes on. Returns false if this was said last: it is not said every second."""
        if why == self._said:
            return False
        self._said = why
        endpoint = self._endpoint
        log.warning("%s: version %d goes on: %s", endpoint.name, endpoint.stable.number, " ".join(why.split()))
        return True
