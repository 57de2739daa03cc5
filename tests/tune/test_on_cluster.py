"""Trials on several hosts of a Ray cluster, and trials that a script of the user's own drives."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from ray.cluster_utils import Cluster

from penstock.config.sources import from_mapping
from penstock.saved_runs.run_folder import list_runs
from penstock.tune.search import Search
from penstock.tune.tuning import tune
from tests.tune.small import SMALL

HOSTS = 3
HOST = {"num_cpus": 1, "object_store_memory": 100_000_000}
ROOT = Path(__file__).parents[2]


class NotesItsHost(gymnasium.Env):
    """Episodes of one step; notes in a folder on which host it was made.

    Args:
        folder: for one empty file, whose name is the number of the host's raylet and that of the process.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        # The environment is opened once more before Ray starts.
        if (raylet := os.environ.get("RAY_RAYLET_PID")) is not None:
            Path(folder, f"{raylet}-{os.getpid()}").touch()

    def reset(self, *, seed: int | None = None, options: object = None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: object):
        return np.zeros(1, np.float32), 1.0, True, False, {}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Hosts that share this machine's folders, with room for one trial each. The head has none."""
    made = Cluster(initialize_head=True, head_node_args={**HOST, "num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(HOSTS):
            made.add_node(**HOST)
        yield made.address
    finally:
        made.shutdown()


@pytest.mark.nightly  # Twenty seconds for Ray and its trials.
@pytest.mark.alone  # Ray gives itself half a minute to start.
@pytest.mark.parametrize("scheduler", ["random", "pbt"])
def test_trials_run_on_all_hosts(address: str, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Hosts on one machine share the folder of the code that Ray brings, and remove it from each other.
    monkeypatch.setattr("penstock.tune.tuning.modules_of", lambda *_: ())
    notes = tmp_path / "notes"
    notes.mkdir()
    env = {"env": f"{__name__}:NotesItsHost", "env_args": {"folder": str(notes)}}
    config = from_mapping({**SMALL, **env, "log_dir": str(tmp_path / "logs")})
    search = (Search("lr", "choice", (1e-3, 1e-2)),)
    trials, interrupted = tune(config, search, samples=HOSTS, scheduler=scheduler, address=address)
    assert not interrupted
    assert [trial.error for trial in trials] == [None] * HOSTS
    assert len({path.name.partition("-")[0] for path in notes.iterdir()}) == HOSTS
    assert all(list_runs(path) for path in (tmp_path / "logs/tune").iterdir())


@pytest.mark.nightly  # Ten seconds for Ray.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/tune.md").read_text("utf-8").partition("## Your own Tune script")[2]
    script = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert script is not None
    text = script[1].replace("100_000", "512").replace("num_samples=8", "num_samples=2")
    (tmp_path / "own.py").write_text(text)
    # Not on the hosts of the test before; and Ray Tune keeps results of its own at home.
    apart = {**os.environ, "RAY_ADDRESS": "local", "HOME": str(tmp_path)}
    argv = [sys.executable, "own.py"]
    done = subprocess.run(argv, cwd=tmp_path, env=apart, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len([run for trial in (tmp_path / "logs/mine").iterdir() for run in list_runs(trial)]) == 2
