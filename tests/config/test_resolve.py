import dataclasses
import os

import pytest

from penstock.config.resolve import auto_backend, auto_threads, available_cores, has_compiler, resolve
from penstock.config.sources import from_mapping


@pytest.mark.parametrize(
    ("timesteps", "fused", "compiler", "backend"),
    [
        (1_000, True, False, "fused"),
        (1_000_000, True, True, "fused"),
        (299_999, False, True, "eager"),
        (300_000, False, True, "compiled"),
        (300_000, False, False, "eager"),
        (1_000, False, False, "eager"),
    ],
)
def test_fused_where_it_applies_else_compiling_has_to_pay_and_to_be_possible(timesteps, fused, compiler, backend):
    assert auto_backend(timesteps, fused=fused, compiler=compiler) == backend


@pytest.mark.parametrize(
    ("backend", "cores", "workers", "lock_step", "threads"),
    [
        ("fused", 1, 1, True, 1),
        ("fused", 2, 2, True, 2),
        ("fused", 16, 4, True, 2),
        ("fused", 2, 2, False, 1),
        ("fused", 4, 2, False, 2),
        ("fused", 4, 3, False, 1),
        ("fused", 16, 4, False, 2),
        ("eager", 16, 4, True, 1),
        ("compiled", 2, 2, True, 1),
    ],
)
def test_threads_are_those_that_have_work_and_a_core(backend, cores, workers, lock_step, threads):
    assert auto_threads(backend, cores, workers, lock_step=lock_step) == threads


@pytest.mark.parametrize(
    ("backend", "cores", "workers", "lock_step", "threads"),
    [
        ("eager", 2, 2, True, 2),
        ("compiled", 16, 8, True, 16),
        ("eager", 16, 4, False, 12),
        ("eager", 2, 2, False, 1),
        ("fused", 16, 4, True, 2),
    ],
)
def test_convolutions_take_every_core_that_is_free(backend, cores, workers, lock_step, threads):
    assert auto_threads(backend, cores, workers, lock_step=lock_step, image=True) == threads


def test_nothing_that_the_config_can_decide_stays_auto(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    monkeypatch.setattr("penstock.config.resolve.has_compiler", lambda: True)
    run = resolve(from_mapping({"env": "X"}), fused=False).run
    assert (run.num_workers, run.backend, run.threads) == (4, "compiled", 1)
    run = resolve(from_mapping({"env": "X"}), fused=True).run
    assert (run.num_workers, run.backend, run.threads) == (4, "fused", 2)


@pytest.mark.parametrize("fused", [False, True])
def test_what_was_said_stays(fused):
    config = from_mapping({"env": "X", "num_workers": 8, "backend": "eager", "threads": 3})
    assert resolve(config, fused=fused) == config


def test_the_fused_update_records_the_threads_that_it_has_work_for():
    assert resolve(from_mapping({"env": "X", "backend": "fused", "threads": 3}), fused=True).run.threads == 2
    assert resolve(from_mapping({"env": "X", "backend": "fused", "threads": 1}), fused=True).run.threads == 1


def test_resolving_changes_nothing_else():
    config = from_mapping({"env": "X", "seed": 7})
    decided = {"num_workers", "backend", "threads"}
    before, after = dataclasses.asdict(config.run), dataclasses.asdict(resolve(config, fused=True).run)
    assert {name for name in before if before[name] != after[name]} <= decided


def test_cores_are_those_that_this_process_may_use():
    assert available_cores() == len(os.sched_getaffinity(0))


def test_a_compiler_that_is_not_there_is_not_found(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not has_compiler()
    monkeypatch.setenv("CXX", "sh")
    assert has_compiler()
