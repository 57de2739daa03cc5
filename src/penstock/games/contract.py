"""What a session of a game needs: its lane, the lanes that are free, and who keeps its rows.

A run and a server each have their own.
"""

from typing import Protocol

from penstock.types import Array, Arrays

__all__ = ["FreeLanes", "Rows", "SessionLane"]


class SessionLane(Protocol):
    """Answers one session, one episode after the other.

    Calls come in this order: `begin` and `act`; for each further step `go_on` and `act`, or `go_on_at_once`; `end` or
    `cut_off`.
    """

    async def begin(self, obs: Arrays) -> None:
        """An episode begins with this observation, field -> ``[1, ...]``."""
        ...

    async def act(self) -> Array:
        """The action for the latest observation, ``[1, ...]`` in the game's own units."""
        ...

    async def go_on(self, obs: Arrays, reward: float) -> None:
        """The action had this outcome, and the episode goes on."""
        ...

    def may_go_on_at_once(self) -> bool:
        """Whether `go_on_at_once` may be called."""
        ...

    def go_on_at_once(self, obs: Arrays, reward: float) -> Array:
        """`go_on` and `act` in one call that does not wait."""
        ...

    async def end(self, obs: Arrays, reward: float, info: object, *, terminated: bool) -> None:
        """The action had this outcome, and the episode ends; it was cut off if it is not ``terminated``.

        ``info`` is what the agent says of the whole episode.
        """
        ...

    def cut_off(self) -> None:
        """The outcome of the last action will never come: the episode ends before it."""
        ...


class FreeLanes(Protocol):
    """The lanes that sessions take, and give back at their end."""

    flag: str
    """The flag that says how many lanes there are, for error texts."""

    @property
    def size(self) -> int:
        """How many lanes there are."""
        ...

    def take(self) -> tuple[int, SessionLane] | None:
        """A free lane and its number; ``None``: all are taken."""
        ...

    def give_back(self, number: int, lane: SessionLane) -> None:
        """A session has ended."""
        ...


class Rows(Protocol):
    """Keeps what the policy saw and did in one episode."""

    def add(self, fields: Arrays, action: Array, reward: float) -> Array:
        """A tick is answered.

        Args:
            fields: observation fields ``[1, ...]``.
            action: the policy's, ``[1, ...]`` in the game's own units.
            reward: of the action before.

        Returns:
            The action to send.
        """
        ...

    def end(self, fields: Arrays, reward: float, *, terminated: bool) -> None:
        """The episode has ended with this observation ``[1, ...]`` and this reward of its last action."""
        ...

    def vanish(self) -> None:
        """The last action has no outcome."""
        ...

    def give_up(self) -> None:
        """The run or the server ends in the middle of the episode."""
        ...
