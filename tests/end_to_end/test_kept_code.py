"""A run folder knows which code of the user's ran, at each launch."""

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import main
from penstock.saved_runs import repository
from tests.saved_runs.test_repository import git, head

BATCH = 24 * 4
SMALL = {"num_envs": 4, "num_workers": 1, "num_steps": 24, "mini_batch_size": 32, "eval_episodes": 1}
MODULE = """
import gymnasium

def make():
    return gymnasium.make("CartPole-v1")

def paid(obs, reward):
    return {rate} * reward
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's module, in a repository with one commit."""
    monkeypatch.setattr(repository, "LIMIT_S", 60.0)
    made = tmp_path / "own"
    made.mkdir()
    (made / "balancing.py").write_text(MODULE.format(rate=1))
    git(made, "init", "-q")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "first")
    monkeypatch.chdir(made)
    return made


def code(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["code"] for line in (run / "launches.jsonl").read_text().splitlines()]


def test_each_launch_keeps_the_modules_that_it_ran_and_their_commit(own: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "env": "balancing:make", "reward": "balancing:paid", "log_dir": str(tmp_path / "logs")}
    run = penstock.train({**settings, "timesteps": 2 * BATCH}, quiet=True).run_folder
    (own / "balancing.py").write_text(MODULE.format(rate=2))
    assert main(["resume", str(run), "--timesteps", str(3 * BATCH)]) == 0
    first, second = code(run)
    assert [one["files"] for one in (first, second)] == [["balancing.py"]] * 2
    for one, rate in ((first, 1), (second, 2)):
        assert (run / one["folder"] / "balancing.py").read_text() == MODULE.format(rate=rate)
        (state,) = one["repositories"]
        assert (state["path"], state["commit"], state["changed"]) == (str(own.resolve()), head(own), rate == 2)
        assert one["notes"] == []
    assert "+    return 2 * reward" in (run / second["folder"] / "own.diff").read_text()
    row = f"| Own code | commit {head(own)[:12]} with changes; kept in `{second['folder']}` |"
    assert row in (run / "README.md").read_text()


def test_a_run_of_what_is_installed_has_no_code_of_its_own(tmp_path: Path) -> None:
    settings = {**SMALL, "env": "CartPole-v1", "runtime": "inline", "log_dir": str(tmp_path), "timesteps": BATCH}
    run = penstock.train(settings, quiet=True).run_folder
    assert code(run) == [None]
    assert not (run / "code").exists()
    assert "Own code" not in (run / "README.md").read_text()
