"""Episode metrics: numbers of the user's own in the info of an episode's last step. Their names, and their means.

Reads no info: `penstock.envs.last_infos` does.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.config.opponents import ALL_SCORES, SCORE
from penstock.types import Array

__all__ = [
    "EPISODE",
    "EVAL_EPISODE",
    "METRIC_FIELD",
    "means_of",
    "metrics_in",
    "metrics_text",
    "missing_metrics",
    "wanting",
]

EPISODE = "episode/"
"""Followed by the name of an episode metric: its mean over the latest training episodes."""
EVAL_EPISODE = "eval/episode/"
"""The same: its mean over the episodes of an evaluation."""
METRIC_FIELD = "episode_metric."
"""Followed by the name of an episode metric: the array that holds it, in a rollout and in a commit record."""


def metrics_in(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Name of each episode metric -> its array among these: of a commit record, or of an evaluation's outcome."""
    return {name.removeprefix(METRIC_FIELD): values for name, values in arrays.items() if name.startswith(METRIC_FIELD)}


def means_of(numbers: Mapping[str, Array]) -> dict[str, float]:
    """The mean of each metric over the episodes that have it.

    Args:
        numbers: name -> float64 ``[n]``: the metric of each episode; NaN for an episode that does not have it.

    Returns:
        Name -> mean. A metric that no episode has is left out.
    """
    known = {name: values[~np.isnan(values)] for name, values in numbers.items()}
    return {name: float(values.mean()) for name, values in known.items() if len(values)}


def wanting(numbered: Mapping[str, bool]) -> list[str]:
    """Names of the metrics without a number that a user may have misspelt.

    Scores are none of them: an opponent may never have been drawn.

    Args:
        numbered: name of each metric -> whether it has a number.
    """
    has_opponents = ALL_SCORES in numbered
    return [name for name, has in numbered.items() if not has and not (has_opponents and name.startswith(SCORE))]


def missing_metrics(names: Sequence[str], episodes: int, *, latest: bool = False) -> str:
    """One line on metrics that none of so many episodes has had: a name may be misspelt.

    Args:
        names: of the metrics.
        episodes: all so far.
        latest: these were only the latest ones.
    """
    count = "1 episode" if episodes == 1 else f"{episodes:,} episodes"
    ended = f"the latest {count}" if latest else f"{count} so far"
    return f"no {', '.join(names)} in the last info of {ended}: check the names of --episode_metrics"


def metrics_text(means: Mapping[str, float], gap: str) -> str:
    """``won 0.83, laps 2.5``, with ``gap`` between two metrics."""
    return gap.join(f"{name} {mean:,.3g}" for name, mean in means.items())
