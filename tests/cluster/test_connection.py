"""How a process joins a Ray cluster."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services, utils

from penstock.cluster import REMOTE_OUTPUT, connection
from penstock.errors import ConfigError, PenstockError


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


def connected_by_the_program(monkeypatch: pytest.MonkeyPatch, env: dict[str, Any]) -> None:
    """A program that has called ``ray.init(runtime_env=env)``, in a cluster of several machines."""
    context = SimpleNamespace(gcs_address="10.0.0.1:6379", runtime_env=env)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(connection.global_worker, "mode", ray.SCRIPT_MODE)
    monkeypatch.setattr(connection, "cores", lambda: 8)


def test_a_program_that_has_joined_another_cluster_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    connected_by_the_program(monkeypatch, {})
    says = r"^address is {}, and this program is connected to the Ray cluster at 10\.0\.0\.1:6379 already, by ray.init;"
    for other in ("local", "10.0.0.2:6379"):
        with pytest.raises(ConfigError, match=says.format(other)):
            connection.joined(other).__enter__()
        with pytest.raises(ConfigError, match=says.format(other)):
            connection.check_address(other)
    # By a name, or from the machine itself, it is the same head.
    monkeypatch.setattr(socket, "gethostbyname", lambda host: {"head": "10.0.0.1"}.get(host, host))
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    for same in (None, "auto", "10.0.0.1:6379", "head:6379", "localhost:6379"):
        connection.check_address(same)
        with connection.joined(same):
            pass


def test_code_that_the_programs_own_connection_does_not_bring_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_games.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    connected_by_the_program(monkeypatch, {})
    with pytest.raises(
        ConfigError, match=r"^other machines of the cluster do not have own_games\.py, because this pro"
    ):
        connection.joined(None, ["own_games"]).__enter__()
    with connection.joined(None, ["numpy"]):
        pass
    connected_by_the_program(monkeypatch, {"working_dir": "gcs://_ray_pkg_1.zip"})
    with connection.joined(None, ["own_games"]):
        pass
    # There is only this machine.
    connected_by_the_program(monkeypatch, {})
    monkeypatch.setattr(connection, "cores", lambda: None)
    with connection.joined(None, ["own_games"]):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_ray_starts_is_not_lost_and_waits_until_ray_can_end(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    done: list[str] = []

    def starts(**_: object) -> None:
        # As Ray does it; and a library may swallow what is raised inside it.
        utils.set_sigterm_handler(lambda *_: done.append("Ray ends the process"))
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        done.append("started")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", starts)
    monkeypatch.setattr(ray, "shutdown", lambda: done.append("ended"))
    # In the background of a shell SIGINT is ignored.
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            connection.joined("local").__enter__()
        assert done == ["started", "ended"]
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_a_directory_that_was_removed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(PenstockError, match="the current directory was removed"), connection.joined("local"):
        pass
