"""The hosts of a run end together, however many there are."""

from collections.abc import Sequence
from typing import Any

import pytest
import ray

from penstock.cluster import machines
from penstock.cluster.machines import end_all


class Machine:
    """Notes what is asked of it."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name = name
        self._asked = asked

    def closing(self) -> str:
        self._asked.append(f"{self.name} closes")
        return self.name

    def end(self) -> None:
        self._asked.append(f"{self.name} ends")


def test_all_hosts_close_at_the_same_time_before_any_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def waited(closing: Sequence[str], *, num_returns: int, timeout: float) -> None:
        assert num_returns == len(closing)
        assert timeout == machines.END_LIMIT_S
        asked.append("waited")

    monkeypatch.setattr(ray, "wait", waited)
    hosts: Any = [Machine("a", asked), Machine("b", asked)]
    end_all(hosts)
    assert asked == ["a closes", "b closes", "waited", "a ends", "b ends"]
    # Ray refuses to wait for nothing.
    end_all([])
    assert asked.count("waited") == 1
