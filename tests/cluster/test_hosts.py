"""One run on several hosts: the same bits as on one machine, and hosts may be lost."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.cluster.claims import Claims, release_claims
from penstock.cluster.connection import joined
from penstock.cluster.places import free_of, rooms
from penstock.errors import ConfigError, NodeError
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies import training
from tests.children import killing, newest_checkpoint, of_group
from tests.cluster.conftest import HOST
from tests.end_to_end.test_long_episodes import learned
from tests.end_to_end.test_same_answer import fingerprint
from tests.gated import GatedCartPole
from tests.runtime.nodes import wait_until

SMALL = {"env": "CartPole-v1", "num_steps": 32, "timesteps": 512, "eval_episodes": 4, "seed": 3}
PPO = {"epochs": 2, "mini_batch_size": 32, "backend": "fused"}
SAC = {"algo": "sac", "env": "Pendulum-v1", "num_steps": 8, "min_rows": 64, "mini_batch_size": 16, "timesteps": 192}
APEX = {"algo": "apex", "num_steps": 8, "min_rows": 64, "mini_batch_size": 16, "timesteps": 192}
APEX = {**APEX, "sync_mode": "blocking"}


def train(log_dir: Path, **settings: object) -> Result:
    return penstock.train(penstock.from_mapping({**SMALL, "log_dir": str(log_dir), **settings}), quiet=True)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("reference"), **PPO, runtime="inline"))


# Twenty seconds and more. Shorter: ``test_cut.py`` and ``test_relay.py`` without processes.
@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_hosts_do_not_change_a_bit(cluster, tmp_path: Path, reference, workers: int) -> None:
    # Shares go by cores: one worker is at home, two are on two hosts, four on three.
    result = train(tmp_path, **PPO, runtime="ray", address=cluster.address, num_workers=workers)
    assert fingerprint(result) == reference


def make_other_on_hosts() -> object:
    """CartPole whose observation has one number more on a host: Ray's processes there have this variable."""
    env = gymnasium.make("CartPole-v1")
    if "RAY_RAYLET_PID" not in os.environ:
        return env
    wider = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: np.append(obs, obs[:1]), wider)


# Ten seconds. Shorter: ``tests/envs/test_spaces.py``, without a cluster.
@pytest.mark.nightly
def test_an_environment_that_differs_on_a_host_is_refused_with_the_reason(cluster, tmp_path: Path) -> None:
    settings = {**PPO, "env": f"{__name__}:make_other_on_hosts", "max_restarts": 0}
    why = r"differs on machine .* from that of the run: .*float32 \[5\] instead of float32 \[4\]; install the same"
    with pytest.raises(NodeError) as failed:
        train(tmp_path, **settings, runtime="ray", address=cluster.address, num_workers=4)
    # What the command line shows in place of the traceback.
    assert re.search(why, failed.value.line)


@pytest.mark.nightly  # Ten seconds. Shorter: ``tests/config/test_resolve.py`` and ``test_machines.py``.
def test_workers_that_are_left_out_follow_from_the_cores_of_all_machines(cluster, tmp_path: Path) -> None:
    result = train(tmp_path, **PPO, num_envs=8, runtime="ray", address=cluster.address)
    # Four fifths of six cores are 4.8.
    assert RunFolder(result.run_folder).read_config().run.num_workers == 4


def make_talking(gate: str) -> object:
    """Gated CartPole that says in which process it is made: Ray's processes on a host have this variable."""
    sys.stdout.write(f"made {'on a host' if 'RAY_RAYLET_PID' in os.environ else 'at home'}\n")
    sys.stdout.flush()
    return GatedCartPole(gate)


# Twenty seconds. Shorter: ``test_machines.py``, without a cluster.
@pytest.mark.nightly
@pytest.mark.parametrize("shown", [True, False])
def test_what_is_printed_on_hosts_is_shown_if_the_user_asks_for_it(cluster, tmp_path: Path, shown: bool) -> None:
    gate, told_on_hosts = tmp_path / "gate", "made on a host"
    settings = {**SMALL, **PPO, "env": f"{__name__}:make_talking", "num_workers": 4, "timesteps": 25600}
    settings |= {"env_args": {"gate": str(gate)}}
    told = {**settings, "log_dir": tmp_path, "runtime": "ray", "address": cluster.address}
    flags = [word for name, value in told.items() for word in (f"--{name}", as_flag(value))]
    variables = os.environ | ({"PENSTOCK_REMOTE_OUTPUT": "1"} if shown else {})
    argv = [sys.executable, "-m", "penstock", "train", *flags]
    output = tmp_path / "output"

    def said() -> str:
        return output.read_text(errors="replace")

    with output.open("wb") as file:
        running = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT, env=variables)
    try:
        # Ray passes lines on a while after they were printed, and the last ones of a run may not come.
        arrived = wait_until(lambda: told_on_hosts in said(), 150) if shown else True
    finally:
        gate.touch()
    assert running.wait() == 0
    assert arrived
    assert "made at home" in said()
    assert (told_on_hosts in said()) == shown


