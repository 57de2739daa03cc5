"""Without lock step a run shows how many rows its slowest environment process gives."""

import pytest

import penstock
from penstock.metrics.report import SHARE_MIN, SHARE_MIN_ENV

SLEEPING = {
    "algo": "impala",
    # 1, 2.2, 4.6 and 10 ms a step, which is a speed of 1, 0.46, 0.22 and 0.1. The last one has 0.22 of their mean.
    "env": "benchmarks.sleeping:lasting",
    "seed": 0,
    "num_envs": 4,
    "num_workers": 4,
    "num_steps": 4,
    "mini_batch_size": 4,
    "hidden_sizes": (8, 8),
    "eval_episodes": 0,
}


@pytest.mark.parametrize("sync_mode", ["non_blocking", "blocking"])
def test_a_slow_process_is_shown_by_its_share_of_rows(tmp_path, sync_mode: str) -> None:
    timesteps = 1600 if sync_mode == "non_blocking" else 320
    settings = {**SLEEPING, "sync_mode": sync_mode, "timesteps": timesteps, "log_dir": str(tmp_path)}
    metrics = penstock.read_metrics(penstock.train(settings, quiet=True).run_folder)
    if sync_mode == "blocking":
        # Each process gives a rollout in each turn.
        assert SHARE_MIN not in metrics.names()
        return
    # On a busy machine all processes wait for cores as well, and another one may fall behind for a moment.
    assert metrics.query(SHARE_MIN_ENV, "quantile", q=0.5) == 3
    assert 0.0 < metrics.query(SHARE_MIN, "quantile", q=0.5) < 0.9
