"""Shards of a table take as many rows each, although their environments differ tenfold in speed."""

import os
import time
from pathlib import Path

import gymnasium
import pytest

import penstock
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint

SLOW_S, FAST_S = 0.005, 0.0005


class Uneven(gymnasium.Wrapper):
    """A step of CartPole-v1 takes ten times as long in the first environment process."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = SLOW_S if os.environ.get("PENSTOCK_GROUP") == "env.0" else FAST_S

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)


@pytest.mark.nightly
def test_shards_take_as_many_rows_whatever_the_speed_of_their_environments(tmp_path: Path) -> None:
    settings = {
        "algo": "apex",
        "env": "tests.end_to_end.test_shard_balance:Uneven",
        "num_workers": 2,
        "num_envs": 4,
        "num_steps": 8,
        "min_rows": 256,
        "mini_batch_size": 16,
        "learners": 2,
        "exchange": "allreduce",
        "sync_mode": "non_blocking",
        "timesteps": 6000,
        "eval_episodes": 1,
        "log_dir": str(tmp_path),
    }
    run = penstock.train(penstock.from_mapping(settings), quiet=True).run_folder
    collected = load_checkpoint(find_checkpoint(run)).arrays["lane_collected"]
    shards = collected.reshape(2, -1).sum(axis=1)
    assert shards.sum() >= 6000
    assert abs(shards[0] - shards[1]) <= 0.05 * shards.mean()
