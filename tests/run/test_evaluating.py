"""What `evaluate` refuses before it opens a run folder. The home of the user: for every call on a run folder."""

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.errors import ConfigError, RunFolderError


def test_a_number_of_episodes_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match=r"^episodes of evaluate takes a whole number of at least 1, not 0$"):
        penstock.evaluate("nowhere", episodes=0)


def test_a_number_of_processes_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match=r"^num_workers of evaluate takes a whole number of at least 1, not 0$"):
        penstock.evaluate("nowhere", num_workers=0)


@pytest.mark.parametrize("seed", ["a", 1.5, -1, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigError, match=r"^seed of evaluate takes"):
        penstock.evaluate("nowhere", seed=seed)


@pytest.mark.parametrize("call", [penstock.evaluate, penstock.resume, penstock.read_metrics, penstock.load_policy])
def test_a_run_is_given_by_a_path(call: Callable[[Any], Any]) -> None:
    with pytest.raises(penstock.UsageError, match="None"):
        call(None)


@pytest.mark.parametrize("call", [penstock.load_policy, penstock.evaluate, penstock.resume])
def test_a_tilde_stands_for_the_home_of_the_user(tmp_path, monkeypatch, call) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RunFolderError, match=f"^{tmp_path}/nowhere is no run folder"):
        call("~/nowhere")
