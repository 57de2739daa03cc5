"""Trials on Ray Tune, each in a run folder of its own, best first."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import optuna
import pytest
import ray.tune

from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, DeviceError, EnvError, RunFolderError
from penstock.metrics.jsonl import METRICS, GrowingLog, JsonLines, final_evaluations
from penstock.metrics.report import RETURN, Report
from penstock.saved_runs.checkpoints import checkpoint_path, list_checkpoints, load_checkpoint
from penstock.saved_runs.run_folder import RunFolder, list_runs
from penstock.tune import tuning
from penstock.tune.search import Search
from penstock.tune.table import as_table, some_has_learned
from penstock.tune.trial import FAILED
from penstock.tune.tuning import Trial, _ranked, tune
from tests.runtime.nodes import wait_until
from tests.tune.small import SMALL

LR = (Search("lr", "choice", (1e-3, 1e-2)),)


@pytest.mark.nightly  # Ten seconds for Ray. Shorter: ``test_trial.py`` has trials without Ray, and the table is below.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_trials_are_ranked_and_each_has_its_run(tmp_path: Path):
    said: list[str] = []
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    search = (Search("lr", "choice", (1e-3, 1e-2)),)
    trials, _ = tune(config, search, samples=2, scheduler="random", address="local", told=said.append)
    assert said[0] == "2 trials; Ray starts the first ones, which may take half a minute"
    assert len(trials) == len(said[1:]) == 2
    evaluations = [trial.evaluation for trial in trials]
    assert evaluations == sorted(evaluations, reverse=True)
    for trial in trials:
        assert trial.error is None
        assert trial.steps == 512
        assert (trial.run_folder / "policy.onnx").exists()
        assert trial.settings["lr"] in {1e-3, 1e-2}
    table = as_table(trials, len(trials))
    assert table.splitlines()[-1] == f"best: {trials[0].run_folder}"
    assert len(table.splitlines()) == 4
    # Nothing is left of what Ray keeps while trials go on.
    assert {path.name for path in (tmp_path / "tune").iterdir()} == {trial.name for trial in trials}


class LaterIsWorse(gymnasium.Env):
    """Episodes of one step. Their return is minus the seconds from ``begun`` until the environment was made."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, begun: float) -> None:
        self._return = begun - time.time()

    def reset(self, *, seed: int | None = None, options: object = None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: object):
        # An update takes a tenth of a second: long enough to be seen before the run has ended.
        time.sleep(0.003)
        return np.zeros(1, np.float32), self._return, True, False, {}


