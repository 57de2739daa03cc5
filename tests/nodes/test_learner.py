"""LearnerNode and an update that breaks the parameters."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import BadDataError
from penstock.experiments.checkpoints import list_checkpoints, load_checkpoint

SMALL = {"num_steps": 8, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 4, "runtime": "inline"}


def test_parameters_that_are_no_numbers_are_never_committed(tmp_path: Path) -> None:
    wrong = {"env": "CartPole-v1", "lr": 1e38, "timesteps": 10 * 16, "save_interval": 1, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=r"update \d+ made the parameters of actor infinite or NaN"):
        penstock.train({**SMALL, **wrong}, quiet=True)
    for path in list_checkpoints(next(tmp_path.iterdir())):
        arrays = load_checkpoint(path).arrays
        assert np.isfinite(arrays["actor"]).all()
        assert np.isfinite(arrays["critic"]).all()
