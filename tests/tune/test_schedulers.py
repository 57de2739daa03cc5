"""What changes and proposes the settings of trials."""

from types import SimpleNamespace

import optuna
from ray.tune.schedulers.pbt import _explore

from penstock.config.sources import from_mapping
from penstock.tune.schedulers import METRIC, domain, saved_often, scheduler_of, searcher_of, too_few_updates
from penstock.tune.search import Search
from tests.tune.small import SMALL


def mutated(search: tuple[Search, ...], settings: dict[str, object]) -> list[dict[str, object]]:
    """What population-based training makes of these settings, one step after the other."""
    pbt = scheduler_of("pbt", from_mapping(SMALL), search)
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
    assert saved_often(config, ()).run.save_interval == 39
    assert saved_often(config, (Search("num_steps", "choice", (32, 128)),)).run.save_interval == 9
    assert saved_often(from_mapping({**SMALL, "save_interval": 2}), ()).run.save_interval == 1
    own = from_mapping({**SMALL, "timesteps": 1_000_000, "save_interval": 2})
    assert saved_often(own, ()).run.save_interval == 2


def test_too_few_updates_to_stop_or_copy_a_trial_are_one_line():
    def said(kind: str, timesteps: int, search: tuple[Search, ...] = ()) -> str:
        return too_few_updates(kind, from_mapping({**SMALL, "num_envs": 8, "timesteps": timesteps}), search)

    # An update has 8 times 32 rows.
    assert said("asha", 769) == said("random", 300) == ""
    assert said("asha", 768) == (
        "--scheduler asha stops hardly any trial: --timesteps 768 are 3 updates of 256 steps, and a trial is looked at "
        "between two; give more --timesteps, or fewer --num_envs or --num_steps"
    )
    assert said("pbt", 200).startswith("--scheduler pbt copies hardly any trial: --timesteps 200 are 1 update of 256 ")
    assert said("asha", 200, (Search("algo", "choice", ("sac", "dqn")),)) == ""
    assert "2 updates of 512 steps" in said("asha", 1024, (Search("num_steps", "choice", (32, 64)),))


def test_asha_judges_no_trial_before_its_first_episode_has_ended():
    asha = scheduler_of("asha", from_mapping({**SMALL, "timesteps": 1_000}), ())
    asha.set_search_properties(METRIC, "max")
    trials = [SimpleNamespace(trial_id=str(number)) for number in range(6)]
    for trial in trials:
        asha.on_trial_add(None, trial)
    # Numbers beside infinities have no quantile that a number could be below.
    returns = (float("-inf"), float("-inf"), float("-inf"), 5.0, 4.0, -100.0)
    decided = [
        asha.on_trial_result(None, trial, {"steps": 100, METRIC: value})
        for trial, value in zip(trials, returns, strict=True)
    ]
    assert decided == ["CONTINUE"] * 4 + ["STOP"] * 2
    # It is looked at with the first report that has a return.
    assert asha.on_trial_result(None, trials[0], {"steps": 120, METRIC: -200.0}) == "STOP"


def test_optuna_learns_from_each_trial_what_to_propose_next():
    proposing = searcher_of("optuna", "random", 5)
    proposing.set_search_properties(METRIC, "max", {"lr": domain(Search("lr", "loguniform", (1e-4, 1e-2)))})
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5), direction="maximize")
    # Optuna's sampler learns from more than ten trials.
    for number in range(15):
        lr = proposing.suggest(str(number))["lr"]
        trial = study.ask({"lr": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)})
        assert lr == trial.params["lr"]
        proposing.on_trial_complete(str(number), {METRIC: -abs(lr - 1e-3)})
        study.tell(trial, -abs(lr - 1e-3))
