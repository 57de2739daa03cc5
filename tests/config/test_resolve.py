import dataclasses
import os

import pytest

from penstock.config.resolve import Demand, auto_backend, auto_threads, available_cores, has_compiler, resolve
from penstock.config.sources import from_mapping

NARROW, WIDE = 300_000, 17_000_000
"""Multiplications of a minibatch: 64 rows in two layers of 64, and 256 rows in two layers of 256."""


@pytest.mark.parametrize(
    ("timesteps", "gradient_steps", "fused", "compiler", "backend"),
    [
        (1_000, None, True, False, "fused"),
        (1_000_000, None, True, True, "fused"),
        (299_999, None, False, True, "eager"),
        (300_000, None, False, True, "compiled"),
        (300_000, None, False, False, "eager"),
        (1_000, None, False, False, "eager"),
        (20_000, 19_999, False, True, "eager"),
        (20_000, 20_000, False, True, "compiled"),
        (20_000, 20_000, False, False, "eager"),
        (1_000_000, 100, False, True, "eager"),
    ],
)
def test_fused_where_it_applies_else_compiling_has_to_pay_and_to_be_possible(
    timesteps, gradient_steps, fused, compiler, backend
):
    assert auto_backend(timesteps, Demand(fused, NARROW, gradient_steps), compiler=compiler, gpu=False) == backend


@pytest.mark.parametrize(("eager", "backend"), [(False, "compiled"), (True, "eager")])
def test_on_a_gpu_the_update_is_captured_which_needs_no_compiler_and_pays_at_once(eager: bool, backend: str) -> None:
    demand = Demand(fused=False, multiplications=NARROW, eager=eager)
    assert auto_backend(1_000, demand, compiler=False, gpu=True) == backend


@pytest.mark.parametrize(
    ("backend", "free", "multiplications", "threads"),
    [
        ("fused", 1, NARROW, 1),
        ("fused", 16, NARROW, 2),
        ("fused", 16, WIDE, 2),
        ("eager", 16, NARROW, 1),
        ("compiled", 2, NARROW, 1),
        ("eager", 2, WIDE, 2),
        ("compiled", 16, WIDE, 16),
        ("compiled", 1, WIDE, 1),
    ],
)
def test_threads_are_those_that_have_work_and_a_core(backend, free, multiplications, threads):
    assert auto_threads(backend, free, Demand(backend == "fused", multiplications)) == threads


@pytest.mark.parametrize(
    ("sync_mode", "gradient_steps", "learners", "threads"),
    [
        ("blocking", None, 1, 16),
        ("non_blocking", None, 1, 12),
        ("non_blocking", 1_000, 1, 16),
        ("non_blocking", 1_000, 2, 8),
        ("blocking", 1_000, 3, 5),
    ],
)
def test_learners_share_the_cores_that_environments_leave_them(
    monkeypatch, sync_mode, gradient_steps, learners, threads
):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 16)
    config = from_mapping({"env": "X", "num_workers": 4, "num_envs": 4, "sync_mode": sync_mode, "learners": learners})
    assert resolve(config, Demand(False, WIDE, gradient_steps)).run.threads == threads


def test_nothing_that_the_config_can_decide_stays_auto(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    monkeypatch.setattr("penstock.config.resolve.has_compiler", lambda: True)
    run = resolve(from_mapping({"env": "X"}), Demand(False, NARROW)).run
    assert (run.num_workers, run.backend, run.threads, run.sync_mode) == (4, "compiled", 1, "blocking")
    run = resolve(from_mapping({"env": "X"}), Demand(True, NARROW)).run
    assert (run.num_workers, run.backend, run.threads) == (4, "fused", 2)


def test_the_sync_mode_is_the_algorithms_and_decides_the_workers(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    run = resolve(from_mapping({"env": "X"}), Demand(True, NARROW, sync_mode="non_blocking")).run
    assert (run.sync_mode, run.num_workers) == ("non_blocking", 2)


def test_on_a_cluster_the_cores_of_all_machines_decide_the_workers(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 2)
    config, demand = from_mapping({"env": "X", "num_envs": 64, "runtime": "ray"}), Demand(True, NARROW)
    assert resolve(config, demand).run.num_workers == 2
    assert resolve(config, demand, lambda: 40).run.num_workers == 32
    # Four fifths of 40 cores are 32, and each process asks for 4 of them.
    for asked, workers in ((4, 8), (0.5, 32)):
        asking = from_mapping({"env": "X", "num_envs": 64, "runtime": "ray", "resources": f"env: {{cpu: {asked}}}"})
        assert resolve(asking, demand, lambda: 40).run.num_workers == workers


@pytest.mark.parametrize("fused", [False, True])
def test_what_was_said_stays(fused, monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    config = from_mapping({"env": "X", "num_workers": 8, "backend": "eager", "threads": 3, "sync_mode": "blocking"})
    assert resolve(config, Demand(fused, NARROW, sync_mode="non_blocking")) == config


@pytest.mark.parametrize("backend", ["eager", "compiled"])
def test_no_learner_gets_more_threads_than_there_are_cores(backend, monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    config = from_mapping({"env": "X", "backend": backend, "threads": 99})
    assert resolve(config, Demand(False, NARROW)).run.threads == 4


def test_the_fused_update_records_the_threads_that_it_has_work_for(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    assert resolve(from_mapping({"env": "X", "backend": "fused", "threads": 3}), Demand(True, NARROW)).run.threads == 2
    assert resolve(from_mapping({"env": "X", "backend": "fused", "threads": 1}), Demand(True, NARROW)).run.threads == 1


def test_resolving_changes_nothing_else():
    config = from_mapping({"env": "X", "seed": 7})
    decided = {"sync_mode", "num_workers", "backend", "threads"}
    before, after = dataclasses.asdict(config.run), dataclasses.asdict(resolve(config, Demand(True, NARROW)).run)
    assert {name for name in before if before[name] != after[name]} <= decided


def test_cores_are_those_that_this_process_may_use():
    assert available_cores() == len(os.sched_getaffinity(0))


def test_a_compiler_that_is_not_there_is_not_found(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not has_compiler()
    monkeypatch.setenv("CXX", "sh")
    assert has_compiler()
