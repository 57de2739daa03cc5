"""What can go wrong, as exceptions. Nothing here prints or exits: the command line does.

PenstockError
├── UsageError            the user can mend it: one line, exit code 2
│   ├── ConfigError       unknown key or flag, value out of range, values that do not fit each other
│   ├── EnvError unknown environment, one that cannot be made
│   ├── SpaceError        an observation or action space that no policy here can serve
│   ├── DeviceError       a device that this machine does not have
│   ├── RunFolderError    a log directory or run folder that cannot be used
│   └── CheckpointError   a checkpoint that is missing, truncated, altered or of another environment
├── NodeError             a node failed while it ran: its name and its own traceback
├── FencedError           a transition by an owner whose slots were taken back
├── DamagedError          shared memory does not hold what was stored there
├── BadDataError          an environment handed out data that cannot be learned from
└── ResourceError         a limit of this machine or of a structure was reached
"""

import difflib
from collections.abc import Iterable

__all__ = [
    "BadDataError",
    "CheckpointError",
    "ConfigError",
    "DamagedError",
    "DeviceError",
    "EnvError",
    "FencedError",
    "NodeError",
    "PenstockError",
    "ResourceError",
    "RunFolderError",
    "SpaceError",
    "UsageError",
    "nearest",
]


_CHAINED = ("direct cause of the following exception:", "another exception occurred:")
"""How the lines end by which Python joins the traceback of an error to that of its cause."""


class PenstockError(Exception):
    """Root of every error that penstock raises on purpose."""


class UsageError(PenstockError):
    """The user can mend it. Its text is one line that says what is wrong and what to type."""


class ConfigError(UsageError):
    """An unknown key or flag, a value out of range, or values that do not fit each other."""


class EnvError(UsageError):
    """An environment that is unknown or cannot be made."""


class SpaceError(UsageError):
    """A space that no policy here can serve."""


class DeviceError(UsageError):
    """A device that this machine does not have."""


class RunFolderError(UsageError):
    """A log directory or run folder that cannot be used."""


class CheckpointError(UsageError):
    """A checkpoint that is missing, truncated, altered or of another environment."""


class NodeError(PenstockError):
    """A node failed while it ran.

    Attributes:
        node: name of the node.
        detail: the traceback of the node's own process, as text.
    """

    def __init__(self, node: str, detail: str) -> None:
        super().__init__(f"node {node} failed:\n{detail}")
        self.node = node
        self.detail = detail

    @property
    def line(self) -> str | None:
        """The node's last words, where they are an error that needs no traceback; else ``None``."""
        return None if self.plain is None else str(self.plain)

    @property
    def plain(self) -> PenstockError | None:
        """The node's own error, where that needs no traceback; else ``None``.

        Bad data, a full disk and the like say all there is to know. An error that another one caused (an environment's
        own, say) is better read with that.
        """
        lines = self.detail.rstrip().splitlines()
        kind, colon, text = (lines[-1] if lines else "").partition(": ")
        module, _, name = kind.rpartition(".")
        found = globals().get(name) if module == __name__ and colon else None
        if not isinstance(found, type) or any(line.endswith(_CHAINED) for line in lines):
            return None
        return found(text) if issubclass(found, UsageError | BadDataError | DamagedError | ResourceError) else None


class FencedError(PenstockError):
    """A transition of a slot by an owner that does not hold it (any more): it was taken back, or never claimed."""


class DamagedError(PenstockError):
    """Shared memory does not hold what was stored there: something else wrote into it. The text names the structure."""


class BadDataError(PenstockError):
    """An environment handed out data that cannot be learned from (shape, dtype, NaN)."""


class ResourceError(PenstockError):
    """A limit of this machine or of a structure was reached; the text names it."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A hint ``"; did you mean a, b?"`` with the names closest to ``name``, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=count, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else ""
