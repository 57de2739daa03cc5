"""A run whose cluster has lost its head ends in order, with a checkpoint of all that it has learned."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import penstock
from penstock.cluster import head
from penstock.cluster.head import HeadWatch
from penstock.saved_runs.checkpoints import list_checkpoints
from tests.children import newest_checkpoint
from tests.cluster.conftest import HOST
from tests.runtime.nodes import wait_until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_S", 0.01), ("ALARM_S", 0.1), ("SILENCE_S", 0.5)):
        monkeypatch.setattr(head, name, seconds)


@pytest.mark.usefixtures("impatient")
def test_a_head_that_is_silent_costs_one_checkpoint_and_then_ends_the_run() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        watch = HeadWatch(address, lambda: said.append("checkpoint"), said.append, "type it again")
        with watch:
            assert not wait_until(lambda: bool(said), 1.0)
            server.close()
            assert wait_until(lambda: len(said) == 2, 30)
    assert said[0] == "checkpoint"
    assert f"head at {address} has been silent" in said[1]
    assert said[1].endswith(", so the cluster is lost; type it again")


@pytest.mark.usefixtures("impatient")
def test_a_head_that_comes_back_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "SILENCE_S", 30.0)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with HeadWatch(f"127.0.0.1:{port}", lambda: said.append("checkpoint"), said.append, ""):
            server.close()
            assert wait_until(lambda: said == ["checkpoint"], 30)
            with socket.create_server(("127.0.0.1", port)) as again:
                # Each connection is a look.
                for _ in range(3):
                    again.accept()[0].close()
                monkeypatch.setattr(head, "SILENCE_S", 0.5)
                assert not wait_until(lambda: len(said) > 1, 1.0)


def test_a_head_is_not_blamed_for_the_time_in_which_the_launcher_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    # The seconds before each look, and whether the head answers then. It is not reached at the first look behind a
    # standstill: its own machine may still stand still.
    looks = [(1.0, True), (2 * head.SILENCE_S, False), (1.0, True)]
    now = 1000.0

    def opens(door: object) -> bool:
        return looks.pop(0)[1]

    def wait(seconds: float) -> bool:
        nonlocal now
        now += looks[0][0] if looks else 0.0
        return not looks

    monkeypatch.setattr(head, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(head.Door, "opens", opens)
    watch = HeadWatch("10.0.0.1:6379", lambda: said.append("checkpoint"), said.append, "")
    monkeypatch.setattr(watch, "_over", SimpleNamespace(wait=wait))
    watch._run()
    assert said == []
    # Later it is silent, and the launcher looks all the time.
    looks += [(1.0, False)] * int(head.SILENCE_S + 2)
    watch._run()
    assert [line.partition(" at")[0] for line in said] == ["checkpoint", "Ray's head"]


@pytest.mark.nightly  # Ray's minute has to pass.
@pytest.mark.timeout(400)
def test_a_launcher_has_more_than_a_minute_to_save_and_to_say_that_the_head_is_lost() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    lines = f"with joined({cluster.address!r}):\n    print('joined', flush=True)\n    sys.stdin.read()"
    code = f"import sys\nfrom penstock.cluster.connection import joined\n{lines}"
    try:
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
            try:
                assert launcher.stdout is not None
                assert b"joined" in launcher.stdout.readline()
                for process in psutil.Process().children(recursive=True):
                    if "gcs_server" in process.name():
                        os.kill(process.pid, signal.SIGKILL)
                with pytest.raises(subprocess.TimeoutExpired):
                    launcher.wait(75.0)
            finally:
                launcher.kill()
    finally:
        cluster.shutdown()


@pytest.mark.nightly  # A minute, most of it the silence that is waited for. Shorter: the two above.
@pytest.mark.timeout(400)
def test_a_run_whose_head_is_lost_saves_what_it_has_learned_and_goes_on_elsewhere(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    try:
        cluster.add_node(**HOST)
        flags = ["--num_workers", "4", "--timesteps", "100000000", "--save_interval", "1000000", "--eval_interval", "0"]
        where = ["--distributed", "True", "--address", cluster.address, "--log_dir", str(tmp_path)]
        words = [sys.executable, "-m", "penstock", "train", "--env", "CartPole-v1", *flags, *where]
        launcher = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        # The first copy for the deputy shows that the run goes on, on both machines.
        assert wait_until(lambda: bool(list(tmp_path.glob(".copies/*/checkpoints/*"))), 150)
        for process in psutil.Process().children(recursive=True):
            if "gcs_server" in process.name():
                os.kill(process.pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=150)
        assert launcher.returncode == 1
        assert "silent for 40 s, so the cluster is lost; penstock resume goes on with --address local" in errors
        assert "its last checkpoint, update " in errors
    finally:
        cluster.shutdown()
    (run,) = tmp_path.glob("[!.]*")
    assert [path.name for path in list_checkpoints(run)] == [newest_checkpoint(tmp_path)]
    update = int(newest_checkpoint(tmp_path).rpartition("-")[2])
    other = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    try:
        other.add_node(**HOST)
        there = {"address": other.address}
        longer = penstock.resume(run, settings=there, timesteps=2048 * 8 * (update + 2), quiet=True)
    finally:
        other.shutdown()
    assert longer.updates == update + 2
    assert f"Ray cluster at {there['address']}: 2 machines with 4 cores" in (run / "run.log").read_text()
    longer = penstock.resume(run, settings={"runtime": "local"}, timesteps=2048 * 8 * (update + 4), quiet=True)
    assert longer.updates == update + 4


@pytest.mark.nightly  # A minute, most of it the silence that is waited for. Shorter: those above, and test_evaluations.
@pytest.mark.timeout(400)
def test_an_evaluation_whose_head_is_lost_ends_with_one_line(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    places = tmp_path / "places"
    places.mkdir()
    (places / "gate").touch()
    settings = {"num_steps": 32, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 32, "timesteps": 64}
    own = {"env": "tests.cluster.test_evaluations:make_watched", "env_args": {"folder": str(places)}}
    run = penstock.train({**settings, **own, "log_dir": str(tmp_path), "eval_episodes": 0}, quiet=True).run_folder
    before = set(places.glob("process-*"))
    (places / "gate").unlink()
    cluster = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    try:
        cluster.add_node(**HOST)
        flags = ["--episodes", "5000", "--num_workers", "4", "--distributed", "True", "--address", cluster.address]
        words = [sys.executable, "-m", "penstock", "eval", str(run), *flags, "--keep", str(tmp_path / "kept")]
        launcher = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        # One process looks at the environment, and two play on each machine.
        assert wait_until(lambda: len(set(places.glob("process-*")) - before) >= 5, 150)
        for process in psutil.Process().children(recursive=True):
            if "gcs_server" in process.name():
                os.kill(process.pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=150)
    finally:
        (places / "gate").touch()
        cluster.shutdown()
    assert launcher.returncode == 1
    assert "so the cluster is lost; type the command again, with another folder for --keep" in errors
    assert "Traceback" not in errors