# A minute and a half. Shorter: what ASHA is told is in ``test_trial.py``, and how it is set up below.
@pytest.mark.nightly
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_asha_which_is_the_default_stops_weak_trials_of_the_command(tmp_path: Path):
    argv = [sys.executable, "-m", "penstock", "tune", "--env", f"{__name__}:LaterIsWorse", "--address", "local"]
    argv += ["--env_args", json.dumps({"begun": time.time()}), "--log_dir", str(tmp_path), "--timesteps", "3200"]
    argv += ["--num_envs", "1", "--num_steps", "32", "--mini_batch_size", "32", "--epochs", "1", "--log_interval", "1"]
    argv += ["--eval_episodes", "2", "--samples", "3", "--at_once", "1", "--search", "lr=loguniform:1e-5:1e-4"]
    # A trial is stopped before its first checkpoint, as on a slow machine with the usual interval.
    argv += ["--save_interval", "1000"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = [RunFolder(path) for trial in sorted((tmp_path / "tune").iterdir()) for path in list_runs(trial)]
    steps = sorted(load_checkpoint(list_checkpoints(run.path)[-1]).manifest["steps"] for run in runs)
    # The first trial goes on to its end. Those behind it are worse when they are first looked at.
    assert len(steps) == 3
    assert steps[-1] == 3200
    assert 320 <= steps[0] <= steps[1] < 3200
    evaluated = [bool(final_evaluations(run.path)) for run in runs]
    assert sorted(evaluated) == [False, False, True]


class FailsLater(gymnasium.Env):
    """Raises in its fiftieth step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    _steps = 0

    def reset(self, *, seed: int | None = None, options: object = None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: object):
        self._steps += 1
        if self._steps == 50:
            raise ValueError("boom at 50")
        return np.zeros(1, np.float32), 1.0, self._steps % 10 == 0, False, {}


@pytest.mark.nightly  # Half a minute for Ray. Shorter: what is said of such trials is tested below, without Ray.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_a_search_whose_trials_all_fail_says_why_and_recommends_none(tmp_path: Path):
    argv = [sys.executable, "-m", "penstock", "tune", "--env", f"{__name__}:FailsLater", "--address", "local"]
    argv += ["--log_dir", str(tmp_path), "--max_restarts", "0", "--samples", "2", "--search", "lr=choice:1e-3,1e-4"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "best:" not in done.stdout
    outputs = sorted((tmp_path / "tune").glob("*/output.txt"))
    assert len(outputs) == 2
    for output in outputs:
        name, why = output.parent.name, "node env.0 failed: ValueError: boom at 50"
        assert sum(line.startswith(f"trial {name} failed: {why} (") for line in done.stdout.splitlines()) == 1
        (row,) = (line for line in done.stdout.splitlines() if line.endswith(f"{why} ({output})"))
        assert row.split()[0] == "failed"


@contextlib.contextmanager
def searching(log_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A search by the command, in a process group of its own, whose first trial learns and has no checkpoint yet."""
    argv = [sys.executable, "-m", "penstock", "tune", "--env", "CartPole-v1", "--address", "local", "--samples", "2"]
    argv += ["--log_dir", str(log_dir), "--timesteps", "100000000", "--num_envs", "4", "--num_steps", "32"]
    argv += ["--at_once", "1", "--search", "lr=loguniform:1e-5:1e-4", "--save_interval", "1000000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as command:
        try:
            assert wait_until(lambda: any(log.stat().st_size for log in log_dir.glob(f"tune/*/*/{METRICS}")), 240)
            yield command
        finally:
            # After its end this does nothing.
            command.kill()


@pytest.mark.nightly  # Half a minute for Ray. Shorter: ``test_connection.py`` starts one process as Ray does.
@pytest.mark.alone  # Ray gives itself half a minute to start.
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_stops_the_trials_in_order(tmp_path: Path, number: signal.Signals):
    with searching(tmp_path) as command:
        os.killpg(command.pid, number)
        said, _ = command.communicate(timeout=90)
    assert command.returncode == 130
    (run,) = [path for trial in (tmp_path / "tune").iterdir() for path in list_runs(trial)]
    assert said.splitlines()[-2:] == ["1 more trial has not begun", f"best: {run}"]
    assert not list((tmp_path / "tune").glob(".tune-*"))


@pytest.mark.nightly  # As above. Shorter: ``test_trial.py`` kills what Ray kills.
@pytest.mark.alone
def test_trials_of_a_command_that_is_killed_write_their_last_checkpoint(tmp_path: Path):
    with searching(tmp_path) as command:
        command.kill()
    (run,) = [path for trial in (tmp_path / "tune").glob("[!.]*") for path in list_runs(trial)]
    assert wait_until(lambda: bool(list_checkpoints(run)), 60)


def test_the_table_says_why_a_trial_failed_and_recommends_only_what_has_learned(tmp_path: Path):
    why = "unknown environment 'B'; did you mean CartPole-v1? " + "and so on " * 10
    stopped = Trial("a", {"lr": 0.1}, 0, float("-inf"), None, None, tmp_path)
    table = as_table([stopped, Trial("b", {"lr": 0.2}, 0, 0.0, None, why, None)], 2)
    assert why[:150] in table
    assert "-inf" not in table
    assert "best:" not in table
    # A long reason pushes no other line aside.
    assert len(table.splitlines()[1]) < 150
    assert not some_has_learned([stopped])


def test_a_run_whose_only_checkpoint_is_that_before_the_first_update_is_not_recommended(tmp_path: Path):
    trial = Trial("a", {"lr": 0.1}, 0, float("-inf"), None, None, tmp_path)
    checkpoint_path(tmp_path, 0).mkdir(parents=True)
    assert "best:" not in as_table([trial], 1)
    assert not some_has_learned([trial])
    checkpoint_path(tmp_path, 1).mkdir()
    assert as_table([trial], 1).splitlines()[-1] == f"best: {tmp_path}"
    assert some_has_learned([trial])
    assert not some_has_learned([replace(trial, error="why")])


def test_a_trial_whose_run_ended_on_another_machine_has_learned(tmp_path: Path):
    assert some_has_learned([Trial("a", {"lr": 0.1}, 512, 20.0, 30.0, None, tmp_path / "there")])


@pytest.mark.nightly  # A minute for Ray and for runs that go on. Shorter: the two tests below.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_a_weak_trial_goes_on_from_the_steps_of_a_strong_one(tmp_path: Path):
    # Steps are slow until there is a copy. So both trials are under way together, however late the second one begins.
    gate = tmp_path / "gate"
    slow = {"env": "tests.gated:GatedCartPole", "env_args": {"gate": str(gate)}, "num_envs": 2}
    # Without more checkpoints, a run this short would write only its last one.
    often = {"timesteps": 2560, "save_interval": 1000, "log_dir": str(tmp_path)}
    search = (Search("lr", "choice", (1e-3, 1e-7)),)

    def runs() -> dict[str, list[Path]]:
        return {trial.name: list_runs(trial) for trial in (tmp_path / "tune").glob("*") if trial.is_dir()}

    def open_the_gate() -> None:
        wait_until(lambda: sum(len(found) for found in runs().values()) > 2, 120)
        gate.touch()

    opening = threading.Thread(target=open_the_gate)
    opening.start()
    trials, _ = tune(
        from_mapping({**SMALL, **slow, **often}), search, samples=2, scheduler="pbt", at_once=2, address="local"
    )
    opening.join()
    assert [(trial.error, trial.steps >= 2560) for trial in trials] == [(None, True)] * 2
    assert not list((tmp_path / "tune").glob(".*"))
    begun = {name: min((run.name for run in found), key=len) for name, found in runs().items()}
    copies = [run for found in runs().values() for run in found if run.name not in begun.values()]
    assert copies
    # Each run that was begun after the first one of its trial is a copy.
    assert all(any(run.name.startswith(f"{name}-") for name in begun.values()) for run in copies)
    for run in copies:
        updates = [report.update for report in GrowingLog(run).new()[0]]
        assert updates == sorted(updates)


def test_what_ray_keeps_of_trials_is_in_the_log_directory_while_they_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Machines share this directory. A folder of one of them would do for trials of that machine only."""
    storage: list[Path] = []

    class Tuner:
        def __init__(self, trainable: type, *, run_config: ray.tune.RunConfig, **settings: object) -> None:
            storage.append(Path(run_config.storage_path))

        def fit(self) -> list[object]:
            assert storage[0].is_dir()
            raise KeyboardInterrupt

    _without_ray(monkeypatch, Tuner)
    config = from_mapping({**SMALL, "log_dir": str(tmp_path / "logs")})
    with pytest.raises(KeyboardInterrupt):
        tune(config, LR, samples=2, scheduler="pbt", name="mine")
    assert storage[0].parent == tmp_path / "logs" / "mine"
    assert list(storage[0].parent.iterdir()) == []
    (tmp_path / "logs" / "other").touch()
    with pytest.raises(RunFolderError, match=r"other: Not a directory; give another --log_dir$"):
        tune(config, LR, samples=2, name="other")


def _without_ray(monkeypatch: pytest.MonkeyPatch, tuner: type) -> None:
    """Let ``tune`` use this class in place of Ray's, on a cluster of one machine that is not there."""
    monkeypatch.setattr(ray.tune, "Tuner", tuner)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])
    monkeypatch.setattr(tuning, "joined", lambda address, modules: contextlib.nullcontext())


