"""A resume with other settings. Settings that may change do, and stay changed. Others are refused in one line."""

from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from penstock.config.sources import from_toml
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 24, "mini_batch_size": 32, "eval_episodes": 1}
REPLAY = {"env": "Pendulum-v1", "algo": "sac", "min_rows": 96, "updates_per_step": 0.25, "hidden_sizes": (8, 8)}
BATCH = 24 * 4


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


def test_changes_by_flags_stay_in_the_config_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path, 2, num_workers=2, lr=1e-3).run_folder
    assert main(["resume", str(run), "--num_workers", "4", "--timesteps", str(4 * BATCH), "--lr", "1e-4"]) == 0
    assert main(["resume", str(run), "--timesteps", str(5 * BATCH)]) == 0
    config = from_toml(run / "config.toml")
    assert (config.run.num_workers, config.run.timesteps, config.algorithm.lr) == (4, 5 * BATCH, 1e-4)
    assert load_checkpoint(find_checkpoint(run)).manifest["steps"] == 5 * BATCH
    before = (run / "config.toml").read_text()
    capsys.readouterr()
    for flag, says in (
        ("--num_envs=8", "because its checkpoints hold the state of each lane"),
        ("--sync_mode=non_blocking", "because its checkpoints hold the lanes as this mode left them"),
        ("--time_steps=8", "unknown flag --time_steps; did you mean --timesteps"),
        ("--num_workers=3", "--num_workers 3 does not divide"),
    ):
        assert main(["resume", str(run), flag]) == 2
        assert says in capsys.readouterr().err
    assert (run / "config.toml").read_text() == before


def test_a_setting_as_a_keyword_is_told_where_it_belongs(tmp_path: Path) -> None:
    says = "resume takes run, checkpoint, .* not runtime; a setting of the run goes into settings"
    with pytest.raises(penstock.ConfigError, match=says):
        penstock.resume(tmp_path, runtime="ray")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {"backend": "eager", "policy_placement": "node"}),
        ({"sync_mode": "non_blocking"}, {"inference": "torch"}),
        (REPLAY, {"learners": 2, "runtime": "local"}),
        (REPLAY, {"table_bytes": 110_000}),
        ({**REPLAY, "sync_mode": "non_blocking"}, {"learners": 2, "runtime": "local", "reuse": 2.0}),
        (
            {**REPLAY, "sync_mode": "non_blocking", "learners": 2, "runtime": "local"},
            {"learners": 1, "runtime": "inline", "capacity": 500, "mini_batch_size": 16},
        ),
    ],
)
def test_a_run_goes_on_in_another_way(tmp_path: Path, first: dict[str, object], then: dict[str, object]) -> None:
    run = train(tmp_path, 4, **first).run_folder
    saved = load_checkpoint(find_checkpoint(run))
    result = penstock.resume(run, timesteps=8 * BATCH, settings=then, quiet=True)
    assert result.run_folder == run
    assert result.steps >= 8 * BATCH
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    assert int(arrays["lane_collected"].sum()) >= 8 * BATCH
    assert int(arrays["update"]) > saved.manifest["update"]
    if "applied" in arrays:
        assert int(arrays["applied"]) == int(arrays["gradient_steps"]) > int(saved.arrays["gradient_steps"]) > 0
