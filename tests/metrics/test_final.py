"""The final evaluation in words, and in the metrics of its run."""

from types import SimpleNamespace

from penstock.metrics.final import evaluated, log_final
from penstock.metrics.jsonl import JsonLines, read_reports

EVALUATION = SimpleNamespace(
    mean_return=10.0,
    std_return=1.0,
    mean_length=5.0,
    episodes=4,
    returns=(9.0, 11.0),
    metrics={"won": 0.75, "laps:max": 3.0},
    remark="",
)


def test_the_line_tells_the_episode_metrics() -> None:
    assert evaluated(EVALUATION) == "return 10.0 ± 1.0 over 4 greedy episodes, 5.0 steps each, won 0.75, laps:max 3"


def test_the_episode_metrics_are_metrics_of_the_run(tmp_path) -> None:
    JsonLines(tmp_path).close()
    log_final(tmp_path, EVALUATION, 3, 300, 1.0, axis="steps")
    (report,) = read_reports(tmp_path)
    assert report.values["eval/episode/won"] == 0.75
    assert report.values["eval/episode/laps:max"] == 3.0
    assert report.values["eval/final"] == 1.0
