"""How a process joins a Ray cluster."""

import os
import subprocess
import sys
from typing import Any

import pytest
import ray
from ray._private import services

from penstock.cluster import connection


@pytest.mark.parametrize(("variable", "shown"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_what_other_machines_print_is_passed_on_if_a_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, shown: bool
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.delenv(connection.REMOTE_OUTPUT, raising=False)
    if variable is not None:
        monkeypatch.setenv(connection.REMOTE_OUTPUT, variable)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **settings: asked.append(settings))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with connection.joined("local"):
        pass
    assert [settings["log_to_driver"] for settings in asked] == [shown]


def test_a_signal_to_the_group_does_not_reach_what_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: begun.append(services.ConsolePopen(argv)))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    before = services.ConsolePopen
    with connection.joined("local"):
        (process,) = begun
        try:
            assert os.getpgid(process.pid) == process.pid
        finally:
            process.kill()
            process.wait()
    assert services.ConsolePopen is before
