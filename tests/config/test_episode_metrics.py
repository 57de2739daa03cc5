"""What ``--episode_metrics`` names: numbers in infos, and the kinds that are reported of them."""

import pytest

from penstock.config.episode_metrics import KINDS, EpisodeMetric, check_episode_metrics, episode_metrics, info_names
from penstock.config.flags import config_from_arguments
from penstock.errors import ConfigError
from penstock.metrics.aggregation import AGGREGATIONS


def test_a_kind_follows_the_last_colon_and_is_a_mean_if_there_is_none():
    metrics = episode_metrics(("won", "laps:max", "laps", "best lap:mean", "speed:km/h:p95"))
    assert metrics == (
        EpisodeMetric("won", "mean"),
        EpisodeMetric("laps", "max"),
        EpisodeMetric("laps", "mean"),
        EpisodeMetric("best lap", "mean"),
        EpisodeMetric("speed:km/h", "p95"),
    )
    assert [metric.label for metric in metrics] == ["won", "laps:max", "laps", "best lap", "speed:km/h:p95"]
    assert [metric.share for metric in metrics] == [None, None, None, None, 0.95]


def test_a_number_of_which_much_is_reported_is_read_once():
    assert info_names(("laps:max", "won", "laps", "laps:p5")) == ("laps", "won")
    assert info_names(None) == ()


def test_each_kind_can_be_found():
    assert set(KINDS) == set(AGGREGATIONS)
    check_episode_metrics([f"laps:{kind}" for kind in (*KINDS, "p1", "p50", "p99")])


@pytest.mark.parametrize("kind", ["maximum", "", " max", "p0", "p100", "p9.5", "p05", "P95", "last"])
def test_an_unknown_kind_is_refused_with_those_that_there_are(kind):
    says = rf"^--episode_metrics laps:{kind}: there is no kind '{kind}'; give mean, sum, min, max, or a quantile from "
    with pytest.raises(ConfigError, match=says + rf"p1 to p99; .* give laps:{kind}:mean$"):
        check_episode_metrics(("won", f"laps:{kind}"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("laps", "laps:mean"), "^--episode_metrics names laps twice; give each name once$"),
        (("laps:max", "won", "laps:max"), "^--episode_metrics names laps:max twice; give each name once$"),
        (("a:max:mean", "a:max"), "^--episode_metrics names a:max twice; give each name once$"),
        ((":max",), "^--episode_metrics :max: there is no name before the kind; give NAME:max$"),
    ],
)
def test_what_would_be_reported_twice_or_has_no_name_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        check_episode_metrics(given)


def test_the_command_line_takes_kinds():
    config = config_from_arguments(["--env", "X", "--episode_metrics", "won, laps:max", "--episode_metrics", "t:p95"])
    assert config.run.episode_metrics == ("won", "laps:max", "t:p95")
