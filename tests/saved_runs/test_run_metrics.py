"""Metrics of a run, read as series, as numbers, and by the command line."""

import json
import math
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.config.commands import MetricsOptions
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, RunFolderError
from penstock.metrics.jsonl import JsonLines
from penstock.metrics.report import Report
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.run_metrics import KINDS, QUANTILE


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.fresh(tmp_path, "CartPole-v1", "ppo")
    folder.make()
    folder.write_config(from_mapping({"env": "CartPole-v1"}))
    return folder


@pytest.fixture
def told(run: RunFolder) -> RunFolder:
    """A run of four updates. Its losses are 4, 1, NaN and 7."""
    log = JsonLines(run.path)
    for update, loss in enumerate((4.0, 1.0, math.nan, 7.0), 1):
        speed = {"throughput/steps_per_second": 100.0 * update}
        log.write(Report(update, 10 * update, 0.5 * update, {"loss/policy": loss, **speed}))
    log.write(Report(4, 40, 2.0, {"eval/return_mean": -3.0}))
    log.close()
    return run


def test_a_series_has_the_lines_that_have_the_metric(told: RunFolder) -> None:
    series = penstock.read_metrics(told.path).series("loss/policy")
    assert series.updates.tolist() == [1, 2, 4]
    assert series.steps.tolist() == [10, 20, 40]
    assert series.seconds.tolist() == [0.5, 1.0, 2.0]
    assert series.values.tolist() == [4.0, 1.0, 7.0]
    assert [part.dtype for part in series] == [np.int64, np.int64, np.float64, np.float64]


@pytest.mark.parametrize(
    ("kind", "asked", "number"),
    [
        ("mean", {}, 4.0),  # (4 + 1 + 7) / 3
        ("sum", {}, 12.0),
        ("min", {}, 1.0),
        ("max", {}, 7.0),
        ("last", {}, 7.0),
        ("quantile", {"q": 0.5}, 4.0),
        ("quantile", {"q": 0.25}, 2.5),  # half of the way from 1 to 4
        ("sum", {"last": 2}, 8.0),
        ("quantile", {"q": 0.5, "last": 2}, 4.0),
        ("mean", {"last": 9}, 4.0),
    ],
)
def test_many_lines_become_one_number(told: RunFolder, kind: str, asked: dict, number: float) -> None:
    assert penstock.read_metrics(str(told.path)).query("loss/policy", kind, **asked) == number


def test_names_are_sorted_and_can_be_had_by_level(told: RunFolder) -> None:
    metrics = penstock.read_metrics(told.path)
    assert metrics.names() == ("eval/return_mean", "loss/policy", "throughput/steps_per_second")
    found = {level: metrics.names(level=level) for level in ("framework", "algorithm", "task")}
    assert found == {
        "framework": ("throughput/steps_per_second",),
        "algorithm": ("loss/policy",),
        "task": ("eval/return_mean",),
    }


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda metrics: metrics.series("loss/polciy"), r"no metric 'loss/polciy'; did you mean loss/policy\?"),
        (lambda metrics: metrics.series("xyz"), r"no metric 'xyz'; penstock metrics .* lists them$"),
        (lambda metrics: metrics.query("loss/policy", "median"), r"kind is 'median'; wanted one of last, mean, "),
        (lambda metrics: metrics.query("loss/policy", "quantil", q=0.5), r"kind is 'quantil'; .* mean quantile\?$"),
        (lambda metrics: metrics.query("loss/policy", "quantile"), r"q of a quantile is None; wanted a number from 0"),
        (lambda metrics: metrics.query("loss/policy", "quantile", q=1.5), r"q of a quantile is 1\.5; wanted"),
        (lambda metrics: metrics.query("loss/policy", "mean", q=0.5), r"leave it out for mean$"),
        (lambda metrics: metrics.query("loss/policy", last=0), r"last takes a whole number of at least 1, not 0"),
        (lambda metrics: metrics.names(level="business"), r"level is 'business'; wanted one of framework, "),
    ],
)
def test_a_mistake_is_answered_with_what_may_be_given(told: RunFolder, ask, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ask(penstock.read_metrics(told.path))


def test_a_run_without_a_line_is_refused(run: RunFolder) -> None:
    for _ in range(2):
        with pytest.raises(RunFolderError, match=r"has not reported anything yet$"):
            penstock.read_metrics(run.path)
        run.metrics_path.touch()


def test_the_command_prints_a_table(told: RunFolder, capsys) -> None:
    assert main(["metrics", str(told.path)]) == 0
    header, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == ["metric", "level", "lines", "last", "mean", "min", "max"]
    assert rows == [
        ["eval/return_mean", "task", "1", "-3", "-3", "-3", "-3"],
        ["loss/policy", "algorithm", "3", "7", "4", "1", "7"],
        ["throughput/steps_per_second", "framework", "4", "400", "250", "100", "400"],
    ]


def test_the_command_prints_one_number_and_json(told: RunFolder, capsys) -> None:
    line = ["metrics", told.name, "loss/policy", "--kind", "quantile", "--q", "0.5", "--last", "2"]
    assert main([*line, "--log_dir", str(told.path.parent)]) == 0
    assert [row.split() for row in capsys.readouterr().out.splitlines()] == [
        ["metric", "level", "lines", "quantile"],
        ["loss/policy", "algorithm", "2", "4"],
    ]
    assert main(["metrics", str(told.path), "--level", "framework", "--kind", "sum", "--json"]) == 0
    told_json = json.loads(capsys.readouterr().out)
    assert told_json == {"throughput/steps_per_second": {"level": "framework", "lines": 4, "sum": 1000.0}}
    assert main(["metrics", str(told.path), "loss/policy", "--level", "task"]) == 2
    assert "loss/policy is a metric of level algorithm; leave out level task" in capsys.readouterr().err


def test_the_command_line_knows_every_kind() -> None:
    words = [word for member in get_args(get_type_hints(MetricsOptions)["kind"]) for word in get_args(member)]
    assert words == [*KINDS, QUANTILE]