def make_warning() -> object:
    """CartPole that warns where it is made on a host."""
    if "RAY_RAYLET_PID" in os.environ:
        logging.getLogger("plant").warning("made on a host")
    return gymnasium.make("CartPole-v1")


@pytest.mark.nightly  # Ten seconds. Shorter: ``test_relay.py``, without a cluster.
def test_what_a_node_on_a_host_warns_of_stands_in_the_log_with_its_machine(cluster, tmp_path: Path) -> None:
    settings = {**PPO, "env": f"{__name__}:make_warning"}
    result = train(tmp_path, **settings, runtime="ray", address=cluster.address, num_workers=4)
    log = (result.run_folder / "run.log").read_text()
    assert re.search(r" WARNING env\.\d on machine \S+ \(\w+\): plant: made on a host$", log, re.MULTILINE)


@pytest.mark.nightly  # Six seconds each. Shorter: the run of ``test_learners.py`` has a table, too.
@pytest.mark.parametrize("settings", [SAC, APEX], ids=["sac", "apex"])
def test_learning_from_a_table_does_not_change_a_bit(cluster, tmp_path: Path, settings) -> None:
    alone = train(tmp_path / "alone", **settings, runtime="local", num_workers=4)
    spread = train(tmp_path / "spread", **settings, runtime="ray", address=cluster.address, num_workers=4)
    assert fingerprint(spread) == fingerprint(alone)


PLANT = {"env": "tests.environments:PlantEnv", "num_steps": 24, "num_envs": 8, "eval_episodes": 0, "save_interval": 4}


@pytest.mark.nightly  # Twenty-five seconds. Shorter: ``tests/end_to_end/test_long_episodes.py``, on one machine.
def test_long_episodes_go_on_from_snapshots_wherever_they_are_stepped(cluster, tmp_path: Path, monkeypatch) -> None:
    # A snapshot is due at the end of every second rollout.
    monkeypatch.setattr(training, "ACTION_LOG_CAPACITY", 60)
    settings = {**PPO, **PLANT, "num_workers": 4, "timesteps": 24 * 8 * 30}
    whole = train(tmp_path / "whole", **settings, runtime="inline")
    with killing([f"env.{worker}" for worker in (1, 2)], tmp_path / "spread") as killed:
        spread = train(tmp_path / "spread", **settings, runtime="ray", address=cluster.address)
    assert killed
    assert spread.not_restored == 0
    assert learned(spread) == learned(whole)
    # The checkpoint holds the snapshots of lanes that other machines have stepped.
    assert load_checkpoint(find_checkpoint(spread.run_folder)).arrays["snapshots_size"].all()
    config = spread.run_folder / "config.toml"
    config.write_text(
        config.read_text()
        .replace('runtime = "ray"', 'runtime = "inline"')
        .replace(f'address = "{cluster.address}"\n', "")
    )
    more = 24 * 8 * 32
    longer = train(tmp_path / "longer", **{**settings, "timesteps": more}, runtime="inline")
    resumed = penstock.resume(spread.run_folder, timesteps=more, quiet=True)
    assert resumed.not_restored == 0
    assert learned(resumed) == learned(longer)


class Launcher:
    """A run of its own process, whose steps are slow until the gate is open: so things can happen meanwhile.

    It runs on the machine of the cluster with the address ``machine``; without one, on the head.
    """

    def __init__(self, folder: Path, address: str, updates: int, machine: str = "", **settings: object) -> None:
        self.settings = {
            **SMALL,
            "env": "tests.gated:GatedCartPole",
            "num_workers": 4,
            "save_interval": 2,
            **settings,
        }
        self.settings |= {"timesteps": 256 * updates, "env_args": {"gate": str(folder / "gate")}}
        self.log_dir = folder / "spread"
        told = {**self.settings, "log_dir": self.log_dir, "runtime": "ray", "address": address}
        flags = [word for name, value in told.items() for word in (f"--{name}", as_flag(value))]
        module = ["tests.cluster.on_machine", machine] if machine else ["penstock"]
        self.process = subprocess.Popen([sys.executable, "-m", *module, "train", *flags])

    def run_folder(self) -> Path:
        """The folder of its run. A copy of it, in a hidden folder, may be left of a lost machine."""
        (found,) = self.log_dir.glob("[!.]*")
        return found

    def has(self, count: int, text: str) -> bool:
        """Whether its metrics hold a text so many times."""
        return "".join(path.read_text() for path in self.log_dir.glob("*/metrics.jsonl")).count(text) >= count

    def next_checkpoint(self) -> bool:
        """Wait for the next checkpoint. False if there is none for too long."""
        before = newest_checkpoint(self.log_dir)
        return wait_until(lambda: newest_checkpoint(self.log_dir) > before, 150)


