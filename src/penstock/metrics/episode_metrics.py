"""Episode metrics: numbers of the user's own in the info of an episode's last step, and what is reported of them.

Reads no info: `penstock.envs.last_infos` does.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.config.episode_metrics import EpisodeMetric
from penstock.config.opponents import ALL_SCORES, SCORE
from penstock.metrics.aggregation import AGGREGATIONS, quantile
from penstock.types import Array

__all__ = [
    "EPISODE",
    "EVAL_EPISODE",
    "METRIC_FIELD",
    "metrics_in",
    "metrics_text",
    "missing_metrics",
    "perhaps_misspelt",
    "reported",
]

EPISODE = "episode/"
"""Followed by the label of an episode metric: its mean, sum, ... over the latest training episodes."""
EVAL_EPISODE = "eval/episode/"
"""The same over the episodes of an evaluation."""
METRIC_FIELD = "episode_metric."
"""Followed by a name in infos: the array that holds its numbers, in a rollout and in a commit record."""


def metrics_in(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Name in infos -> the array of its numbers among these: of a commit record, or of an evaluation's outcome."""
    return {name.removeprefix(METRIC_FIELD): values for name, values in arrays.items() if name.startswith(METRIC_FIELD)}


def reported(metrics: Sequence[EpisodeMetric], numbers: Mapping[str, Array]) -> dict[str, float]:
    """Each metric over the episodes that have its number.

    Args:
        metrics: names in infos, with the kinds that are reported.
        numbers: name -> float64 ``[n]``: the number of each episode; NaN for an episode that does not have it.

    Returns:
        Label of the metric -> its mean, sum, ... A metric whose number no episode has is left out.
    """
    known = {name: values[~np.isnan(values)] for name, values in numbers.items()}
    return {metric.label: _of(metric, known[metric.name]) for metric in metrics if len(known[metric.name])}


def _of(metric: EpisodeMetric, values: Array) -> float:
    return AGGREGATIONS[metric.kind](values) if metric.share is None else quantile(values, metric.share)


def perhaps_misspelt(numbered: Mapping[str, bool]) -> list[str]:
    """The names that a user may have misspelt: those without a number.

    Scores against opponents are left out, because an opponent may never have been drawn.

    Args:
        numbered: each name -> whether it has a number.
    """
    has_opponents = ALL_SCORES in numbered
    return [name for name, has in numbered.items() if not has and not (has_opponents and name.startswith(SCORE))]


def missing_metrics(names: Sequence[str], episodes: int, *, latest: bool = False) -> str:
    """One line on metrics that none of so many episodes has had: a name may be misspelt.

    Args:
        names: in infos.
        episodes: all so far.
        latest: these were only the latest ones.
    """
    count = "1 episode" if episodes == 1 else f"{episodes:,} episodes"
    ended = f"the latest {count}" if latest else f"{count} so far"
    return f"no {', '.join(names)} in the last info of {ended}: check the names of --episode_metrics"


def metrics_text(values: Mapping[str, float], gap: str) -> str:
    """``won 0.83, laps:max 3``, with ``gap`` between two metrics."""
    return gap.join(f"{label} {value:,.3g}" for label, value in values.items())
