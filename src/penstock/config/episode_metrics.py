"""Episode metrics as users type them: a name in infos, and the kind of number that is reported. Reads no info."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from penstock.config.settings.stepping import MOST_EPISODE_METRICS
from penstock.errors import ConfigError

__all__ = ["KINDS", "MEAN", "EpisodeMetric", "check_episode_metrics", "episode_metrics", "info_names"]

MEAN = "mean"
KINDS = (MEAN, "sum", "min", "max")
"""What is reported of the numbers of many episodes. A quantile is a kind, too: ``p1`` to ``p99``."""
_QUANTILE = re.compile(r"p([1-9][0-9]?)")


class EpisodeMetric(NamedTuple):
    """A number in the last infos of episodes, and what is reported of it."""

    name: str
    """In the infos."""
    kind: str
    """One of `KINDS`, or a quantile: ``p95`` is the number that 95 of 100 episodes do not exceed."""

    @property
    def label(self) -> str:
        """In the names of metrics, behind ``episode/``: ``won`` for a mean, else with the kind: ``laps:max``."""
        return self.name if self.kind == MEAN else f"{self.name}:{self.kind}"

    @property
    def share(self) -> float | None:
        """Of a quantile: the share of the episodes that do not exceed it, such as 0.95. ``None`` for other kinds."""
        found = _QUANTILE.fullmatch(self.kind)
        return int(found[1]) / 100 if found else None


def episode_metrics(given: Sequence[str] | None) -> tuple[EpisodeMetric, ...]:
    """The metrics that ``--episode_metrics`` names: ``NAME`` for a mean, or ``NAME:KIND``.

    A name may have a colon. Then its kind follows the last one.
    """
    return tuple(_metric(text) for text in given or ())


def info_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The names that are read in infos, each once: several metrics may be of one number."""
    return tuple(dict.fromkeys(metric.name for metric in episode_metrics(given)))


def check_episode_metrics(given: Sequence[str] | None) -> None:
    """Check that there is each kind, that each metric is named once, and that there are not too many.

    Raises:
        ConfigError: one of them is not so.
    """
    metrics = episode_metrics(given)
    for metric in metrics:
        _check(metric)
    labels = [metric.label for metric in metrics]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(f"--episode_metrics names {twice} twice; give each name once")
    if len(labels) > MOST_EPISODE_METRICS:
        raise ConfigError(f"--episode_metrics has {len(labels)} names; give at most {MOST_EPISODE_METRICS}")


def _metric(text: str) -> EpisodeMetric:
    name, colon, kind = text.rpartition(":")
    return EpisodeMetric(name, kind) if colon else EpisodeMetric(text, MEAN)


def _check(metric: EpisodeMetric) -> None:
    given = f"{metric.name}:{metric.kind}"
    if metric.kind not in KINDS and metric.share is None:
        raise ConfigError(
            f"--episode_metrics {given}: there is no kind {metric.kind!r}; give {', '.join(KINDS)}, or a quantile from "
            f"p1 to p99; if the colon belongs to the name, give {given}:{MEAN}"
        )
    if not metric.name:
        raise ConfigError(f"--episode_metrics {given}: there is no name before the kind; give NAME:{metric.kind}")
