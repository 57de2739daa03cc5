"""What Ray keeps for a trial, and how many trials fit."""

from penstock.config.sources import from_mapping
from penstock.tune.resources import _most_workers, kept_for_trial, no_machine_fits, trials_that_fit
from penstock.tune.search import Search
from tests.tune.small import SMALL


def test_a_trial_reserves_as_many_cores_as_it_may_have_workers():
    config = from_mapping({**SMALL, "num_workers": 2})
    assert _most_workers(config, ()) == 2
    assert _most_workers(config, (Search("num_workers", "choice", (1, 3)),)) == 3
    assert _most_workers(from_mapping({**SMALL, "num_workers": "auto"}), ()) == 1


def test_ray_keeps_a_gpu_for_trials_that_learn_on_one():
    cuda = from_mapping({**SMALL, "device": "cuda", "num_workers": 2})
    assert kept_for_trial(cuda, (), None, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2, "gpu": 1}
    # Three trials on two GPUs: two of them share one.
    assert kept_for_trial(cuda, (), 3, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2, "gpu": 0.5}
    # Ray would wait forever for a GPU that it does not know.
    assert kept_for_trial(cuda, (), None, {"CPU": 8.0}) == {"cpu": 2}
    chosen = from_mapping({**SMALL, "device": "cuda:1", "num_workers": 2})
    assert kept_for_trial(chosen, (), None, {"CPU": 8.0, "GPU": 2.0}) == {"cpu": 2}


def test_nothing_is_kept_twice_for_trials_whose_runs_ask_the_cluster():
    there = {"CPU": 10.0, "GPU": 2.0}
    asking = {**SMALL, "runtime": "ray", "num_workers": 2, "resources": "env: {cpu: 2}, learner: {gpu: 1}"}
    config = from_mapping(asking)
    assert kept_for_trial(config, (), None, there) == {"cpu": 0.001}
    assert trials_that_fit(config, (), there) == 2
    assert trials_that_fit(config, (), {"CPU": 7.0, "GPU": 2.0}) == 1
    assert trials_that_fit(from_mapping({**SMALL, "runtime": "ray", "num_workers": 2}), (), there) is None
    # At most each of two environment processes has two policy nodes on its machine: 2 times 1 and 4 times 0.5 cores.
    nodes = {"policy_placement": "node", "policy_nodes": 2, "resources": "env: {cpu: 1}, policy: {cpu: 0.5}"}
    assert trials_that_fit(from_mapping({**asking, **nodes}), (), there) == 2


def test_as_many_trials_run_at_once_as_the_largest_of_them_has_room():
    asked = {"env": "X", "runtime": "ray", "num_workers": 2, "num_envs": 8, "resources": "learner: {gpu: 1}"}
    config = from_mapping(asked)
    assert trials_that_fit(config, (Search("learners", "choice", (1, 4)),), {"GPU": 8.0}) == 2
    config = from_mapping({**asked, "resources": "policy: {gpu: 1}", "policy_placement": "node"})
    assert trials_that_fit(config, (Search("policy_nodes", "choice", (1, 2)),), {"GPU": 8.0}) == 2


def test_a_trial_that_no_machine_has_room_for_is_told():
    machines = [{"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0}, {}]
    assert no_machine_fits({"cpu": 8}, machines) is None
    # Twelve cores in all do not help: a trial is on one machine.
    assert no_machine_fits({"cpu": 12}, machines) == (
        "no machine has room for a trial: each asks for 12 cores (--num_workers), and the largest machine has 8; give "
        "--num_workers 8 or less"
    )
    assert no_machine_fits({"cpu": 1}, []) is not None
