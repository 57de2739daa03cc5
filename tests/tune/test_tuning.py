"""Trials on Ray Tune, each in a run folder of its own, best first."""

import threading
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from ray.tune.schedulers.pbt import _explore

from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, PenstockError
from penstock.metrics.jsonl import GrowingLog
from penstock.saved_runs.run_folder import list_runs
from penstock.tune.search import Search
from penstock.tune.table import as_table
from penstock.tune.trial import TrialRun
from penstock.tune.tuning import (
    METRIC,
    Trial,
    _domain,
    _kept,
    _most_workers,
    _proposing,
    _room,
    _saved_often,
    _scheduler,
    _with,
    trainable,
    tune,
)
from tests.runtime.nodes import wait_until

SMALL = {"env": "CartPole-v1", "num_steps": 32, "timesteps": 512, "eval_episodes": 2, "epochs": 1}


@pytest.mark.nightly  # Ten seconds for Ray. Shorter: ``test_trial.py`` has trials without Ray, and the table is below.
@pytest.mark.alone  # Ray gives itself half a minute to start.
def test_trials_are_ranked_and_each_has_its_run(tmp_path: Path):
    said: list[str] = []
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    search = (Search("lr", "choice", (1e-3, 1e-2)),)
    trials, _ = tune(config, search, samples=2, scheduler="random", address="local", told=said.append)
    assert len(trials) == len(said) == 2
    evaluations = [trial.evaluation for trial in trials]
    assert evaluations == sorted(evaluations, reverse=True)
    for trial in trials:
        assert trial.error is None
        assert trial.steps == 512
        assert (trial.run_folder / "policy.onnx").exists()
        assert trial.settings["lr"] in {1e-3, 1e-2}
    table = as_table(trials)
    assert table.splitlines()[-1] == f"best: {trials[0].run_folder}"
    assert len(table.splitlines()) == 4


def test_the_table_says_why_a_trial_failed_and_recommends_only_what_has_learned(tmp_path: Path):
    why = "unknown environment 'B'; did you mean CartPole-v1? " + "and so on " * 10
    stopped = Trial("a", {"lr": 0.1}, 0, float("-inf"), None, None, tmp_path)
    table = as_table([stopped, Trial("b", {"lr": 0.2}, 0, 0.0, None, why, None)])
    assert why[:150] in table
    assert "-inf" not in table
    assert "best:" not in table


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
    begun = {name: min((run.name for run in found), key=len) for name, found in runs().items()}
    copies = [run for found in runs().values() for run in found if run.name not in begun.values()]
    assert copies
    # Each run that was begun after the first one of its trial is a copy.
    assert all(any(run.name.startswith(f"{name}-") for name in begun.values()) for run in copies)
    for run in copies:
        updates = [report.update for report in GrowingLog(run).new()[0]]
        assert updates == sorted(updates)


def mutated(search: tuple[Search, ...], settings: dict[str, object]) -> list[dict[str, object]]:
    """What population-based training makes of these settings, one step after the other."""
    pbt = _scheduler("pbt", from_mapping(SMALL), search)
    found = [settings]
    for _ in range(200):
        mutations, chance, factors = pbt._hyperparam_mutations, pbt._resample_probability, pbt._perturbation_factors
        found.append(_explore(found[-1], mutations, chance, factors, pbt._custom_explore_fn)[0])
    return found


def test_a_changed_copy_stays_within_what_is_searched():
    search = (
        Search("gamma", "uniform", (0.95, 0.999)),
        Search("epochs", "int", (2, 9)),
        Search("mini_batch_size", "choice", (64, 128, 256)),
    )
    found = mutated(search, {"gamma": 0.98, "epochs": 8, "mini_batch_size": 64})
    assert all(0.95 <= one["gamma"] <= 0.999 for one in found)
    assert {one["mini_batch_size"] for one in found} == {64, 128, 256}
    assert all(type(one["epochs"]) is int and 2 <= one["epochs"] <= 9 for one in found)
    assert len({one["epochs"] for one in found}) > 3


def test_a_changed_copy_may_have_another_word():
    found = mutated((Search("lr_schedule", "choice", ("constant", "linear")),), {"lr_schedule": "constant"})
    assert {one["lr_schedule"] for one in found} == {"constant", "linear"}


def test_trials_that_copy_each_other_write_checkpoints_often():
    config = from_mapping({**SMALL, "num_envs": 8, "timesteps": 1_000_000})
    # 100,000 steps are 390 updates of 256 rows.
    assert _saved_often(config, ()).run.save_interval == 39
    assert _saved_often(config, (Search("num_steps", "choice", (32, 128)),)).run.save_interval == 9
    assert _saved_often(from_mapping({**SMALL, "save_interval": 2}), ()).run.save_interval == 1
    own = from_mapping({**SMALL, "timesteps": 1_000_000, "save_interval": 2})
    assert _saved_often(own, ()).run.save_interval == 2


