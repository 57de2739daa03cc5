"""What a whole run writes for TensorBoard besides its metrics."""

from pathlib import Path

import pytest

import penstock

SMALL = {
    "env": "tests.environments:ClockEnv",
    "num_steps": 20,
    "num_envs": 4,
    "num_workers": 1,
    "epochs": 1,
    "mini_batch_size": 40,
    "timesteps": 160,
    "save_interval": 1,
    "eval_episodes": 0,
    "runtime": "inline",
}


def test_a_run_shows_its_networks_once(tmp_path: Path) -> None:
    first = penstock.train({**SMALL, "log_dir": str(tmp_path)}, quiet=True)
    penstock.resume(first.run_folder, timesteps=240, quiet=True)
    contents = [path.read_bytes() for path in sorted(first.run_folder.glob("events.out.tfevents.*"))]
    assert len(contents) == 2
    for layer in (b"encoding/obs", b"actor/0.Linear", b"critic/4.Linear", b"value"):
        assert layer in contents[0]
    assert [content.count(b"_output_shapes") > 10 for content in contents] == [True, False]
    assert b"_output_shapes" not in contents[1]


@pytest.mark.parametrize("histograms", [True, False])
def test_a_run_shows_its_settings_and_its_parameters_at_each_checkpoint_if_asked(tmp_path: Path, histograms) -> None:
    settings = {**SMALL, "log_dir": str(tmp_path), "tensorboard_histograms": histograms}
    result = penstock.train(settings, quiet=True)
    (path,) = result.run_folder.glob("events.out.tfevents.*")
    content = path.read_bytes()
    assert b"mini_batch_size = 40\n" in content
    assert content.count(b"_hparams_/session_start_info") == 1
    for tag in (b"actor/0.weight", b"critic/0.bias"):
        assert (content.count(tag) >= 2) == histograms
