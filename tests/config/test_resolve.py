import dataclasses
import os

import pytest

from penstock.config.resolve import auto_backend, available_cores, has_compiler, resolve
from penstock.config.sources import from_mapping


@pytest.mark.parametrize(
    ("timesteps", "compiler", "backend"),
    [(299_999, True, "eager"), (300_000, True, "compiled"), (300_000, False, "eager"), (1_000, False, "eager")],
)
def test_compiling_has_to_pay_and_to_be_possible(timesteps, compiler, backend):
    assert auto_backend(timesteps, compiler=compiler) == backend


def test_nothing_that_the_config_can_decide_stays_auto(monkeypatch):
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    monkeypatch.setattr("penstock.config.resolve.has_compiler", lambda: True)
    run = resolve(from_mapping({"env": "X"})).run
    assert (run.num_workers, run.backend, run.threads) == (2, "compiled", 1)


def test_what_was_said_stays():
    config = from_mapping({"env": "X", "num_workers": 8, "backend": "eager", "threads": 3})
    assert resolve(config) == config


def test_resolving_changes_nothing_else():
    config = from_mapping({"env": "X", "seed": 7})
    decided = {"num_workers", "backend", "threads"}
    before, after = dataclasses.asdict(config.run), dataclasses.asdict(resolve(config).run)
    assert {name for name in before if before[name] != after[name]} <= decided


def test_cores_are_those_that_this_process_may_use():
    assert available_cores() == len(os.sched_getaffinity(0))


def test_a_compiler_that_is_not_there_is_not_found(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not has_compiler()
    monkeypatch.setenv("CXX", "sh")
    assert has_compiler()
