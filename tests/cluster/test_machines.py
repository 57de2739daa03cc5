"""What is asked of all machines of a run at the same time."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("error", [ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError])
def test_a_call_that_finds_no_room_here_is_answered_with_that_at_once(error: type[Exception]) -> None:
    def remote(*arguments: object) -> None:
        raise error("no room for 10 MB")

    machine = machines.Machine.__new__(machines.Machine)
    machine.actor = SimpleNamespace(feed=SimpleNamespace(remote=remote))
    replies: list[Any] = []
    machine.call("feed", lambda result, raised: replies.append((result, type(raised))), np.zeros(10))
    assert replies == [(None, error)]
