import math

import matplotlib.image
import numpy as np
import pytest

from penstock.errors import RunFolderError, UsageError
from penstock.metrics.jsonl import JsonLines
from penstock.metrics.report import Report
from penstock.saved_runs.curves import Run, curve, read_runs, smoothed
from penstock.saved_runs.plots import draw, plot


def report(update):
    values = {
        "rollout/return_mean": -1000.0 + update,
        "loss/policy": -0.01,
        "loss/value": 10.0,
        "loss/entropy": 1.0,
        "loss/approx_kl": 0.01,
        "throughput/steps_per_second": 1e4,
        "idle/env.0": 0.2,
        "idle/env.1": 0.4,
        "idle/learner": 0.5,
    }
    return Report(update, update * 100, float(update), values)


def make_run(path, updates):
    path.mkdir(parents=True)
    (path / "config.toml").write_text("")
    log = JsonLines(path)
    for update in range(1, updates + 1):
        log.write(report(update))
    log.close()


def test_several_runs_are_compared_in_one_picture(tmp_path):
    make_run(tmp_path / "logs" / "first", 50)
    make_run(tmp_path / "logs" / "second é", 70)
    make_run(tmp_path / "logs" / "$third_{", 9)
    make_run(tmp_path / "logs" / "fourth$", 9)
    (tmp_path / "logs" / "not a run").mkdir()
    path = plot(tmp_path / "logs", save=True, smooth=0.1)
    assert path == tmp_path / "logs" / "curves.png"
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[0] > 800
    assert pixels[..., :3].std() > 0.05, "the picture is blank"


def test_one_run_folder_is_drawn_into_itself(tmp_path):
    make_run(tmp_path / "run", 5)
    assert plot(tmp_path / "run", save=True, smooth=0.0) == tmp_path / "run" / "curves.png"


def test_the_legend_names_every_run_and_each_panel_its_metric():
    runs = [Run(name, [report(update) for update in range(1, 9)]) for name in ("one", "two")]
    figure = draw(runs, 0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    titles = {axis.get_title(loc="left") or axis.get_title() for axis in figure.axes}
    for title in ("Return", "Policy loss", "Value loss", "Entropy", "Throughput", "Idle time"):
        assert any(shown.startswith(title) for shown in titles), title


def test_a_run_that_has_reported_once_or_without_a_metric_is_drawn():
    draw([Run("once", [report(1)]), Run("odd", [Report(1, 1, 1.0, {})])], 0.03)


def test_no_run_is_one_line(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    for folder, says in ((tmp_path, "has reported anything yet"), (tmp_path / "nowhere", "there is no folder")):
        with pytest.raises(RunFolderError, match=says):
            plot(folder, save=True, smooth=0.0)


def test_without_a_window_system_the_line_says_what_to_type(tmp_path, monkeypatch):
    make_run(tmp_path / "run", 5)
    monkeypatch.setattr("matplotlib.get_backend", lambda: "agg")
    with pytest.raises(UsageError, match="--save_fig True"):
        plot(tmp_path, save=False, smooth=0.0)


def test_numbers_that_are_none_or_not_finite_are_left_out():
    reports = [Report(n, n, 0.0, {"x": value}) for n, value in enumerate([1.0, math.nan, math.inf, 4.0])]
    found = curve(Run("r", [*reports, Report(9, 9, 0.0, {})]), lambda report: report.values.get("x"))
    assert found.steps.tolist() == [0.0, 3.0]
    assert found.values.tolist() == [1.0, 4.0]


def test_smoothing_averages_around_each_point():
    values = np.array([0.0, 3.0, 6.0, 9.0, 0.0])
    # 5 points, share 0.4: 2 points, so one on each side; (0+3)/2, (0+3+6)/3, (3+6+9)/3, (6+9+0)/3, (9+0)/2
    assert smoothed(values, 0.4).tolist() == pytest.approx([1.5, 3.0, 6.0, 5.0, 4.5])
    assert smoothed(values, 0.0) is values
    assert smoothed(np.full(100, 7.0), 0.3).tolist() == pytest.approx([7.0] * 100)


def test_runs_are_read_oldest_first_without_silent_ones(tmp_path):
    make_run(tmp_path / "b", 1)
    make_run(tmp_path / "a", 2)
    make_run(tmp_path / "silent", 0)
    assert {run.name for run in read_runs(tmp_path)} == {"a", "b"}
