"""The time of a whole command, on the smallest run, and the figures from five of them."""

import math
import os
from pathlib import Path

import pytest

from benchmarks.time_to_solve import CASES, Solved, bars, empty_caches, preset, solve


@pytest.mark.nightly  # Ten seconds. Shorter: the figures of such runs below.
def test_a_command_that_reaches_its_target_ends_by_it() -> None:
    # Any 100 episodes of CartPole average more than 5.
    run = solve(preset("cartpole", 5, 60, by_return=True), 0, ["--num_workers", "1"])
    assert run.seed == 0
    assert 0 < run.seconds < math.inf
    assert run.steps < 150_000, "it ended long before its number of steps"
    assert run.greedy_return > 5


@pytest.mark.nightly  # Shorter: the figures of such runs below.
def test_a_command_that_does_not_is_never_done() -> None:
    run = solve(preset("cartpole", 501, 60, by_return=True), 0, ["--timesteps", "2048", "--num_workers", "1"])
    assert run.seconds == math.inf
    assert run.entry()["seconds"] is None


@pytest.mark.nightly  # Ten seconds. Shorter: the figures of such runs below.
def test_a_command_that_ends_by_its_timesteps_is_judged_by_greedy_episodes() -> None:
    few = ["--timesteps", "300", "--num_workers", "1"]
    assert solve(preset("dqn-cartpole", 5, 60), 0, few).seconds < math.inf
    assert solve(preset("dqn-cartpole", 501, 60), 0, few).seconds == math.inf


def test_the_median_of_the_seconds_and_every_seed_afterwards() -> None:
    case = CASES[0]
    runs = [Solved(seed, seconds, 1, 480) for seed, seconds in enumerate((1.2, math.inf, 1.4, 1.6, 1.3))]
    assert [(bar.value, bar.holds) for bar in bars(case, runs)] == [(1.4, True), (5, True)]
    runs[0] = runs[0]._replace(greedy_return=474.9)
    assert [bar.holds for bar in bars(case, runs)] == [True, False]


def test_caches_are_empty_and_given_back(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with empty_caches():
        assert not any(Path(os.environ["XDG_CACHE_HOME"]).iterdir())
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == os.environ["XDG_CACHE_HOME"]
    assert os.environ["XDG_CACHE_HOME"] == "/somewhere"
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