def test_trials_for_which_no_machine_has_room_are_refused_unless_one_may_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Tuner:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def fit(self) -> list[object]:
            raise KeyboardInterrupt

    _without_ray(monkeypatch, Tuner)
    monkeypatch.setattr(tuning, "check_address", lambda address: None)
    config = from_mapping({**SMALL, "num_workers": 3, "num_envs": 3, "log_dir": str(tmp_path)})
    says = r"each asks for 3 cores \(--num_workers\), and the largest machine has 2; give --num_workers 2 or less"
    with pytest.raises(ConfigError, match=says + "$"):
        tune(config, LR, samples=2, address="local")
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        tune(config, LR, samples=2, address="10.0.0.1:6379", told=told.append)
    assert told[-1].endswith("give --num_workers 2 or less; or the trials wait until a larger one joins")


def test_the_settings_of_a_trial_that_never_began_are_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Tuner:
        def __init__(self, trainable: type, *, run_config: ray.tune.RunConfig, **settings: object) -> None:
            self._callbacks = run_config.callbacks
            # Ray would wait for a checkpoint of each trial that it stops.
            assert run_config.checkpoint_config.checkpoint_at_end is False

        def fit(self) -> list[object]:
            waiting = SimpleNamespace(trial_id="waiting", config={"lr": 0.125})
            for callback in self._callbacks:
                callback.on_step_end(1, [waiting])
            # As Ray gives it for a trial without a report.
            return [SimpleNamespace(metrics={}, config=None, error=None, path=str(tmp_path / "waiting"))]

    _without_ray(monkeypatch, Tuner)
    (trial,) = tune(from_mapping({**SMALL, "log_dir": str(tmp_path)}), LR, samples=2).trials
    assert (trial.name, trial.settings, trial.run_folder) == ("waiting", {"lr": 0.125}, None)
    assert not trial.begun
    _, row = as_table([trial], 1).splitlines()
    assert row.split() == ["not", "begun", "0.125"]
    # With few at once, Ray does not take up the later ones before there is room for them.
    assert as_table([trial], 2).splitlines()[-1] == "1 more trial has not begun"
    assert as_table([trial], 3).splitlines()[-1] == "2 more trials have not begun"


