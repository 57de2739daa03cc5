"""A run begins with the policy of another run: ``--begin_with``."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import penstock
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.episodes import KeptEpisode, write_episode
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays

pytestmark = pytest.mark.usefixtures("shared_templates")

SYMBOLS = np.eye(4, dtype=np.float32)
SMALL = {
    "env": "tests.environments:IdentityEnv",
    "num_envs": 4,
    "num_workers": 1,
    "hidden_sizes": (16,),
    "num_steps": 16,
    "eval_episodes": 0,
    "runtime": "inline",
}
STILL = {**SMALL, "algo": "ppo", "lr": 0.0, "timesteps": 64, "backend": "fused", "seed": 7}
"""Takes steps of length 0."""


def arrays_of(run: Path, checkpoint: str | None = None) -> Arrays:
    found: Arrays = safetensors.numpy.load_file(find_checkpoint(run, checkpoint) / "state.safetensors")
    return found


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that was cloned from one that names each symbol."""
    folder = tmp_path_factory.mktemp("clone")
    numbers = np.random.default_rng(0)
    for number in range(1, 11):
        shown = numbers.integers(0, 4, 41)
        episode = KeptEpisode("s", {"obs": SYMBOLS[shown]}, shown[:-1], np.ones(40, np.float32), True, vanished=False)
        write_episode(folder / "kept", number, episode)
    told = {"algo": "bc", "demonstrations": str(folder / "kept"), "timesteps": 640, "lr": 3e-3, "save_interval": 5}
    return penstock.train({**SMALL, **told, "log_dir": str(folder / "runs")}, quiet=True).run_folder


def test_imitation_first_then_rewards(clone: Path, tmp_path: Path) -> None:
    told = {**STILL, "lr": 3e-4, "begin_with": str(clone), "eval_episodes": 5, "log_dir": str(tmp_path)}
    found = penstock.train(told, quiet=True)
    assert found.evaluation is not None
    assert found.evaluation.mean_return == pytest.approx(10.0, abs=0.2)
    log = RunFolder(found.run_folder).log_path.read_text()
    assert f"begins with actor, critic of {clone}, {find_checkpoint(clone).name}" in log


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"backend": "eager", "algo": "a2c"},
        {"sync_mode": "non_blocking", "runtime": "local"},
        # Eight seconds each. Shorter: the others.
        *(
            pytest.param({"learners": 2, "runtime": "local", "num_workers": 2, **rule}, marks=pytest.mark.nightly)
            for rule in ({}, {"exchange": "parameter_server"}, {"exchange": "hogwild", "sync_mode": "non_blocking"})
        ),
        pytest.param({"algo": "a3c", "runtime": "local", "num_workers": 2}, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_every_learner_begins_with_it(clone: Path, tmp_path: Path, more: dict[str, object]) -> None:
    run = penstock.train({**STILL, **more, "begin_with": str(clone), "log_dir": str(tmp_path)}, quiet=True).run_folder
    before, after = arrays_of(clone), arrays_of(run)
    for name in ("actor", "critic"):
        assert after[name].tobytes() == before[name].tobytes()
    assert after["steps"] == 64
    assert after["update"] >= 1


def test_a_run_is_found_by_its_name(clone: Path) -> None:
    found = []
    for name in (clone.name, "latest", f"{clone.name}@latest"):
        told = {**STILL, "begin_with": name, "log_dir": str(clone.parent)}
        found.append(penstock.train(told, run_name=f"begun_{len(found)}", quiet=True).run_folder)
    begun = [RunFolder(run).read_config().run.begin_with for run in found]
    assert begun == [str(clone), str(found[0]), f"{clone}@latest"]


def test_another_checkpoint_than_the_latest(clone: Path, tmp_path: Path) -> None:
    first = list_checkpoints(clone)[0].name
    run = penstock.train({**STILL, "begin_with": f"{clone}@{first}", "log_dir": str(tmp_path)}, quiet=True).run_folder
    assert arrays_of(run)["actor"].tobytes() == arrays_of(clone, first)["actor"].tobytes()
    assert arrays_of(run)["actor"].tobytes() != arrays_of(clone)["actor"].tobytes()


def test_once_it_has_begun_the_other_run_is_not_needed(clone: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(clone, other)
    run = penstock.train({**STILL, "begin_with": str(other), "log_dir": str(tmp_path)}, quiet=True).run_folder
    shutil.rmtree(other)
    found = penstock.resume(run, timesteps=128, quiet=True)
    assert found.steps == 128
    assert arrays_of(run)["actor"].tobytes() == arrays_of(clone)["actor"].tobytes()
    with pytest.raises(penstock.UsageError, match="a resumed run keeps its own value"):
        penstock.resume(run, timesteps=192, settings={"begin_with": str(clone)}, quiet=True)


def test_targets_begin_equal_to_their_networks(tmp_path: Path) -> None:
    told = {**SMALL, "algo": "dqn", "timesteps": 200, "min_rows": 50, "mini_batch_size": 16, "target_every": 7}
    first = penstock.train({**told, "log_dir": str(tmp_path)}, quiet=True).run_folder
    still = {**told, "lr": 0.0, "target_every": 10_000, "begin_with": str(first)}
    run = penstock.train({**still, "log_dir": str(tmp_path / "second")}, quiet=True).run_folder
    actor = arrays_of(first)["actor"].tobytes()
    assert arrays_of(first)["target.actor"].tobytes() != actor
    assert arrays_of(run)["actor"].tobytes() == arrays_of(run)["target.actor"].tobytes() == actor


def test_a_critic_of_another_kind_stays_as_it_begins(clone: Path, tmp_path: Path) -> None:
    told = {**STILL, "normalize_value": True, "begin_with": str(clone), "log_dir": str(tmp_path)}
    run = penstock.train(told, quiet=True).run_folder
    assert arrays_of(run)["actor"].tobytes() == arrays_of(clone)["actor"].tobytes()
    assert arrays_of(run)["critic"].tobytes() != arrays_of(clone)["critic"].tobytes()
    assert "begins with actor of" in RunFolder(run).log_path.read_text()


def test_a_policy_that_does_not_fit_is_refused_before_anything_starts(clone: Path, tmp_path: Path) -> None:
    def refused(match: str, **more: object) -> None:
        with pytest.raises(penstock.UsageError, match=match) as refusal:
            penstock.train({**STILL, "begin_with": str(clone), "log_dir": str(tmp_path), **more}, quiet=True)
        assert "\n" not in str(refusal.value)

    refused(
        "its policy has another stack of layers than this run's; .* with: --hidden_sizes 16$", hidden_sizes=(16, 16)
    )
    refused("stack of layers.* with: --hidden_sizes 16 --activation tanh$", activation="relu", hidden_sizes=(8, 8))
    refused("another normalisation of observations than this run's; give the settings of networks", normalize_obs=True)
    refused("its policy has another head than this run's.* it is of bc", algo="dqn", backend="auto", timesteps=200)
    refused("whose observations or actions are not of this run's kind", env="CartPole-v1")
    refused("there is no run nowhere; latest stands for the newest run in ", begin_with="nowhere")
    refused("nowhere is no run folder", begin_with=str(tmp_path / "nowhere"))
    refused("has no checkpoint update-99", begin_with=f"{clone}@update-99")
    assert not list(tmp_path.iterdir())
