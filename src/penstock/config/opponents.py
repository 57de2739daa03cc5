"""Who plays the agents that do not learn: ``--opponents`` as users type them, and the rules. Opens no run."""

from pathlib import Path
from typing import NamedTuple

from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.paths import expanded
from penstock.registry import RUNTIMES

__all__ = ["RANDOM", "SELF", "NamedRun", "check_opponents", "named_run", "named_runs", "settled"]

SELF = "self"
"""The earlier versions of the run; also their label."""
RANDOM = "random"
"""The opponent that moves at random; also its label."""

LONGEST_LABEL = 56
"""Characters. The name of a metric has at most 64, and begins with ``score/``."""


class NamedRun(NamedTuple):
    """The policy of another run."""

    label: str
    """In the names of metrics: what the user typed, without the folders above it; of a long name the end."""
    folder: Path
    """Absolute, because a run may be resumed from another working directory."""
    checkpoint: str | None
    """``None``: the latest."""

    def __str__(self) -> str:
        """As a user types it."""
        return str(self.folder) if self.checkpoint is None else f"{self.folder}@{self.checkpoint}"


def named_run(opponent: str) -> NamedRun:
    """The run that ``RUN`` or ``RUN@CHECKPOINT`` stands for."""
    folder, _, checkpoint = opponent.partition("@")
    path = expanded(folder).resolve()
    # A name that penstock gave to the run begins with this, as those of all opponents do, and ends with its time.
    label = path.name.removeprefix("pettingzoo_") + (f"@{checkpoint}" if checkpoint else "")
    return NamedRun(label[-LONGEST_LABEL:], path, checkpoint or None)


def named_runs(opponents: tuple[str, ...]) -> tuple[NamedRun, ...]:
    """The runs among the opponents."""
    return tuple(named_run(name) for name in opponents if name not in {SELF, RANDOM})


def settled(opponents: tuple[str, ...]) -> tuple[str, ...]:
    """The same opponents with absolute paths."""
    return tuple(name if name in {SELF, RANDOM} else str(named_run(name)) for name in opponents)


def check_opponents(run: RunConfig) -> None:
    """Check opponents, their rule, and whether environments can read the versions of the run.

    Raises:
        ConfigError: they do not fit each other.
    """
    opponents = run.opponents or ()
    if not opponents:
        if run.opponent_rule != RunConfig.opponent_rule:
            raise ConfigError(f"--opponent_rule {run.opponent_rule} chooses among opponents; give --opponents as well")
        return
    labels = [named.label for named in named_runs(opponents)] + [name for name in opponents if name in {SELF, RANDOM}]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(f"--opponents has two that are called {twice}; scores need a name for each")
    if run.opponent_rule == "latest" and opponents != (SELF,):
        raise ConfigError("--opponent_rule latest is for --opponents self alone, and there are others")
    if SELF in opponents and RUNTIMES[run.runtime].machines:
        raise ConfigError(
            f"--opponents {SELF} does not go with --runtime {run.runtime}: environments on other machines cannot read "
            "the versions of the run; name other runs, or train on one machine"
        )
