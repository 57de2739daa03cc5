"""Learners on several hosts: the bits of one machine, also when a host is lost with its learner."""

import contextlib
import mmap
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.cluster import relay
from penstock.cluster.machines import Machine
from penstock.errors import CheckpointError
from penstock.memory import table_pages
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, load_table
from penstock.saved_runs.run_folder import RunFolder
from tests.children import of_group
from tests.cluster.conftest import HOST
from tests.cluster.test_hosts import APEX, Launcher, train
from tests.end_to_end.test_same_answer import fingerprint
from tests.gated import GatedCartPole
from tests.runtime.nodes import wait_until

EAGER = {"epochs": 2, "backend": "eager", "sync_mode": "blocking"}
THREE = {"learners": 3, "num_workers": 3, "num_envs": 6, "mini_batch_size": 48, "compress": "int8"}
THREE = {**EAGER, "backend": "fused", **THREE, "timesteps": 6 * 32 * 4}
GOSSIP = {**EAGER, "exchange": "gossip", "learners": 4, "num_workers": 4, "num_envs": 8, "timesteps": 8 * 32 * 3}
ASKING = {"resources": "env: {cpu: 0.5}, learner: {cpu: 1}"}
SHARDED = {**APEX, "learners": 2, "num_workers": 2, "num_envs": 4}
APPO = {"algo": "appo", "sync_mode": "blocking", "learners": 2, "num_workers": 2, "num_envs": 4}
A2C = {**APPO, "algo": "a2c"}


@pytest.mark.nightly  # Ten seconds each. Shorter: at the end of this module hosts are lost, and no bit changes.
@pytest.mark.parametrize(
    "settings",
    [THREE, SHARDED, APPO, A2C, GOSSIP],
    ids=["three, compressed", "of a table in shards", "appo", "a2c", "gossip of four"],
)
def test_hosts_do_not_change_a_bit(cluster, tmp_path: Path, settings: dict[str, object]) -> None:
    alone = train(tmp_path / "alone", **settings, runtime="local")
    spread = train(tmp_path / "spread", **settings, **ASKING, runtime="ray", address=cluster.address)
    assert fingerprint(spread) == fingerprint(alone)


