"""How a process joins a Ray cluster."""

import os
import subprocess
import sys
from typing import Any

import pytest
import ray
from ray._private import services

from penstock.cluster import REMOTE_OUTPUT, connection


@pytest.mark.parametrize(("variable", "shown"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_what_other_machines_print_is_passed_on_if_a_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, shown: bool
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.delenv(REMOTE_OUTPUT, raising=False)
    if variable is not None:
        monkeypatch.setenv(REMOTE_OUTPUT, variable)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **settings: asked.append(settings))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with connection.joined("local"):
        pass
    assert [settings["log_to_driver"] for settings in asked] == [shown]


TOLD = """
import penstock.cluster
from ray._private.worker import print_to_stdstream
for line in ("The node with node id: 1 has been marked dead because the detector has missed too many heartbeats",
             "Raylet is terminated. Termination is unexpected.",
             "1 Workers (tasks / actors) killed due to memory pressure (OOM)"):
    print_to_stdstream({"lines": [line], "pid": "raylet", "ip": "", "is_err": False}, ignore_prefix=False)
"""


@pytest.mark.parametrize(("variable", "times"), [("", 0), ("1", 1)])
def test_rays_words_on_a_lost_machine_do_not_come_between_the_lines_of_a_run(variable: str, times: int) -> None:
    unset = {name: value for name, value in os.environ.items() if name != "RAY_DEDUP_LOGS_SKIP_REGEX"}
    argv = [sys.executable, "-c", TOLD]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**unset, REMOTE_OUTPUT: variable})
    assert done.stdout.count("marked dead") == times
    # What no line of the run says stays.
    assert "Raylet is terminated" in done.stdout
    assert "memory pressure" in done.stdout


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
