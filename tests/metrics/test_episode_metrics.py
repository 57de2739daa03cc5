"""What is reported of the numbers of many episodes, against numbers worked out by hand."""

import numpy as np
import pytest

from penstock.config.episode_metrics import episode_metrics
from penstock.metrics.episode_metrics import reported

NAN = np.nan


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("mean", 4.0),  # (8 + 1 + 2 + 5) / 4
        ("sum", 16.0),
        ("min", 1.0),
        ("max", 8.0),
        # In order: 1, 2, 5, 8, at the shares 0, 1/3, 2/3, 1.
        ("p50", 3.5),  # in the middle between 2 and 5
        ("p90", 7.1),  # 5 + (0.9 - 2/3) / (1/3) * (8 - 5) = 5 + 0.7 * 3
        ("p1", 1.03),  # 1 + 0.01 / (1/3) * (2 - 1)
    ],
)
def test_each_kind_is_over_the_episodes_that_have_the_number(kind, value) -> None:
    numbers = {"laps": np.array([NAN, 8.0, 1.0, NAN, 2.0, 5.0])}
    (found,) = reported(episode_metrics((f"laps:{kind}",)), numbers).values()
    assert found == pytest.approx(value, rel=1e-12)


def test_the_metrics_of_one_number_have_labels_of_their_own() -> None:
    numbers = {"laps": np.array([1.0, 3.0]), "won": np.array([NAN, 1.0])}
    metrics = episode_metrics(("laps", "won:sum", "laps:max"))
    assert list(reported(metrics, numbers).items()) == [("laps", 2.0), ("won:sum", 1.0), ("laps:max", 3.0)]


def test_what_no_episode_has_is_not_reported_by_any_kind() -> None:
    metrics = episode_metrics([f"laps:{kind}" for kind in ("mean", "sum", "min", "max", "p95")])
    assert reported(metrics, {"laps": np.full(3, NAN)}) == {}
    assert reported(metrics, {"laps": np.zeros(0)}) == {}
