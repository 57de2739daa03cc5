"""Why a process ended."""

from enum import IntEnum

__all__ = ["Cause"]


class Cause(IntEnum):
    """Why a process ended, if not by itself or by a signal from elsewhere."""

    NONE = 0
    SILENT = 1
    """A node gave no sign of life, or its announced work took too long."""
    SLOW_STEP = 2
    """A step or reset of an environment took longer than ``env_timeout`` allows."""
    MOVED = 3
    """Its node goes on on a machine that has joined."""
    LOST = 4
    """Its machine was lost."""
    REFUSED = 5
    """It never ran: the system refused another process, or another open file."""
    NEEDED = 6
    """A machine that had no policy nodes is to run environment nodes. This policy node ran elsewhere, or not at all."""
    SLOW_START = 7
    """It had opened none of its nodes when the time to start and to import was over."""

    @property
    def of_silence(self) -> bool:
        """Whether the supervisor ended it because it gave no sign of life."""
        return self in {Cause.SILENT, Cause.SLOW_STEP, Cause.SLOW_START}