def as_flag(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


# Forty seconds. Shorter: all hosts of ``test_learners.py`` are lost, and ``test_places.py`` places a host that joins.
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("env", ["GatedCartPole", "make_gated_carts"])
def test_a_host_that_joins_and_is_lost_changes_no_bit(cluster, tmp_path: Path, env: str) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=100, **PPO, env=f"tests.gated:{env}")
    try:
        assert launcher.next_checkpoint()
        # It has 8 of 14 cores: two of four workers move there.
        host = cluster.add_node(**{**HOST, "num_cpus": 8})
        assert wait_until(lambda: launcher.has(2, "moved to a machine that has joined"), 150)
        assert launcher.next_checkpoint()
        cluster.remove_node(host, allow_graceful=False)
        assert wait_until(lambda: launcher.has(2, "was lost with its machine"), 150)
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


def test_what_nodes_ask_for_is_kept_for_them(cluster, monkeypatch) -> None:
    monkeypatch.setattr("penstock.cluster.claims.WAIT_S", 1)
    asked = {"cpu": 1.5}
    with joined(cluster.address):
        with Claims() as mine, Claims() as others:
            mine.take("learner", None, asked)
            mine.wait({"learner": asked})
            others.take("env.0", None, asked)
            with pytest.raises(ConfigError, match=r"hold {cpu: 1\.5} that env\.0 asks for"):
                others.wait({"env.0": asked})
            # A deputy releases what a lost run had claimed.
            release_claims(mine.run)
            monkeypatch.setattr("penstock.cluster.claims.WAIT_S", 60)
            others.wait({"env.0": asked})
        # What is given back is free again.
        with Claims() as later:
            later.take("learner", None, {"cpu": 2})
            later.wait({"learner": {"cpu": 2}})


@pytest.mark.parametrize("parts", [(0.4, 0.4, 0.4, 0.4, 0.4), (0.5, 0.3, 1.0), (0.3, 0.8, 0.2, 0.7), (0.6, 0.6, 0.5)])
def test_ray_grants_the_parts_of_gpus_that_have_room(cluster, parts: tuple[float, ...]) -> None:
    machine = cluster.add_node(**HOST, num_gpus=2)
    held: list[dict[str, float]] = []
    try:
        with joined(cluster.address), Claims() as claims:
            for number, part in enumerate(parts):
                asked = {"gpu": part}
                room = rooms(free_of({"gpu": 2.0}, held), asked) >= 1
                claims.ask(f"env.{number}", asked)
                assert claims._open[f"env.{number}"].wait(30 if room else 2) == room
                held.append(asked)
    finally:
        cluster.remove_node(machine)


def test_what_is_asked_for_elsewhere_is_not_granted_on_the_launchers_machine(cluster) -> None:
    cores = {"cpu": 2}
    with joined(cluster.address), Claims() as claims:
        with Claims() as others:
            for number in range(2):
                others.ask_elsewhere(f"env.{number}", cores)
            assert all(claim.wait(30) for claim in others._open.values())
            # Both other machines are full. The launcher's has two cores, too.
            claims.ask_elsewhere("learner.1", cores)
            assert not claims._open["learner.1"].wait(2)
            claims.ask("env.2", cores)
            assert claims._open["env.2"].wait(30)
        assert claims._open["learner.1"].wait(30)


@pytest.mark.timeout(400)
def test_a_launcher_that_is_killed_leaves_no_process(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=1000, **PPO)
    try:
        assert launcher.next_checkpoint()
        assert all(of_group(f"env.{worker}") for worker in range(4))
    finally:
        launcher.process.kill()
        launcher.process.wait()
    assert wait_until(lambda: not any(of_group(f"env.{worker}") for worker in range(4)), 30)