@pytest.fixture
def eager_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Home lets go of rows that stay on hosts as soon as it may, in parts of two pages."""
    monkeypatch.setattr(relay, "LET_GO_S", 0.0)
    monkeypatch.setattr(table_pages, "PART_BYTES", 2 * mmap.PAGESIZE)


@pytest.mark.nightly  # Twenty seconds. Shorter: ``test_resident.py``, without a cluster.
@pytest.mark.usefixtures("eager_relay")
def test_rows_that_lie_with_their_learners_change_no_bit(cluster, tmp_path: Path) -> None:
    # Each ring goes round nearly three times. Whatever home still read of slots that it let go of would be zeros.
    long = {**SHARDED, "num_envs": 32, "capacity": 4096, "timesteps": 12288, "updates_per_step": 0.0625}
    alone = train(tmp_path / "alone", **long, runtime="local")
    there = {"runtime": "ray", "address": cluster.address, "table_on": "learners"}
    spread = train(tmp_path / "spread", **long, **there)
    assert fingerprint(spread) == fingerprint(alone)
    assert load_table(find_checkpoint(alone.run_folder)) is not None
    assert load_table(find_checkpoint(spread.run_folder)) is None


@pytest.mark.nightly  # Twenty seconds. Shorter: ``test_shard_files.py``, without a cluster.
@pytest.mark.parametrize("table_on", ["launcher", "learners"])
def test_a_run_that_ended_in_order_finds_all_rows_again(cluster, tmp_path: Path, table_on: str) -> None:
    there = {"runtime": "ray", "address": cluster.address, "table_on": table_on}
    alone = train(tmp_path / "alone", **SHARDED, runtime="local")
    resumed = penstock.resume(alone.run_folder, timesteps=2 * SHARDED["timesteps"], quiet=True)
    begun = train(tmp_path / "spread", **SHARDED, **there)
    spread = penstock.resume(begun.run_folder, timesteps=2 * SHARDED["timesteps"], quiet=True)
    assert fingerprint(spread) == fingerprint(resumed)
    assert not any("replay" in note for note in spread.notes)
    assert (tmp_path / "spread" / ".shards").exists() == (table_on == "learners")


WIDE = 500
"""An observation takes 8,000 bytes. A rollout of eight steps takes more than `observation_fields.LEAST_BYTES`."""


def make_wide(gate: str) -> gymnasium.Env:
    """Gated CartPole with its observation many times over."""
    space = gymnasium.spaces.Box(-np.inf, np.inf, (4 * WIDE,), np.float32)
    return gymnasium.wrappers.TransformObservation(GatedCartPole(gate), lambda obs: np.tile(obs, WIDE), space)


@pytest.mark.nightly  # Twenty seconds. Shorter: ``test_resident_turns.py`` and ``test_fetches.py``, without a cluster.
@pytest.mark.usefixtures("eager_relay")
def test_observations_go_straight_to_the_machine_of_their_learner_and_change_no_bit(
    cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods, received = set(), list[int]()
    call = Machine.call

    def noting(self: Machine, name: str, replied: Callable[[Any, Any], None], *arguments: Any) -> None:
        def told(result: Any, error: Any) -> None:
            received.append(len(pickle.dumps(result)))
            replied(result, error)

        methods.add(name)
        call(self, name, told, *arguments)

    monkeypatch.setattr(Machine, "call", noting)
    (tmp_path / "gate").touch()
    # Twelve turns of 32 rows: each ring goes round twice. One environment node runs beside the second learner, and one
    # on a third machine.
    wide = {"env": f"{__name__}:make_wide", "env_args": {"gate": str(tmp_path / "gate")}, "num_workers": 4}
    settings = {**SHARDED, **wide, "capacity": 128, "timesteps": 384}
    alone = train(tmp_path / "alone", **settings, runtime="local")
    there = {"runtime": "ray", "address": cluster.address, "table_on": "learners"}
    spread = train(tmp_path / "spread", **settings, **there)
    assert fingerprint(spread) == fingerprint(alone)
    assert "fetch" in methods
    assert "observations" not in methods
    # All that has come home from other machines is less than the observations of four rollouts. They made 24.
    assert sum(received) < 4 * 8 * 16 * WIDE


@pytest.mark.nightly
@pytest.mark.parametrize("table_on", ["launcher", "learners"])
@pytest.mark.usefixtures("eager_relay")
def test_apex_with_eight_workers_and_four_learners_runs_without_lock_step(
    cluster, tmp_path: Path, table_on: str
) -> None:
    # Of a few rollouts, so that rings go round: a slot that is on its way may be overwritten.
    wide = {"num_workers": 8, "num_envs": 8, "learners": 4, "min_rows": 256, "capacity": 512, "timesteps": 6000}
    where = {"runtime": "ray", "address": cluster.address, "sync_mode": "non_blocking", "table_on": table_on}
    result = train(tmp_path, **{**APEX, **wide, **where})
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    rows = arrays["lane_collected"].reshape(4, -1).sum(1)
    # Each shard is at most two of its turns of 16 rows ahead of its part, and a turn may end between: within 5 %.
    assert abs(rows - rows.mean()).max() <= 4 * 16 < 0.05 * rows.mean()
    # Those of a turn may be left to do when the run ends.
    due = (result.steps - 256) // 4
    assert 0 <= due - arrays["gradient_steps"] <= 64


@pytest.mark.nightly  # Twenty seconds. Shorter: ``tests/end_to_end/test_resume_changes.py``, on one machine.
def test_a_run_of_one_machine_is_resumed_on_several(cluster, tmp_path: Path) -> None:
    alone = train(tmp_path, **SHARDED, runtime="local", save_interval=1, keep_checkpoints=10)
    expected = fingerprint(alone)
    there = {"runtime": "ray", "address": cluster.address}
    resumed = penstock.resume(
        alone.run_folder, timesteps=SHARDED["timesteps"], checkpoint="4", settings=there, quiet=True
    )
    assert fingerprint(resumed) == expected


STREAM = {**EAGER, "learners": 2, "mini_batch_size": 128}
TABLE = {**APEX, "learners": 2, "num_steps": 32, "num_envs": 8}


WIDE_TABLE = {**TABLE, "env": f"{__name__}:make_wide", "capacity": 1024}


# Shorter: ``test_resident.py``, and ``tests/nodes/test_replay_learner.py``.
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", [TABLE, WIDE_TABLE], ids=["rows by way of home", "observations straight"])
def test_a_run_goes_on_without_the_rows_that_a_host_took_with_it(cluster, tmp_path: Path, settings) -> None:
    apart = {**settings, "sync_mode": "non_blocking", "table_on": "learners"}
    launcher = Launcher(tmp_path, cluster.address, updates=40, **apart)
    try:
        assert launcher.next_checkpoint()
        # Home looks once a second at what it may let go of.
        time.sleep(3)
        cluster.remove_node(host_of(cluster, "learner.1"), allow_graceful=False)
        assert wait_until(lambda: launcher.has(1, '"rows/lost"'), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    assert "rows of the replay table are lost with it" in RunFolder(launcher.run_folder()).deaths.read_text()
    # Learning has waited for new rows of that shard, and then made up for it.
    arrays = load_checkpoint(find_checkpoint(launcher.run_folder())).arrays
    due = (int(arrays["steps"]) - APEX["min_rows"]) // 4
    assert 0 <= due - int(arrays["gradient_steps"]) <= 64
    # The hosts that are left are as many as before, for the tests behind this one.
    cluster.add_node(**HOST)


# Shorter: ``test_relay.py``, without a cluster.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_host_that_is_lost_while_others_fetch_its_observations_changes_no_bit(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=12, **WIDE_TABLE, table_on="learners")
    try:
        assert launcher.next_checkpoint()
        host = host_of(cluster, "env.3")
        assert host is not host_of(cluster, "learner.1")
        cluster.remove_node(host, allow_graceful=False)
        assert wait_until(lambda: launcher.has(1, "env.3 was lost with its machine"), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    assert not launcher.has(1, '"rows/lost"')
    alone = train(tmp_path / "alone", **{**launcher.settings, "table_on": "launcher"}, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)
    cluster.add_node(**HOST)


# Shorter: ``test_shard_files.py`` and ``test_shard_keeping.py``, without a cluster.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_run_whose_launcher_is_killed_finds_all_rows_of_its_last_checkpoint(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=24, **TABLE, table_on="learners")
    try:
        # The files of the first checkpoint are not the last ones.
        assert launcher.next_checkpoint()
        assert wait_until(lambda: len(kept_with_files(launcher.run_folder())) > 2, 150)
    finally:
        launcher.process.kill()
        launcher.process.wait()
        (tmp_path / "gate").touch()
    folder = launcher.run_folder()
    files = list((launcher.log_dir / ".shards" / folder.name).glob("*.table"))
    assert {path.name.partition(".")[0] for path in files} == {"shard-0", "shard-1"}
    assert len(files) <= 4
    # Those that a deputy asked for name the files of a checkpoint before them.
    resumed = penstock.resume(folder, checkpoint=kept_with_files(folder)[-1], quiet=True)
    assert "all 2 shards of the replay table were found" in (folder / "run.log").read_text()
    alone = train(tmp_path / "alone", **{**launcher.settings, "table_on": "launcher"}, runtime="local")
    assert fingerprint(resumed) == fingerprint(alone)


def kept_with_files(folder: Path) -> list[str]:
    """The checkpoints that name files of their own for all shards."""
    named = {}
    for path in list_checkpoints(folder):
        # The run may remove it meanwhile.
        with contextlib.suppress(CheckpointError):
            named[path.name] = load_checkpoint(path).manifest
    return [
        name
        for name, manifest in named.items()
        if all(found and found[0] == manifest["update"] for found in manifest["shards"])
    ]


# The last test of this module: it leaves the head alone. Shorter: ``test_hosts.py`` kills hosts.
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("settings", "everywhere"),
    [(STREAM, False), (TABLE, True)],
    ids=["stream, one host", "table, all hosts at once"],
)
def test_hosts_that_are_lost_with_a_learner_change_no_bit(cluster, tmp_path: Path, settings, everywhere: bool) -> None:
    # Twelve turns take at least 8 s while the gate is closed, so it is not over when hosts are lost.
    launcher = Launcher(tmp_path, cluster.address, updates=12, **settings)
    try:
        assert launcher.next_checkpoint()
        host = host_of(cluster, "learner.1")
        for lost in list(cluster.worker_nodes) if everywhere else [host]:
            cluster.remove_node(lost, allow_graceful=False)
        assert wait_until(lambda: launcher.has(1, "learner.1 was lost with its machine"), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


def host_of(cluster, group: str):
    """The host that runs a group: its process descends from that machine's raylet."""
    process = of_group(group)
    assert process is not None
    above = {parent.pid for parent in process.parents()}
    (host,) = [node for node in cluster.worker_nodes if above & set(raylets(node))]
    return host


def raylets(node) -> list[int]:
    """Process ids of a host of `ray.cluster_utils.Cluster`."""
    return [info.process.pid for infos in node.all_processes.values() for info in infos]
