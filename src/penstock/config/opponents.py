"""Opponents play the agents that do not learn: ``--opponents`` as users type them, and the rules. Opens no run."""

from pathlib import Path
from typing import NamedTuple

from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.paths import expanded
from penstock.registry import RUNTIMES

__all__ = [
    "ALL_SCORES",
    "RANDOM",
    "SCORE",
    "SELF",
    "NamedRun",
    "check_opponents",
    "check_versions_readable",
    "named_run",
    "named_runs",
    "score_names",
    "settled",
]

SELF = "self"
"""The earlier versions of the run; also their label."""
RANDOM = "random"
"""The opponent that moves at random; also its label."""
SCORE = "score/"
"""Begins the names of the metrics that ``opponents`` adds; the label of an opponent follows."""
ALL_SCORES = f"{SCORE}all"
"""The metric of the score against all opponents together."""

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
    typed = expanded(opponent)
    # A folder above the run may have an @ in its name as well.
    name, _, checkpoint = typed.name.partition("@")
    path = (typed.parent / name).resolve()
    # A name that penstock gave to the run begins with this, as those of all opponents do, and ends with its time.
    label = path.name.removeprefix("pettingzoo_") + (f"@{checkpoint}" if checkpoint else "")
    # The kind of an episode metric follows a colon.
    label = label.replace(":", "_")
    return NamedRun(label[-LONGEST_LABEL:], path, checkpoint or None)


def named_runs(opponents: tuple[str, ...]) -> tuple[NamedRun, ...]:
    """The runs among the opponents."""
    return tuple(named_run(name) for name in opponents if name not in {SELF, RANDOM})


def settled(opponents: tuple[str, ...]) -> tuple[str, ...]:
    """The same opponents with absolute paths."""
    return tuple(name if name in {SELF, RANDOM} else str(named_run(name)) for name in opponents)


def score_names(opponents: tuple[str, ...]) -> tuple[str, ...]:
    """The episode metrics that opponents add: the score against all of them, then against each label."""
    labels = [name for name in (SELF, RANDOM) if name in opponents]
    if SELF in opponents and RANDOM not in labels:
        # It plays until there is a version.
        labels.append(RANDOM)
    labels += [named.label for named in named_runs(opponents)]
    return (ALL_SCORES, *(f"{SCORE}{label}" for label in labels))


def check_opponents(run: RunConfig) -> None:
    """Check opponents, their rule and scores, and whether environments can read the versions of the run.

    Raises:
        ConfigError: they do not fit each other.
    """
    opponents = run.opponents or ()
    if not opponents:
        if run.opponent_rule != RunConfig.opponent_rule:
            raise ConfigError(f"--opponent_rule {run.opponent_rule} chooses among opponents; give --opponents as well")
        return
    named = named_runs(opponents)
    reserved = {SELF, RANDOM, ALL_SCORES.removeprefix(SCORE)}
    taken = next((one for one in named if one.label in reserved), None)
    if taken is not None:
        raise ConfigError(
            f"--opponents {taken}: its score would be called {SCORE}{taken.label}, which is another one; name its "
            f"checkpoint: {taken.folder}@latest"
        )
    labels = [one.label for one in named] + [name for name in opponents if name in {SELF, RANDOM}]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(f"--opponents has two that are called {twice}; scores need a name for each")
    if run.opponent_rule == "latest" and opponents != (SELF,):
        raise ConfigError("--opponent_rule latest is for --opponents self alone, and there are others")
    own = [name for name in run.episode_metrics or () if name.startswith(SCORE)]
    # The config of a run has all its scores. Its opponents may have changed since.
    if own and ALL_SCORES not in own:
        raise ConfigError(
            f"--episode_metrics {own[0]}: with --opponents, {SCORE} begins the names of scores; give another name"
        )
    check_versions_readable(opponents, run.runtime, "name other runs, or train on one machine")


def check_versions_readable(opponents: tuple[str, ...] | None, runtime: str, remedy: str) -> None:
    """Check that environments can read the versions of the run, if these are among the opponents.

    Args:
        opponents: of the run.
        runtime: the one that starts its environments.
        remedy: ends the error's text.

    Raises:
        ConfigError: the environments may be on other machines.
    """
    if SELF in (opponents or ()) and RUNTIMES[runtime].machines:
        raise ConfigError(
            f"--opponents {SELF} does not go with --runtime {runtime}: environments on other machines cannot read the "
            f"versions of the run; {remedy}"
        )
