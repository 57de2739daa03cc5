"""What the user is told of a run that failed. Nothing is trained here."""

from pathlib import Path

import pytest

import penstock
from penstock.saved_runs.leftovers import write_failed_card
from penstock.saved_runs.run_folder import RunFolder

SMALL = {"env": "CartPole-v1", "num_envs": 2, "num_steps": 8, "mini_batch_size": 8, "epochs": 1, "eval_episodes": 0}


@pytest.mark.parametrize(("runtime", "more"), [("local", ""), ("ray", ", with --address local if its cluster is gone")])
def test_a_run_on_a_cluster_is_continued_without_that_cluster_too(tmp_path: Path, runtime: str, more: str) -> None:
    settings = {**SMALL, "timesteps": 16, "runtime": "inline", "log_dir": str(tmp_path)}
    run = penstock.train(settings, quiet=True).run_folder
    config = penstock.from_mapping({**SMALL, "runtime": runtime})
    line = write_failed_card(RunFolder(run), config, "its cluster is lost")
    assert line == f"its last checkpoint, update 1, is good; to continue: penstock resume {run}{more}"
