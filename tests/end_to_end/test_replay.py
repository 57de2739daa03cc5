"""Learning from a table gives one answer: on any number of workers, after a resume, after a death."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.config.sources import shown
from penstock.errors import BadDataError, CheckpointError
from penstock.nodes.learner.keeper import Keeper
from penstock.nodes.learner.steps import GradientSteps
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table, save_checkpoint
from penstock.saved_runs.manifest import write_manifest
from penstock.types import Arrays
from penstock.updates.fused.replay import FusedLearner
from tests.children import killing
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

TURN = 16 * 4
OTHER = "MountainCarContinuous-v0"
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 100,
    # Six turns: the ring goes round.
    "capacity": 6 * TURN,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "seed": 5,
}


@pytest.fixture(scope="module", params=["fused", "eager"])
def backend(request: pytest.FixtureRequest) -> str:
    """Both ways of running an update: native, where the learner's loop is native too, and torch."""
    return str(request.param)


def train(log_dir: Path, turns: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, backend: str) -> dict[str, str]:
    """Twenty turns in one go, in one process."""
    return fingerprint(train(tmp_path_factory.mktemp("whole"), 20, num_workers=1, backend=backend))


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Forty turns, long enough to kill processes meanwhile."""
    return fingerprint(train(tmp_path_factory.mktemp("longer"), 40, num_workers=1))


@pytest.mark.parametrize(
    ("runtime", "workers"),
    # Five seconds each with torch. Shorter: two processes step environments as well.
    [*(pytest.param(*one, marks=pytest.mark.nightly) for one in (("inline", 4), ("local", 1))), ("local", 2)],
)
def test_runtime_and_workers_do_not_change_a_bit(tmp_path, whole, backend: str, runtime: str, workers: int) -> None:
    result = train(tmp_path, 20, runtime=runtime, num_workers=workers, backend=backend)
    assert result.steps == 20 * TURN
    assert fingerprint(result) == whole


# Shorter: before the first gradient step, and once the ring has gone round; with other processes than before.
@pytest.mark.parametrize("turns", [1, pytest.param(4, marks=pytest.mark.nightly), 11])
@pytest.mark.parametrize(("before", "after"), [pytest.param(2, 2, marks=pytest.mark.nightly), (1, 4)])
def test_resumed_equals_uninterrupted(tmp_path, whole, backend: str, turns: int, before: int, after: int) -> None:
    first = train(tmp_path, turns, num_workers=before, backend=backend)
    config = first.run_folder / "config.toml"
    config.write_text(config.read_text().replace(f"num_workers = {before}\n", f"num_workers = {after}\n"))
    second = penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)
    assert (second.not_restored, second.notes) == (0, ())
    assert fingerprint(second) == whole


RANKED = [{"algo": "dqn", "prioritised": True}, {"algo": "apex"}]
"""Algorithms that sample rows by priority. Gradient steps change the priorities."""


def train_ranked(log_dir: Path, ranked: dict[str, object], turns: int) -> Result:
    values = {"env": "CartPole-v1", "num_steps": 16, "save_interval": 1, "keep_checkpoints": 100, **ranked}
    return train(log_dir, turns, num_workers=2, **values)


# Four seconds each with processes. Shorter: shards of ranked rows are resumed with processes, too.
@pytest.mark.parametrize("ranked", RANKED, ids=lambda ranked: str(ranked["algo"]))
@pytest.mark.parametrize("runtime", ["inline", pytest.param("local", marks=pytest.mark.nightly)])
def test_ranked_rows_are_resumed_as_they_were(tmp_path, backend: str, ranked: dict[str, object], runtime: str) -> None:
    whole = train_ranked(tmp_path, ranked | {"runtime": runtime, "backend": backend}, 12)
    expected = fingerprint(whole)
    # A checkpoint is copied while the run goes on, and the next steps change ranks. The runtime changes no bit.
    for update in (3, 7):
        here = {"checkpoint": str(update), "settings": {"runtime": "inline"}}
        resumed = penstock.resume(whole.run_folder, timesteps=12 * TURN, quiet=True, **here)
        assert fingerprint(resumed) == expected


def test_shards_of_ranked_rows_are_resumed_as_they_were(tmp_path) -> None:
    whole = train_ranked(tmp_path, {"algo": "apex", "runtime": "local", "learners": 2}, 12)
    # Each learner ranks the rows of its own shard, so no answer depends on which one is faster.
    assert (load_table(find_checkpoint(whole.run_folder)) or {})["largest_priority"].shape == (2,)
    resumed = penstock.resume(whole.run_folder, timesteps=12 * TURN, quiet=True, checkpoint="7")
    assert fingerprint(resumed) == fingerprint(whole)


def test_shards_take_as_many_rows_also_without_lock_step(tmp_path) -> None:
    overlapping = {"sync_mode": "non_blocking", "exchange": "allreduce", "learners": 2, "runtime": "local"}
    result = train_ranked(tmp_path, {"algo": "apex", **overlapping}, 60)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    first, second = arrays["lane_collected"].reshape(2, -1).sum(1).tolist()
    # Each shard is at most two of its rollouts ahead of its half of all rows, and a turn may end between.
    assert abs(first - second) <= 4 * TURN // 2
    assert arrays["gradient_steps"] == (result.steps - 100) // 8


@pytest.mark.parametrize("ranked", RANKED, ids=lambda ranked: str(ranked["algo"]))
def test_a_turn_that_is_abandoned_leaves_ranks_as_they_were(
    tmp_path, monkeypatch, backend: str, ranked: dict[str, object]
) -> None:
    ranked = ranked | {"backend": backend}
    expected = fingerprint(train_ranked(tmp_path, ranked, 12))
    where, name = (FusedLearner, "learn_many") if backend == "fused" else (GradientSteps, "_rank")
    real, calls = getattr(where, name), 0

    def broken(self: object, *given: Any) -> object:
        nonlocal calls
        found = real(self, *given)
        calls += 1
        if calls == 8:
            raise BadDataError("broken")
        return found

    monkeypatch.setattr(where, name, broken)
    # What was committed before it is written down.
    with pytest.raises(BadDataError, match="broken"):
        train_ranked(tmp_path / "broken", ranked | {"save_interval": 100}, 12)
    monkeypatch.undo()
    (run,) = (tmp_path / "broken").iterdir()
    assert load_checkpoint(find_checkpoint(run)).manifest["update"] < 12
    assert fingerprint(penstock.resume(run, timesteps=12 * TURN, quiet=True)) == expected


def test_a_turn_whose_parameters_are_refused_leaves_ranks_as_they_were(tmp_path, monkeypatch, backend: str) -> None:
    ranked = {**RANKED[0], "backend": backend}
    expected = fingerprint(train_ranked(tmp_path, ranked, 12))
    real, calls = Keeper.commit_unpublished, 0

    def broken(keeper: Keeper, new: Arrays, state: Mapping[str, Any]) -> None:
        nonlocal calls
        calls += 1
        name = keeper._published[0].name
        bad = {name: np.full(new[name].shape, np.inf, new[name].dtype)} if calls == 8 else {}
        real(keeper, new, {**state, **bad})

    monkeypatch.setattr(Keeper, "commit_unpublished", broken)
    with pytest.raises(BadDataError, match="update 8 made the parameters of"):
        train_ranked(tmp_path / "broken", ranked | {"save_interval": 100}, 12)
    monkeypatch.undo()
    (run,) = (tmp_path / "broken").iterdir()
    assert load_checkpoint(find_checkpoint(run)).manifest["update"] == 7
    assert fingerprint(penstock.resume(run, timesteps=12 * TURN, quiet=True)) == expected


# Four seconds each. Shorter: what acts and what learns dies, and the monitor in ``tests/chaos/test_kills.py``.
@pytest.mark.parametrize("group", ["env.1", "learner", pytest.param("monitor", marks=pytest.mark.nightly)])
def test_a_death_does_not_change_a_bit(tmp_path, longer, group: str) -> None:
    with killing([group] * 3, tmp_path):
        result = train(tmp_path, 40, runtime="local", num_workers=2, save_interval=1)
    assert fingerprint(result) == longer


def test_what_is_sampled_is_what_was_collected(tmp_path) -> None:
    result = train(tmp_path, 8, num_workers=2)
    table = load_table(find_checkpoint(result.run_folder))
    assert table is not None
    assert table["obs"].shape == (6, 17, 4, 3)
    # The angle's cosine and sine lie on a circle, row T is the next slot's row 0 unless an episode ended.
    assert np.allclose(np.square(table["obs"][..., :2]).sum(-1), 1.0, atol=1e-5)
    goes_on = table["continues"][1:] & ~table["truncated"][:-1, 15]
    assert (table["obs"][:-1, 16] == table["obs"][1:, 0]).all(-1)[goes_on].all()


def rewritten(run: Path, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Path:
    """A whole checkpoint of the same update, with a changed table."""
    path = find_checkpoint(run)
    saved, table = load_checkpoint(path), load_table(path)
    assert table is not None
    facts = {name: fact for name, fact in saved.manifest.items() if name not in {"format", "kind", "created", "files"}}
    shutil.rmtree(path)
    return save_checkpoint(run, saved.arrays, facts, change(table))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda table: table | {"obs": table["obs"].astype(np.float64)},
            "its obs is float64 [17, 4, 3], not float32",
        ),
        (
            lambda table: table | {"obs": table["obs"][:, :, :, :2]},
            "its obs is float32 [17, 4, 2], not float32 [17, 4, 3]",
        ),
        (
            lambda table: table | {"reward": table["reward"][:, :9]},
            "its reward is float32 [9, 4], not float32 [17, 4]",
        ),
        (lambda table: table | {"reward": table["reward"][1:]}, "its reward has 1 entries, not 2"),
        (lambda table: _without(table, "valid"), "its valid is missing, not bool [17, 4]"),
        (lambda table: _without(table, "continues"), "its continues is missing, not bool [4]"),
        (lambda table: _without(table, "final.obs"), "its final.obs is missing, not float32 [3]"),
        (lambda table: _without(table, "sequence"), "its sequence is missing or too small"),
        (lambda table: table | {"sequence": np.array(1)}, "its sequence is missing or too small"),
        (lambda table: {}, "is missing"),
    ],
)
def test_a_table_of_another_layout_is_refused_in_one_line(tmp_path, change, says: str) -> None:
    run = train(tmp_path, 2, num_workers=1).run_folder
    path = rewritten(run, change)
    with pytest.raises(CheckpointError) as error:
        penstock.resume(run, timesteps=4 * TURN, quiet=True)
    said = str(error.value)
    assert said.startswith(f"the table of checkpoint {path} does not fit this run: ")
    assert says in said
    assert said.endswith("; put the settings back to what the run began with")
    assert "\n" not in said


def _without(table: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {other: values for other, values in table.items() if other != name}


def test_a_layout_that_was_edited_is_refused_by_a_nodes_one_line(tmp_path, capsys) -> None:
    run = train(tmp_path, 2, num_workers=1).run_folder
    config = run / "config.toml"
    text = config.read_text().replace("num_steps = 16\n", "num_steps = 8\n")
    config.write_text(text.replace('runtime = "inline"', 'runtime = "local"'))
    assert main(["resume", str(run), "--timesteps", "4000"]) == 1
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith("penstock: error: node learner: the table of checkpoint ")
    assert " is float32 [17, 4, 3], not float32 [9, 4, 3]; put the settings back" in said


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: os.truncate(path, 100), "table.safetensors has 100 of "),
        (lambda path: path.write_bytes(b"\0" * path.stat().st_size), "table.safetensors has been altered"),
        (lambda path: path.unlink(), "table.safetensors is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "table.safetensors cannot be read: Is a directory"),
    ],
)
def test_a_table_that_was_harmed_is_named_before_anything_starts(tmp_path, monkeypatch, harm, says: str) -> None:
    run = train(tmp_path, 4, num_workers=1, save_interval=2).run_folder
    path = find_checkpoint(run)
    monkeypatch.setattr("penstock.run.resuming.launch", lambda *_: pytest.fail("started"))
    harm(path / "table.safetensors")
    with pytest.raises(CheckpointError) as error:
        penstock.resume(run, timesteps=8 * TURN, quiet=True)
    good = f"the last good one: penstock resume {run} --checkpoint update-00000002"
    assert str(error.value) == f"checkpoint {path} cannot be used: {_said(error.value, says)}; {good}"
    assert penstock.evaluate(run, episodes=1).checkpoint == path.name


def test_who_plays_is_told_how_to_play_the_last_good_checkpoint(tmp_path) -> None:
    run = train(tmp_path, 4, num_workers=1, save_interval=2).run_folder
    path = find_checkpoint(run)
    os.truncate(path / "state.safetensors", 100)
    with pytest.raises(CheckpointError) as error:
        penstock.evaluate(run, episodes=1)
    good = f"the last good one: penstock eval {run} --checkpoint update-00000002"
    assert str(error.value) == f"checkpoint {path} cannot be used: {_said(error.value, 'state.safeten')}; {good}"
    assert penstock.evaluate(run, episodes=1, checkpoint="update-00000002").checkpoint == "update-00000002"


def test_a_table_that_may_not_be_read_is_named(tmp_path, monkeypatch) -> None:
    # root may read a file of any mode, so the test raises the system's error itself.
    run = train(tmp_path, 2, num_workers=1).run_folder
    read = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name == "table.safetensors":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(CheckpointError, match=r"table\.safetensors cannot be read: Permission denied; no other"):
        penstock.resume(run, timesteps=8 * TURN, quiet=True)


def _said(error: CheckpointError, says: str) -> str:
    damage = str(error).split(" cannot be used: ")[1].split("; the last good one")[0]
    assert damage.startswith(says)
    return damage


def test_a_table_that_is_not_safetensors_is_named_though_its_hash_is_right(tmp_path) -> None:
    run = train(tmp_path, 2, num_workers=1).run_folder
    path = find_checkpoint(run)
    manifest = json.loads((path / "manifest.json").read_text())
    facts = {name: fact for name, fact in manifest.items() if name not in {"files", "manifest_sha256"}}
    files = {name: (path / name).read_bytes() for name in manifest["files"]} | {"table.safetensors": b"not one"}
    (path / "table.safetensors").write_bytes(b"not one")
    (path / "manifest.json").write_bytes(write_manifest(facts, files))
    with pytest.raises(
        CheckpointError, match=r"table\.safetensors is not safetensors; no other checkpoint of this run"
    ):
        penstock.resume(run, timesteps=4 * TURN, quiet=True)


def test_a_checkpoint_of_another_environment_is_refused_with_its_table(tmp_path) -> None:
    run, other = (train(tmp_path / env, 2, num_workers=1, env=env).run_folder for env in ("Pendulum-v1", OTHER))
    shutil.rmtree(find_checkpoint(run))
    shutil.copytree(find_checkpoint(other), run / "checkpoints" / "update-00000002")
    with pytest.raises(CheckpointError, match=f"its env is {OTHER}, not Pendulum-v1; no other checkpoint"):
        penstock.resume(run, timesteps=4 * TURN, quiet=True)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_collecting_may_overlap_learning(tmp_path, workers: int) -> None:
    result = train(tmp_path, 20, runtime="local", num_workers=workers, sync_mode="non_blocking")
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps >= 20 * TURN
    # As many gradient steps as the rows collected make due.
    assert arrays["gradient_steps"] == (result.steps - 100) // 8


def test_by_the_command_line_an_environment_process_takes_newer_parameters_every_hundred_steps(tmp_path) -> None:
    """Each of the two acts with a copy of its own, in rollouts of 400 steps."""
    long = {"num_steps": 400, "timesteps": 10 * 4 * 400, "capacity": 20 * 4 * 400, "num_workers": 2}
    settings = {**SMALL, **long, "policy_placement": "env", "sync_mode": "non_blocking", "log_dir": str(tmp_path)}
    words = [f"--{name}={shown(value)}" for name, value in settings.items()]
    assert main(["train", *words, "--renew_every", "100"]) == 0
    (run,) = tmp_path.iterdir()
    table = load_table(find_checkpoint(run))
    assert table is not None
    # The last row of a rollout has only an observation. [rollouts, hundreds, steps, lanes]
    versions = table["policy_version"][:, :-1].reshape(-1, 4, 100, 4)
    assert (versions == versions[:, :, :1]).all()
    newer = np.diff(versions[:, :, 0], axis=1)
    assert (newer >= 0).all()
    assert (newer > 0).any()


def test_a_minibatch_in_parts_gives_what_it_gives_whole(tmp_path) -> None:
    # Only the first turn that learns: later, differences of rounding would grow, and change the sampled rows as well.
    whole, parts = (train(tmp_path / str(n), 2, accumulate=n, num_workers=1) for n in (1, 4))
    one, other = (load_checkpoint(find_checkpoint(result.run_folder)).arrays for result in (whole, parts))
    assert one["gradient_steps"] == other["gradient_steps"] == 3
    for name in ("critic", "target.critic"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learners", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_learners_that_step_together_do_what_one_does(tmp_path, learners: int) -> None:
    # Learners sample rows of their own, so these are other rows than one learner's: steps are compared by count here,
    # and the numbers in ``test_replicas.py``, on the same rows.
    result = train(tmp_path, 12, runtime="local", num_workers=4, learners=learners, mini_batch_size=24)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps == 12 * TURN
    assert arrays["gradient_steps"] == (12 * TURN - 100) // 8


@pytest.mark.parametrize("algo", [pytest.param("sac", marks=pytest.mark.nightly), "td3"])
def test_learners_that_step_together_are_resumed_together(tmp_path, algo: str) -> None:
    several = {"runtime": "local", "num_workers": 2, "learners": 2, "algo": algo}
    uninterrupted = fingerprint(train(tmp_path / "whole", 9, **several))
    # 23 gradient steps: of an algorithm that delays its actor, learners that counted from 0 would be out of step.
    first = train(tmp_path / "parts", 5, **several)
    assert load_checkpoint(find_checkpoint(first.run_folder)).arrays["gradient_steps"] % 2 == 1
    second = penstock.resume(first.run_folder, timesteps=9 * TURN, quiet=True)
    assert fingerprint(second) == uninterrupted


# Shorter: the first of two learners, which keeps what is learned.
@pytest.mark.parametrize("group", ["learner", pytest.param("learner.1", marks=pytest.mark.nightly)])
def test_one_of_two_learners_dies_and_training_goes_on(tmp_path, group: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 40, runtime="local", num_workers=2, learners=2, save_interval=1)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert arrays["gradient_steps"] == (40 * TURN - 100) // 8