def test_a_trial_has_the_steps_that_its_run_learned_after_its_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "tune" / "stopped" / "CartPole-v1-ppo-20260101-000000"

    class Tuner:
        def __init__(self, trainable: type, **settings: object) -> None:
            run.mkdir(parents=True)
            (run / "config.toml").touch()
            with contextlib.closing(JsonLines(run)) as log:
                log.write(Report(3, 192, 1.0, {RETURN: 30.0}))

        def fit(self) -> list[object]:
            reported = {"trial_id": "stopped", "steps": 64, "return": 20.0, "run_folder": str(run)}
            return [SimpleNamespace(metrics=reported, config={"lr": 0.125}, error=None, path=str(run.parent))]

    _without_ray(monkeypatch, Tuner)
    (trial,) = tune(from_mapping({**SMALL, "log_dir": str(tmp_path)}), LR, samples=1).trials
    assert (trial.steps, trial.mean_return, trial.evaluation) == (192, 30.0, None)
    assert as_table([trial], 1).splitlines()[1].split()[0] == "stopped"


def test_a_trial_without_an_evaluation_that_played_all_its_steps_was_not_stopped(tmp_path: Path):
    trial = Trial("a", {"lr": 0.1}, 512, 20.0, None, None, tmp_path, played=True, not_evaluated="evaluation was lost")
    row = as_table([trial], 1).splitlines()[1]
    assert row.split()[0] == "none"
    assert row.endswith(f"{tmp_path.parent.name}/{tmp_path.name} (evaluation was lost)")


def test_failed_trials_stand_last(tmp_path: Path):
    def result(name: str, mean: float, error: str | None) -> SimpleNamespace:
        return SimpleNamespace(
            metrics={"trial_id": name, "return": mean, "steps": 64}, config={"lr": 0.1}, error=error, path=tmp_path
        )

    ranked = _ranked([result("bad", 50.0, f"{FAILED}why"), result("weak", 20.0, None)], {}, LR, tmp_path, 512)
    assert [trial.name for trial in ranked] == ["weak", "bad"]


FAILED_OUTPUT = """Traceback (most recent call last):
  File "boom.py", line 12, in step
ValueError: boom at 50
penstock: node env.0 failed; its traceback is above
penstock: it had learned nothing; its folder: x
"""


@pytest.mark.parametrize("noticed", [True, False])
def test_a_trial_that_fails_is_told_with_its_cause_and_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticed: bool
):
    """Ray does not notice one that fails while all trials are stopped."""
    output = tmp_path / "tune" / "bad" / "output.txt"

    class Tuner:
        def __init__(self, trainable: type, *, run_config: ray.tune.RunConfig, **settings: object) -> None:
            self._callbacks = run_config.callbacks

        def fit(self) -> list[object]:
            output.parent.mkdir()
            output.write_text(FAILED_OUTPUT)
            bad = SimpleNamespace(trial_id="bad", config={"lr": 0.125}, error_file=None)
            for callback in self._callbacks:
                callback.on_step_end(1, [bad])
                if noticed:
                    callback.on_trial_error(1, [bad], bad)
            error = f"ray::Run.train()\nPenstockError: {FAILED}node env.0 failed: ValueError: boom at 50\n"
            return [SimpleNamespace(metrics={}, config=None, error=error if noticed else None, path=output.parent)]

    _without_ray(monkeypatch, Tuner)
    said: list[str] = []
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    (trial,) = tune(config, LR, samples=1, told=said.append).trials
    why = "node env.0 failed: ValueError: boom at 50"
    told = [line for line in said if line.startswith("trial bad")]
    assert told == [f"trial bad failed: {why} (lr 0.125); its output: {output}"] * noticed
    assert (trial.error, trial.output, trial.begun) == (why, output, True)
    _, row = as_table([trial], 1).splitlines()
    assert row.split()[0] == "failed"
    assert row.endswith(f"{why} ({output})")


@pytest.mark.nightly  # Ten seconds for Ray and three trials. Shorter: the one below needs neither.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_optuna_proposes_the_settings(tmp_path: Path):
    config = from_mapping({**SMALL, "log_dir": str(tmp_path), "seed": 5})
    search = (Search("lr", "loguniform", (1e-4, 1e-2)),)
    trials, _ = tune(config, search, samples=3, scheduler="random", searcher="optuna", at_once=1, address="local")
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5), direction="maximize")
    asked = [study.ask({"lr": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)}) for _ in range(3)]
    assert sorted(trial.settings["lr"] for trial in trials) == sorted(trial.params["lr"] for trial in asked)
    assert all(trial.error is None and trial.steps == 512 for trial in trials)


def test_optuna_that_is_missing_or_does_not_fit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    search = (Search("lr", "loguniform", (1e-4, 1e-2)),)
    with pytest.raises(ConfigError, match="does not go with --scheduler pbt"):
        tune(config, search, samples=2, scheduler="pbt", searcher="optuna")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs Optuna; type: pip install 'penstock\[optuna\]'"):
        tune(config, search, samples=2, searcher="optuna")


def test_what_no_trial_can_run_is_refused_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tuning, "joined", lambda address, modules: pytest.fail("Ray would have started"))
    said: list[str] = []
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match="does not divide"):
        tune(from_mapping({**SMALL, "num_workers": 2}), (Search("num_envs", "choice", (8, 9)),), samples=2)
    with pytest.raises(ConfigError, match="with --scheduler pbt settings change while a run goes on"):
        tune(config, (Search("num_envs", "choice", (8, 16)),), samples=2, scheduler="pbt", told=said.append)
    with pytest.raises(ConfigError, match=r"^no Ray cluster answers at --address 127\.0\.0\.1:1: "):
        tune(config, LR, samples=2, address="127.0.0.1:1", told=said.append)
    with pytest.raises(EnvError, match="no module named lost_env is installed"):
        tune(from_mapping({**SMALL, "env": "lost_env:make"}), LR, samples=2, told=said.append)
    with pytest.raises(RunFolderError, match=r"give another --log_dir$"):
        tune(config, LR, samples=2, name="taken", told=said.append)
    # No other machine would run the trials: Ray would start here.
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"'cuda' is not here"):
        tune(from_mapping({**SMALL, "device": "cuda"}), LR, samples=2, told=said.append)
    assert not said
