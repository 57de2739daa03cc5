"""The order of the broad comparison's runs and its page. Nothing is trained here."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from benchmarks.learning import broad, broad_plan
from benchmarks.learning.broad_page import rows, text, write_page
from benchmarks.learning.broad_plan import Run, runs, tasks
from benchmarks.learning.pairs import OURS, PEER

TASKS = {"A-v0": {"ppo": 1000, "dsac": 500}, "B-v0": {"sac": 2000}}


def test_every_task_is_seen_once_before_any_is_seen_twice() -> None:
    order = [(run.seed, run.task, run.algo, run.side) for run in runs(TASKS)]
    first = [(0, "A-v0", "ppo", OURS), (0, "A-v0", "ppo", PEER), (0, "A-v0", "dsac", OURS)]
    assert order[:5] == [*first, (0, "B-v0", "sac", OURS), (0, "B-v0", "sac", PEER)]
    # The peer has no DSAC, and DSAC has one seed.
    assert [seed for seed, _, algo, _ in order if algo == "dsac"] == [0]
    assert [seed for seed, _ in groupby(order, lambda run: run[0])] == [0, 1, 2]


def test_every_run_has_a_result_of_its_own() -> None:
    listed = list(runs(tasks()))
    assert len({run.path() for run in listed}) == len(listed)


def test_every_listed_task_that_gymnasium_has_exists() -> None:
    for task in tasks():
        if ":" not in task:
            assert task in gymnasium.registry


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(broad_plan, "RESULTS", tmp_path)
    return tmp_path


def done(run: Run, mean_return: float, beyond: int = 0, **settings: Any) -> None:
    run.path().parent.mkdir(parents=True, exist_ok=True)
    curve = {
        "steps": [run.timesteps // 2, run.timesteps + beyond],
        "seconds": [1.0, 2.0],
        "returns": [0.0, mean_return],
    }
    result = {"commit": "0123456789ab", "date": "2026-01-02", "seed": run.seed, "mean_return": mean_return}
    result["settings"] = run.pair().settings()[run.side] | settings
    run.path().write_text(json.dumps(result | {"curve": curve}))


def test_the_page_says_what_is_there_and_what_is_open(results: Path) -> None:
    planned = list(runs(TASKS))
    for run in planned:
        if run.algo == "ppo":
            done(run, {OURS: 10.0, PEER: 20.0}[run.side] + run.seed)
    page = text(rows(planned))
    (row,) = [line for line in page.splitlines() if line.startswith("| A-v0")]
    # Three seeds: their mean, and the interval of means of three drawn with replacement.
    both = "11.0 [10.0, 12.0] **behind** on seeds 0, 1, 2 | 21.0 [20.0, 22.0]"
    assert row == f"| A-v0 | ppo | 1,000 | {both} | 6 of 6 | 2026-01-02 | `0123456` |"
    assert "6 of 13 runs are there." in page
    assert "Not begun: dsac on A-v0, sac on B-v0." in page
    write_page(results, planned)
    assert (results / "README.md").read_text() == page
    assert (results / "curves.png").stat().st_size > 0


def test_one_seed_has_no_interval_and_an_algorithm_that_the_peer_has_not_stands_alone(results: Path) -> None:
    planned = list(runs(TASKS))
    for run in planned:
        if run.algo == "dsac" or (run.algo, run.side, run.seed) == ("sac", OURS, 0):
            done(run, 5.0)
    page = text(rows(planned))
    assert "| A-v0 | dsac | 500 | 5.0 | has none | 1 of 1 |" in page
    assert "| B-v0 | sac | 2,000 | 5.0 | open | 1 of 6 |" in page


def test_two_seeds_show_their_values_and_only_shared_seeds_are_compared(results: Path) -> None:
    returns = {(OURS, 0): -83.1, (OURS, 1): -99.8, (PEER, 0): -84.2}
    planned = list(runs(TASKS))
    for run in planned:
        if run.algo == "ppo" and (run.side, run.seed) in returns:
            done(run, returns[run.side, run.seed])
    # Ours is better on seed 0, which both have: not behind, although the mean of both seeds of ours is lower.
    assert "| A-v0 | ppo | 1,000 | -91.4 (-83.1, -99.8) | -84.2 | 3 of 6 |" in text(rows(planned))
    done(next(run for run in planned if run.side == PEER), -83.0)
    assert "-91.4 (-83.1, -99.8) **behind** on seed 0 | -83.0 |" in text(rows(planned))


def test_the_steps_of_a_last_batch_that_is_whole_are_named(results: Path) -> None:
    planned = list(runs(TASKS))
    for run in planned:
        if run.algo in {"ppo", "sac"} and run.seed == 0:
            done(run, 1.0, beyond=24 if (run.algo, run.side) == ("ppo", OURS) else 0)
    page = text(rows(planned))
    assert "| A-v0 | ppo | 1,000 (1,024) | 1.0 | 1.0 |" in page
    assert "| B-v0 | sac | 2,000 | 1.0 | 1.0 |" in page


def test_a_row_whose_sides_share_no_seed_is_not_behind(results: Path) -> None:
    planned = list(runs(TASKS))
    for run in planned:
        if (run.algo, run.side, run.seed) in {("sac", OURS, 1), ("sac", PEER, 0)}:
            done(run, float(-run.seed))
    assert "behind**" not in text(rows(planned)).partition("|---")[2]


def test_a_result_of_another_default_is_open_again_and_not_on_the_page(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = list(runs(TASKS))
    ours = next(run for run in planned if (run.algo, run.side) == ("sac", OURS))
    theirs = next(run for run in planned if (run.algo, run.side) == ("sac", PEER))
    done(ours, 5.0, gamma=0.5)
    done(theirs, 6.0, timesteps=1)
    assert (ours.result(), ours.outdated()) == (None, {"gamma": (0.5, 0.99)})
    assert (theirs.result(), theirs.outdated()) == (None, {"timesteps": (1, 2000)})
    page = text(rows(planned))
    assert "0 of 13 runs are there." in page
    assert "- sac on B-v0, penstock, seed 0: gamma was 0.5 and is 0.99" in page
    trained: list[Run] = []
    monkeypatch.setattr(broad, "RESULTS", results)
    monkeypatch.setattr(broad, "tasks", lambda: TASKS)
    monkeypatch.setattr(broad, "train", trained.append)
    monkeypatch.setattr("sys.argv", ["broad", "--algo", "sac", "--runs", "2"])
    assert broad.main() == 0
    assert trained == [ours, theirs]


def test_a_setting_that_a_result_does_not_name_leaves_it_as_it_is(results: Path) -> None:
    run = next(run for run in runs(TASKS) if run.algo == "sac")
    done(run, 5.0, a_setting_of_the_past=1)
    stored = json.loads(run.path().read_text())
    del stored["settings"]["gamma"]
    run.path().write_text(json.dumps(stored))
    assert run.result() == stored


def test_a_page_without_results_is_written(results: Path) -> None:
    write_page(results, list(runs(TASKS)))
    assert "0 of 13 runs are there." in (results / "README.md").read_text()


def test_the_runs_of_one_side_and_of_some_algorithms_can_be_taken_alone(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Run] = []
    monkeypatch.setattr(broad, "RESULTS", results)
    monkeypatch.setattr(broad, "tasks", lambda: TASKS)
    monkeypatch.setattr(broad, "train", trained.append)
    monkeypatch.setattr("sys.argv", ["broad", "--algo", "ppo", "sac", "--side", OURS, "--runs", "3"])
    assert broad.main() == 0
    asked = [("A-v0", "ppo", 0), ("B-v0", "sac", 0), ("A-v0", "ppo", 1)]
    assert [(run.task, run.algo, run.seed) for run in trained] == asked
    assert {run.side for run in trained} == {OURS}
