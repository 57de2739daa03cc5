"""The public names of penstock: unique, complete, importable, and cheap until they are used. ruff keeps them sorted."""

import inspect
import subprocess
import sys

import penstock
import penstock.errors

CALLS = {"Config", "ParallelPPO", "Policy", "Result", "evaluate", "resume", "train"}


def test_no_name_stands_twice() -> None:
    assert len(penstock.__all__) == len(set(penstock.__all__))


def test_every_name_can_be_had() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert set(penstock.__all__) <= set(dir(penstock))


def test_what_a_user_calls_is_there() -> None:
    assert set(penstock.__all__) >= CALLS


def test_every_error_is_there() -> None:
    errors = {name for name, value in vars(penstock.errors).items() if inspect.isclass(value)}
    assert {name for name in errors if issubclass(getattr(penstock.errors, name), Exception)} <= set(penstock.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(penstock, "no_such_name")


def test_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, penstock; print(*sorted({'torch', 'numpy', 'gymnasium', 'matplotlib', 'ray'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []
