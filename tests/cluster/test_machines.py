"""What is asked of all machines of a run at the same time."""

from collections.abc import Sequence
from typing import Any

import pytest
import ray

from penstock.cluster import machines
from penstock.cluster.machines import answers, stacks_on


class Machine:
    """Its answer is asked for by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stacks(self, groups: Sequence[str]) -> str:
        return self.name


def test_nothing_more_is_waited_for_once_the_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine has failed, one answers at the second look, one never."""
    looks: list[list[str]] = []

    def waited(asked: list[str], *, num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        looks.append(asked)
        assert num_returns == len(asked)
        assert timeout == machines.ANSWERS_LOOK_S
        ready = {"lost"} if len(looks) == 1 else {"late"}
        return [name for name in asked if name in ready], [name for name in asked if name not in ready]

    def answer(name: str) -> str:
        if name == "lost":
            raise ray.exceptions.ActorUnavailableError("Socket closed", None)
        return f"{name} has answered"

    monkeypatch.setattr(ray, "wait", waited)
    monkeypatch.setattr(ray, "get", answer)
    asked: Any = {0: "lost", 1: "late", 2: "silent"}
    assert answers(asked, 600.0, lambda: len(looks) == 3) == {1: "late has answered"}
    assert looks == [["lost", "late", "silent"], ["late", "silent"], ["silent"]]
    assert answers({}, 600.0) == {}


def test_all_machines_look_at_their_stacks_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One says nothing in time, and one is lost before its answer is read."""
    waits: list[list[str]] = []

    def waited(asked: list[str], *, num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        waits.append(asked)
        assert num_returns == len(asked)
        assert timeout == machines.STACKS_LIMIT_S
        return [name for name in asked if name != "silent"], ["silent"]

    def answer(name: str) -> dict[str, str]:
        if name == "lost":
            raise ray.exceptions.ActorUnavailableError("Socket closed", None)
        return {"env.0": "in step", "policy.0": "in act"}

    monkeypatch.setattr(ray, "wait", waited)
    monkeypatch.setattr(ray, "get", answer)
    # On each machine the policy node has the name of that of home.
    asked: Any = {
        Machine("lost"): {"env.3": "env.3"},
        Machine("silent"): {"policy.0": "policy.0.2"},
        Machine("a"): {"env.0": "env.0", "policy.0": "policy.0.1"},
    }
    assert stacks_on(asked) == {
        "env.0": "in step",
        "policy.0.1": "in act",
        "policy.0.2": "silent does not answer",
        "env.3": "lost does not answer",
    }
    assert waits == [["lost", "silent", "a"]]
    # Ray refuses to wait for nothing.
    assert stacks_on({}) == {}
    assert len(waits) == 1


@pytest.mark.parametrize(("variable", "shown"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_what_other_machines_print_is_passed_on_if_a_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, shown: bool
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.delenv(machines.REMOTE_OUTPUT, raising=False)
    if variable is not None:
        monkeypatch.setenv(machines.REMOTE_OUTPUT, variable)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **settings: asked.append(settings))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with machines.joined("local"):
        pass
    assert [settings["log_to_driver"] for settings in asked] == [shown]


@pytest.mark.parametrize(("cores", "counted"), [([2.0], None), ([2.0, 4.0], 6), ([2.0, 0.0, 16.0], 18)])
def test_the_cores_of_a_cluster_are_counted_if_it_has_several_machines(
    monkeypatch: pytest.MonkeyPatch, cores: list[float], counted: int | None
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": count}} for count in cores]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"CPU": 99.0}}])
    with machines.counted("auto", ()) as found:
        assert found == counted


def test_machines_that_play_are_those_with_a_core_the_launchers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"NodeID": name, "Alive": name != "gone", "Resources": {"CPU": cores}}
        for name, cores in {"c": 2.0, "b": 1.0, "none": 0.0, "gone": 8.0, "own": 1.0}.items()
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(machines, "own_id", lambda: "own")
    assert [node["NodeID"] for node in machines.with_cores()] == ["own", "b", "c"]
    # If no machine has a core, the launcher's plays alone.
    for node in nodes:
        node["Resources"] = {"CPU": 0.0}
    assert [node["NodeID"] for node in machines.with_cores()] == ["own"]
