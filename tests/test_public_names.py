"""The public names of penstock: unique, complete, importable, and cheap until they are used. ruff keeps them sorted."""

import inspect
import re
import subprocess
import sys
import textwrap
from dataclasses import is_dataclass

import pytest

import penstock
import penstock.errors

CALLS = {"Config", "ParallelPPO", "Policy", "Result", "evaluate", "resume", "train"}
NOT_CONSTRUCTED = {"BufferWriter", "Game", "Policy", "RemotePolicy", "State"}
"""Classes whose objects penstock gives to the user, who never calls their constructors."""
IN_HELP = {"RunConfig"}
"""`penstock train --help` describes its fields."""
WITH_EXAMPLE = {
    "Agent",
    "DistributedPPO",
    "MPPI",
    "ParallelEnvironmentCollector",
    "ParallelPPO",
    "ReplayBuffer",
    "draw",
    "evaluate",
    "export",
    "from_mapping",
    "load_policy",
    "read_metrics",
    "resume",
    "retrain",
    "train",
    "verify",
    "watch",
    "write_episodes",
}


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


def described(name: str) -> bool:
    """Whether the docstring of a public name has to describe arguments."""
    thing = getattr(penstock, name)
    return name not in NOT_CONSTRUCTED | IN_HELP and not (inspect.isclass(thing) and issubclass(thing, Exception))


@pytest.mark.parametrize("name", sorted(filter(described, penstock.__all__)))
def test_the_docstring_describes_every_argument(name: str) -> None:
    thing = getattr(penstock, name)
    told = set(re.findall(r"^    (\w+):", inspect.getdoc(thing) or "", flags=re.MULTILINE))
    section = "Attributes:" if is_dataclass(thing) else "Args:"
    wanted = set(inspect.signature(thing).parameters) - {"args", "kwargs"}
    assert wanted <= told, f"{name} does not describe {wanted - told}"
    assert not wanted or section in inspect.getdoc(thing)


@pytest.mark.parametrize("name", sorted(WITH_EXAMPLE))
def test_the_example_of_a_docstring_is_python_and_names_what_there_is(name: str) -> None:
    found = re.search(r"^Example:\n((?:    .*\n?|\n)+)", inspect.getdoc(getattr(penstock, name)), flags=re.MULTILINE)
    assert found is not None
    code = textwrap.dedent(found[1])
    compile(code, name, "exec")
    assert name in code
    assert set(re.findall(r"\bpenstock\.(\w+)", code)) <= set(penstock.__all__)