def test_a_trial_takes_over_the_steps_of_another_one(tmp_path: Path):
    config = _saved_often(from_mapping({**SMALL, "timesteps": 1_000_000, "num_workers": 1}), ())
    made = trainable(config, tmp_path / "trials")
    strong, weak, third = (made(config={"lr": lr}) for lr in (1e-3, 1e-2, 1e-1))
    for trial, name in ((strong, "strong"), (weak, "weak"), (third, "third")):
        trial._trial = TrialRun(tmp_path / name, Path.cwd())
    strong.step()
    (tmp_path / "saved").mkdir()
    strong.save_checkpoint(str(tmp_path / "saved"))
    strong.cleanup()
    weak.load_checkpoint(str(tmp_path / "saved"))
    assert weak.step()["update"] >= config.run.save_interval
    weak.cleanup()
    (tmp_path / "empty").mkdir()
    with pytest.raises(PenstockError, match="has left no checkpoint"):
        third.load_checkpoint(str(tmp_path / "empty"))


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


def test_optuna_learns_from_each_trial_what_to_propose_next():
    proposing = _proposing("optuna", "random", 5)
    proposing.set_search_properties(METRIC, "max", {"lr": _domain(Search("lr", "loguniform", (1e-4, 1e-2)))})
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5), direction="maximize")
    # Optuna's sampler learns from more than ten trials.
    for number in range(15):
        lr = proposing.suggest(str(number))["lr"]
        trial = study.ask({"lr": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)})
        assert lr == trial.params["lr"]
        proposing.on_trial_complete(str(number), {METRIC: -abs(lr - 1e-3)})
        study.tell(trial, -abs(lr - 1e-3))


def test_a_trial_reserves_as_many_cores_as_it_may_have_workers():
    config = from_mapping({**SMALL, "num_workers": 2})
    assert _most_workers(config, ()) == 2
    assert _most_workers(config, (Search("num_workers", "choice", (1, 3)),)) == 3
    assert _most_workers(from_mapping({**SMALL, "num_workers": "auto"}), ()) == 1


def test_ray_keeps_a_gpu_for_trials_that_learn_on_one():
    cuda = from_mapping({**SMALL, "device": "cuda", "num_workers": 2})
    assert _kept(cuda, (), None, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2, "gpu": 1}
    # Three trials on two GPUs: two of them share one.
    assert _kept(cuda, (), 3, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2, "gpu": 0.5}
    # Ray would wait forever for a GPU that it does not know.
    assert _kept(cuda, (), None, {"CPU": 8.0}) == {"cpu": 2}
    chosen = from_mapping({**SMALL, "device": "cuda:1", "num_workers": 2})
    assert _kept(chosen, (), None, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2}


def test_nothing_is_kept_twice_for_trials_whose_runs_ask_the_cluster():
    there = {"CPU": 10.0, "GPU": 2.0}
    asking = {**SMALL, "runtime": "ray", "num_workers": 2, "resources": "env: {cpu: 2}, learner: {gpu: 1}"}
    config = from_mapping(asking)
    assert _kept(config, (), None, there) == {"cpu": 0.001}
    assert _room(config, (), there) == 2
    assert _room(config, (), {"CPU": 7.0, "GPU": 2.0}) == 1
    assert _room(from_mapping({**SMALL, "runtime": "ray", "num_workers": 2}), (), there) is None


def test_a_relative_folder_is_meant_from_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    made = trainable(from_mapping(SMALL), Path("mine"))
    # Ray Tune goes to a folder of its own before it begins a trial.
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = made(config={})
    assert run.step()["update"] >= 0
    run.cleanup()
    assert [path.parent for path in tmp_path.glob("mine/*/trial.toml")] == [tmp_path / "mine" / run.trial_id]


def test_optuna_that_is_missing_or_does_not_fit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    search = (Search("lr", "loguniform", (1e-4, 1e-2)),)
    with pytest.raises(ConfigError, match="does not go with --scheduler pbt"):
        tune(config, search, samples=2, scheduler="pbt", searcher="optuna")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs Optuna; type: pip install 'penstock\[optuna\]'"):
        tune(config, search, samples=2, searcher="optuna")


def test_what_cannot_be_searched_is_refused_before_ray_starts(tmp_path: Path):
    config = from_mapping({**SMALL, "log_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="nothing is searched"):
        tune(config, (), samples=2)
    with pytest.raises(ConfigError, match="does not divide"):
        tune(from_mapping({**SMALL, "num_workers": 2}), (Search("num_envs", "choice", (8, 9)),), samples=2)


def test_a_search_over_algorithms_gives_each_its_own_defaults() -> None:
    config = from_mapping({"env": "Pendulum-v1", "algo": "ppo", "gamma": 0.9})
    found = _with(config, {"algo": "sac"})
    assert (found.run.algo, found.algorithm.gamma) == ("sac", 0.9)
    assert found.algorithm == replace(from_mapping({"env": "Pendulum-v1", "algo": "sac"}).algorithm, gamma=0.9)
    with pytest.raises(ConfigError, match="clip_param"):
        _with(from_mapping({"env": "Pendulum-v1", "algo": "ppo", "clip_param": 0.1}), {"algo": "sac"})
