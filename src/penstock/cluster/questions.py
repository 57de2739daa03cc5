"""What a command that goes on with a run asks the run's deputy, and the answer, as values. Knows no cluster."""

import enum
from typing import NamedTuple

__all__ = ["Answer", "Asker", "Stand"]


class Asker(NamedTuple):
    """A command that wants to go on with a run in its folder. It has the lock of the folder."""

    begun: str
    """The run's `penstock.saved_runs.launches.first_launch`."""
    folder: str
    """Of the run."""
    machine: str
    """Where the command runs, by its name for messages."""


class Stand(enum.Enum):
    """What becomes of the run that a command wants to go on with."""

    OTHER = enum.auto()
    """It is not the deputy's run, or the deputy itself has given the command."""
    OPEN = enum.auto()
    """The launcher may be there, or the deputy is about to go on."""
    ELSEWHERE = enum.auto()
    """The deputy goes on with it in another folder."""
    LEFT = enum.auto()
    """The deputy has left it to the command."""


class Answer(NamedTuple):
    """What a deputy says to a command."""

    stand: Stand
    silent_s: float = 0.0
    """How long the launcher has said nothing."""
    folder: str = ""
    """The folder in which the deputy goes on."""
    home: str = ""
    """The launcher's machine."""
    here: str = ""
    """The deputy's machine."""
    claims: str = ""
    """Names the claims of the launcher's run, for `penstock.cluster.claims.release_claims`."""
