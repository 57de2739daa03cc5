"""Learners on several hosts that hand their gradients to the node at home that owns the parameters."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.errors import ConfigError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.children import killing, newest_checkpoint, of_group
from tests.cluster.test_hosts import Launcher
from tests.cluster.test_hosts import train as train_on_cartpole
from tests.cluster.test_learners import raylets
from tests.end_to_end.test_same_answer import fingerprint
from tests.end_to_end.test_served_learners import LAG, ROLLOUT, check_gradients, check_rows, train
from tests.end_to_end.test_served_learners import SERVED as SMALL
from tests.runtime.nodes import wait_until

SERVED = {"exchange": "parameter_server", "epochs": 2, "backend": "fused"}
THREE = {**SERVED, "learners": 3, "num_workers": 3, "num_envs": 6, "mini_batch_size": 48, "timesteps": 6 * 32 * 4}
"""Of three learners, two run on other hosts."""
TABLE = {
    "algo": "sac",
    "env": "Pendulum-v1",
    "exchange": "parameter_server",
    "sync_mode": "non_blocking",
    "learners": 2,
    "num_workers": 2,
    "num_envs": 4,
    "num_steps": 16,
    "hidden_sizes": (8, 8),
    "mini_batch_size": 16,
    "min_rows": 100,
    "updates_per_step": 0.25,
    "eval_episodes": 1,
    "timesteps": 8_000,
}
OF_SMALL = ("num_envs", "num_workers", "num_steps", "mini_batch_size", "epochs", "learners", "exchange")
APART = {name: SMALL[name] for name in OF_SMALL} | {"sync_mode": "non_blocking"}
TWO = {**SERVED, "sync_mode": "blocking", "learners": 2, "mini_batch_size": 128}


# Half a minute with the cluster. Shorter: ``test_learners.py`` has learners on hosts, and
# ``tests/end_to_end/test_served_learners.py`` a node that owns the parameters.
@pytest.mark.nightly
@pytest.mark.parametrize("compress", ["int8", "none"])
def test_in_lock_step_hosts_do_not_change_a_bit(cluster, tmp_path: Path, compress: str) -> None:
    settings = {**THREE, "sync_mode": "blocking", "compress": compress}
    alone = train_on_cartpole(tmp_path / "alone", **settings, runtime="local")
    spread = train_on_cartpole(tmp_path / "spread", **settings, runtime="ray", address=cluster.address)
    assert fingerprint(spread) == fingerprint(alone)


# A minute. Shorter: ``test_followers.py`` frees and settles what is handed on.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "agree",
    [
        # The least bound: some gradients are too old. What is settled without a step has no version of its own.
        {"pace": "lag", "compress": "topk:0.1", "max_policy_lag": 4},
        {"pace": "async", "compress": "int8", "max_policy_lag": LAG},
    ],
    ids=["lag", "async"],
)
def test_each_gradient_of_learners_apart_counts_once(cluster, tmp_path: Path, agree: dict[str, object]) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=40, **APART, **agree)
    try:
        # One of their processes is on another host, and may start late: steps are slow until both have given gradients.
        assert wait_until(lambda: all_have_settled(launcher), 150)
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    check_gradients(check_rows(SimpleNamespace(run_folder=launcher.run_folder())))


def all_have_settled(launcher: Launcher) -> bool:
    """Whether each learner has handed gradients on before the newest checkpoint."""
    if not newest_checkpoint(launcher.log_dir):
        return False
    return load_checkpoint(find_checkpoint(launcher.run_folder())).arrays["settled"].min() > 0


# Half a minute each. Shorter: learners of one machine die in ``tests/end_to_end/test_served_learners.py``.
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", ["learner.1", "learner"])
def test_a_death_apart_loses_no_rollout_and_doubles_none(cluster, tmp_path: Path, group: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 300, save_interval=20, runtime="ray", address=cluster.address)
    found = check_rows(result)
    assert int(found["steps"]) == int(found["update"]) * ROLLOUT >= 300 * ROLLOUT
    check_gradients(found)


@pytest.mark.nightly  # A minute. Shorter: learners of one machine die in ``tests/nodes/test_learners.py``.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [1, 2, 0])
def test_learners_of_a_table_take_all_steps_that_are_due(cluster, tmp_path: Path, killed: int) -> None:
    settings = {**TABLE, "runtime": "ray", "address": cluster.address, "log_dir": str(tmp_path), "save_interval": 10}
    with killing(["learner.1"] * killed, tmp_path) if killed else nullcontext():
        result = penstock.train(settings, quiet=True)
    found = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(found["owed"]) == 0
    assert int(found["applied"]) == int(found["gradient_steps"]) == (result.steps - 100) // 4
    # One that is killed twice may not have handed anything on before the end.
    assert killed or found["settled"].min() > 0


# The last test of this module: it takes a host away. Shorter: the last one of ``test_learners.py`` does so, too.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_host_that_is_lost_with_a_learner_changes_no_bit(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=12, **TWO)
    try:
        assert launcher.next_checkpoint()
        learner = of_group("learner.1")
        assert learner is not None
        above = {parent.pid for parent in learner.parents()}
        (host,) = [node for node in cluster.worker_nodes if above & set(raylets(node))]
        cluster.remove_node(host, allow_graceful=False)
        assert wait_until(lambda: launcher.has(1, "learner.1 was lost with its machine"), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    alone = train_on_cartpole(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"exchange": "hogwild"}, "one vector in shared memory"), ({"algo": "apex"}, "one table in shared memory")],
    ids=["hogwild", "with priorities"],
)
def test_learners_that_share_memory_are_refused(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    whole = {"env": "CartPole-v1", "learners": 2, "num_workers": 2, "exchange": "parameter_server", "runtime": "ray"}
    with pytest.raises(ConfigError, match=why):
        penstock.train({**whole, "sync_mode": "non_blocking", **settings, "log_dir": str(tmp_path)}, quiet=True)
