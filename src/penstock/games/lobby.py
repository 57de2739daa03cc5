"""Lobby: the lanes of one process, and which of them are free. Lane nodes bring them, sessions take them."""

from penstock.games.contract import SessionLane

__all__ = ["Lobby"]


class Lobby:
    """The lanes of a run."""

    flag = "--num_envs"

    def __init__(self) -> None:
        self._free: dict[int, SessionLane] = {}
        self.size = 0
        """How many lanes there are."""

    def bring(self, number: int, lane: SessionLane) -> None:
        """A lane is ready. Called once for each."""
        self._free[number] = lane
        self.size += 1

    def take(self) -> tuple[int, SessionLane] | None:
        """The free lane with the smallest number, so that few games fill few rollouts; ``None``: all are taken."""
        if not self._free:
            return None
        number = min(self._free)
        return number, self._free.pop(number)

    def give_back(self, number: int, lane: SessionLane) -> None:
        """A session has ended."""
        self._free[number] = lane
