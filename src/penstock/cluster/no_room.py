"""NoRoom: what Ray's object stores have no room for at present, and how long the run waits for it.

Makes no call, and reads no clock: times are seconds of one clock, such as ``time.monotonic``.
"""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

__all__ = ["HOME", "NoRoom"]

PATIENCE = 0.9
"""Share of ``--stall_timeout`` after which the run ends and says why. The supervisor's report of the stall would come
later and say less."""
RETRY_S = 0.5
"""Seconds until what found no room is tried again. Ray has waited for room before it refuses."""
HOME = "the launcher's machine"
_ADVICE = "to have more, start Ray there with ray start --object-store-memory BYTES"


class _Waiting(NamedTuple):
    """Something that found no room."""

    store: str
    """The machine whose store is full."""
    since: float
    again: float
    """When it is tried again."""


class NoRoom:
    """What found no room. Each of these has a name of the caller's choice.

    Args:
        stall_limit_s: seconds without progress after which the run ends.
    """

    def __init__(self, stall_limit_s: float) -> None:
        self._patience_s = PATIENCE * stall_limit_s
        self._waiting: dict[Hashable, _Waiting] = {}
        self._line: str | None = None
        """The line for the user, until it is taken; ``None``: everything has found room so far."""
        self._given_up = False

    def __contains__(self, name: Hashable) -> bool:
        """Whether this waits for room."""
        return name in self._waiting

    def __iter__(self) -> Iterator[Hashable]:
        """What waits for room now."""
        return iter(tuple(self._waiting))

    def add(self, name: Hashable, store: str, now: float) -> None:
        """This found no room in the object store of a machine."""
        before = self._waiting.get(name)
        self._waiting[name] = _Waiting(store, now if before is None else before.since, now + RETRY_S)
        if self._line is None:
            self._line = (
                f"Ray's object store on {store} is full, so the run waits for room, for at most {self._patience_s:.0f} "
                f"s; {_ADVICE}"
            )

    def remove(self, name: Hashable) -> None:
        """This found room, or is not needed any more."""
        self._waiting.pop(name, None)

    def due(self, name: Hashable, now: float) -> bool:
        """Whether this may be tried now."""
        return name not in self._waiting or now >= self._waiting[name].again

    def untold(self) -> str:
        """The line for the user, once in a run; else empty."""
        if not self._line:
            return ""
        line, self._line = self._line, ""
        return line

    def given_up(self, now: float) -> str:
        """Why the run ends, at the first call after something has waited for too long; else empty."""
        first = min(self._waiting.values(), key=lambda one: one.since, default=None)
        if first is None or self._given_up or now - first.since <= self._patience_s:
            return ""
        self._given_up = True
        return f"Ray's object store on {first.store} has been full for {now - first.since:.0f} s; {_ADVICE}"
