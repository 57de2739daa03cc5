"""Sessions of clients: who is there, and the memory of each. Does not run the policy.

The carry of all sessions lies in one table, one row for each session. A worker gets copies of rows and gives new ones
back; so nothing is lost when a worker dies.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.serving.server.admission.refusal import Refusal
from penstock.types import Array, Arrays

if TYPE_CHECKING:
    from penstock.serving.server.endpoints.version import Version

__all__ = ["MOST_WAITING", "ClientSession", "SessionKey", "Sessions", "gamecore_key", "no_session"]

SessionKey: TypeAlias = tuple[str, str | int]
"""The protocol's namespace, and the name that the client chose in it."""
MOST_WAITING = 64
"""Requests of one session that wait behind its present one."""


class ClientSession:
    """One client's lane.

    Attributes:
        row: its row in the table of carries; ``None`` once it is taken back.
        first: its next question begins an episode.
        asking: a question of it is in the queue or being answered.
        waiting: what to do once that is answered, in order.
        ended: it takes no more questions.
        used: when it was used last, in seconds of the monotonic clock.
        version: answers it.
    """

    __slots__ = ("asking", "ended", "first", "key", "row", "used", "version", "waiting")

    def __init__(self, key: SessionKey, row: int, used: float, version: "Version") -> None:
        self.key = key
        self.version = version
        self.row: int | None = row
        self.first = True
        self.asking = False
        self.waiting: deque[Callable[[], None]] = deque()
        self.ended = False
        self.used = used


class Sessions:
    """The sessions of one endpoint.

    Args:
        carry: the carry of one lane: name -> ``[1, ...]``. Gives names, shapes and dtypes.
        limit: how many sessions there may be.
        idle_seconds: a session that is not used for so long ends.
        ended: is told of each session that has ended.
    """

    def __init__(
        self,
        carry: Mapping[str, Array],
        limit: int,
        idle_seconds: float,
        ended: Callable[[ClientSession], object],
    ) -> None:
        # Pages of the table are taken from the system when they are first written.
        self._table = {name: np.zeros((limit, *row.shape[1:]), row.dtype) for name, row in carry.items()}
        self._free = list(reversed(range(limit)))
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._ended = ended
        self._live: OrderedDict[SessionKey, ClientSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(self._live.values())

    @property
    def has_memory(self) -> bool:
        """Whether there is a carry."""
        return bool(self._table)

    def start(self, key: SessionKey, version: "Version", now: float) -> ClientSession:
        """Begin a session, which this version answers.

        Raises:
            Refusal: it lives already (409), or there are too many (429).
        """
        if key in self._live:
            raise Refusal(HTTPStatus.CONFLICT, f"session {_shown(key)} has started already; stop it first")
        if not self._free:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, f"all {self._limit} sessions are taken (--max_sessions)", retry_after=1
            )
        session = self._live[key] = ClientSession(key, self._free.pop(), now, version)
        return session

    def find(self, key: SessionKey, now: float) -> ClientSession:
        """A session that lives, which counts as used now.

        Raises:
            Refusal: there is none of that name (404).
        """
        session = self._live.get(key)
        if session is None:
            raise no_session(key)
        self.use(session, now)
        return session

    def use(self, session: ClientSession, now: float) -> None:
        """Let a session count as used now."""
        session.used = now
        if self._live.get(session.key) is session:
            self._live.move_to_end(session.key)

    def has(self, key: SessionKey) -> bool:
        """Whether this session lives."""
        return key in self._live

    def end(self, session: ClientSession) -> None:
        """Let a session take no more questions. Its name is free at once, its row once nothing of it is asked."""
        if self._live.get(session.key) is session:
            del self._live[session.key]
            self._ended(session)
        session.ended = True
        self.settle(session)

    def settle(self, session: ClientSession) -> None:
        """Take the row of an ended session back, if nothing of it is asked any more."""
        if not session.ended or session.asking or session.waiting or session.row is None:
            return
        # Zeroed although `first` makes the next session's carry count as zero: nothing of a client is kept.
        for values in self._table.values():
            values[session.row] = 0
        self._free.append(session.row)
        session.row = None

    def expire(self, now: float) -> int:
        """End the sessions that were not used for long; return how many."""
        count = 0
        for session in list(self._live.values()):
            if now - session.used < self._idle_seconds:
                # The others were used later.
                break
            if not session.asking:
                self.end(session)
                count += 1
        return count

    def read(self, rows: Array) -> Arrays:
        """Copies of the carries in these rows of the table: name -> ``[n, ...]``."""
        return {name: values[rows] for name, values in self._table.items()}

    def write(self, rows: Array, carry: Mapping[str, Array]) -> None:
        """Store carries ``[n, ...]`` in these rows of the table."""
        for name, values in self._table.items():
            values[rows] = carry[name]


def gamecore_key(name: bytes) -> SessionKey:
    """The key of a session of Gamecore: the same over every transport. Names are UTF-8; other bytes are others."""
    try:
        return ("gamecore", name.decode())
    except UnicodeDecodeError:
        return ("gamecore in Latin-1", name.decode("latin-1"))


def no_session(key: SessionKey) -> Refusal:
    """The refusal of a request to a session that does not live."""
    text = f"there is no session {_shown(key)}; it was stopped, was idle for too long, or never started"
    return Refusal(HTTPStatus.NOT_FOUND, text)


def _shown(key: SessionKey) -> str:
    return repr(key[1])
