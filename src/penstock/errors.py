"""The exceptions of penstock. Nothing here prints or exits: the command line does.

PenstockError
├── UsageError            the user can correct it: one line, exit code 2
│   ├── ConfigError       unknown key or flag, value out of range, values that contradict each other
│   │   ├── NoClusterError no Ray cluster answers
│   │   └── NoEffectError a setting was given that nothing reads
│   ├── EnvError          an environment is unknown or cannot be made
│   ├── SpaceError        no policy here can serve an observation or action space
│   ├── DeviceError       a device cannot be used on this machine
│   ├── RunFolderError    a log directory or run folder cannot be used
│   ├── CheckpointError   a checkpoint is missing, truncated, altered or of another environment
│   └── BundleError       an exported policy is missing, altered, of another version or of another environment
├── NodeError             a node failed while it ran: its name and its own traceback
│   └── StallError        every node is alive, but the run as a whole came no further
├── FencedError           an owner used a slot that it does not hold
├── DamagedError          shared memory does not hold what was stored there
├── BadDataError          an environment gave data that cannot be learned from
├── SnapshotError         the state of an environment cannot be copied, or a copy does not fit
├── LostError             the cluster, or this machine's link to it, was lost
└── ResourceError         a limit of this machine or of a structure was reached
"""

import difflib
import signal
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "BadDataError",
    "BundleError",
    "CheckpointError",
    "ConfigError",
    "DamagedError",
    "DeviceError",
    "EnvError",
    "FencedError",
    "LostError",
    "NoClusterError",
    "NoEffectError",
    "NodeError",
    "PenstockError",
    "ResourceError",
    "RunFolderError",
    "SnapshotError",
    "SpaceError",
    "StallError",
    "UsageError",
    "either",
    "nearest",
    "place_in",
    "signal_name",
]


_CHAINED = ("direct cause of the following exception:", "another exception occurred:")
"""Ends of the lines that Python prints between the tracebacks of an error and its cause."""


class PenstockError(Exception):
    """Root of every error that penstock raises on purpose."""


class UsageError(PenstockError):
    """The user can correct it. Its text is one line that says what is wrong and what to type."""


class ConfigError(UsageError):
    """An unknown key or flag, a value out of range, or values that contradict each other."""


class NoClusterError(ConfigError):
    """No Ray cluster answers where the settings, or the machine, say that there is one."""


class NoEffectError(ConfigError):
    """A setting was given that nothing reads.

    Attributes:
        setting: its name; empty in an error that came from another process as text.
    """

    def __init__(self, text: str, setting: str = "") -> None:
        super().__init__(text)
        self.setting = setting


class EnvError(UsageError):
    """An environment is unknown or cannot be made."""


class SpaceError(UsageError):
    """No policy here can serve an observation or action space."""


class DeviceError(UsageError):
    """A device cannot be used on this machine."""


class RunFolderError(UsageError):
    """A log directory or run folder cannot be used."""


class CheckpointError(UsageError):
    """A checkpoint is missing, truncated, altered or of another environment."""


class BundleError(UsageError):
    """An exported policy is missing, altered, of another version or of another environment."""


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
        """The text of the node's own error, if that needs no traceback; else ``None``."""
        return None if self.plain is None else str(self.plain)

    @property
    def plain(self) -> PenstockError | None:
        """The node's own error, if that needs no traceback; else ``None``.

        The text of such an error (bad data, a full disk) says all there is to know. An error with another one as its
        cause, such as an environment's own, needs its traceback.
        """
        lines = self.detail.rstrip().splitlines()
        kind, colon, text = (lines[-1] if lines else "").partition(": ")
        module, _, name = kind.rpartition(".")
        found = globals().get(name) if module == __name__ and colon else None
        if not isinstance(found, type) or any(line.endswith(_CHAINED) for line in lines):
            return None
        plain = UsageError | BadDataError | DamagedError | LostError | ResourceError
        return found(text) if issubclass(found, plain) else None


class StallError(NodeError):
    """Every node is alive, but the run as a whole came no further.

    Attributes:
        node: empty.
        detail: for how long, then what each node waited for, then the stacks of all processes.
    """

    def __init__(self, detail: str) -> None:
        super().__init__("", detail)
        self.args = (detail,)

    @property
    def stood(self) -> str:
        """One line: for how long."""
        return self.detail.partition("\n")[0]


class FencedError(PenstockError):
    """An owner used a slot that it does not hold: the slot was taken back, or never claimed."""


class DamagedError(PenstockError):
    """Shared memory does not hold what was stored there: something else wrote into it. The text names the structure."""


class BadDataError(PenstockError):
    """An environment gave data that cannot be learned from (shape, dtype, NaN)."""


class LostError(PenstockError):
    """The cluster of a run, or this machine's link to it, was lost. The text says how to go on."""


class SnapshotError(PenstockError):
    """The state of an environment cannot be copied, or a copy of it does not fit. The text names the object."""


class ResourceError(PenstockError):
    """A limit of this machine or of a structure was reached; the text names it."""


def either(names: Sequence[str]) -> str:
    """Names for a sentence: "a, b or c"; empty if there are none."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A hint ``"; did you mean a, b?"`` with the names closest to ``name``, or an empty string.

    Capital and small letters count as the same. A name that differs in nothing else is the only one of the hint. Names
    come first that begin with ``name``, or that ``name`` begins with.
    """
    spelled: dict[str, list[str]] = {}
    for one in dict.fromkeys(known):
        spelled.setdefault(one.lower(), []).append(one)
    low = name.lower()
    alike = [low] if low in spelled else _alike(low, spelled, count)
    close = [one for folded in alike for one in spelled[folded]][:count]
    return f"; did you mean {', '.join(close)}?" if close else ""


def _alike(name: str, known: Iterable[str], count: int) -> list[str]:
    known = list(known)
    begun = [one for one in known if _begins(one, name) or _begins(name, one)]
    prefixes = difflib.get_close_matches(name, begun, n=count, cutoff=0.0)
    return list(dict.fromkeys([*prefixes, *difflib.get_close_matches(name, known, n=count, cutoff=0.5)]))


def _begins(name: str, start: str) -> bool:
    """Whether ``name`` begins with ``start``. One letter says too little."""
    return len(start.lstrip("-")) > 1 and name.startswith(start)


def signal_name(number: int) -> str:
    """The name of a signal, as SIGKILL. A real-time signal has a number alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def place_in(module: str, error: Exception) -> str:
    """Where an error came from while a module was imported, as `` (file, line 3)``.

    The last place in the module or beside it; if there is none, the last one. Empty for a syntax error, whose text has
    its place already, and for an error without a file.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    names = set(module.split("."))
    own = [frame for frame in frames if names & {Path(frame.filename).stem, Path(frame.filename).parent.name}]
    if isinstance(error, SyntaxError) or not frames:
        return ""
    last = (own or frames)[-1]
    return f" ({last.filename}, line {last.lineno})"
