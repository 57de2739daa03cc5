"""Learners on several hosts that hand their gradients to the node at home that owns the parameters."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table
from tests.children import killing, newest_checkpoint
from tests.cluster.conftest import HOST
from tests.cluster.test_hosts import Launcher
from tests.cluster.test_hosts import train as train_on_cartpole
from tests.cluster.test_learners import host_of
from tests.end_to_end.test_same_answer import fingerprint
from tests.end_to_end.test_served_learners import LAG, ROLLOUT, check_gradients, check_rows, lines, train
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
RANKED = {**TABLE, "algo": "apex", "env": "CartPole-v1", "capacity": 20_000, "atoms": 11}
"""With atoms each row begins with the largest priority so far. So only learners give rows different priorities."""
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


# A minute. Shorter: learners of one machine die in ``tests/nodes/test_learners.py``, and ``test_ranked.py`` ranks rows.
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("settings", "killed"),
    [(TABLE, 1), (TABLE, 2), (TABLE, 0), (RANKED, 1), (RANKED, 0)],
    ids=["killed once", "killed twice", "not killed", "ranked, killed once", "ranked, not killed"],
)
def test_learners_of_a_table_take_all_steps_that_are_due(cluster, tmp_path: Path, settings, killed: int) -> None:
    there = {"runtime": "ray", "address": cluster.address, "log_dir": str(tmp_path), "save_interval": 10}
    with killing(["learner.1"] * killed, tmp_path) if killed else nullcontext():
        result = penstock.train({**settings, **there}, quiet=True)
    found = check_steps(result)
    # One that is killed twice may not have handed anything on before the end.
    assert killed or found["settled"].min() > 0
    if settings is RANKED:
        check_ranked(result)


def check_steps(result: Result) -> dict[str, np.ndarray]:
    """Each gradient step that is due was taken, once, and every row is accounted for."""
    found = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(found["owed"]) == 0
    assert int(found["applied"]) == int(found["gradient_steps"]) == (int(found["steps"]) - TABLE["min_rows"]) // 4
    for line in lines(result):
        if "rows/collected" in line:
            assert line["rows/collected"] == sum(
                line[f"rows/{name}"] for name in ("learned", "in_flight", "stale", "spoilt")
            )
    return found


def check_ranked(result: Result) -> None:
    """Most rows of the table have a priority that a learner has found: hardly two of these are equal."""
    kept = load_table(find_checkpoint(result.run_folder))
    assert kept is not None
    priorities = kept["priority"][kept["priority"] > 0]
    # As many rows are kept of each environment node as of the one that has given the fewest: a lost one begins late.
    assert len(priorities) > 500
    assert len(np.unique(priorities)) > len(priorities) / 2


# Half a minute. Shorter: ``tests/end_to_end/test_replay.py`` resumes ranked rows on one machine.
@pytest.mark.nightly
def test_a_run_whose_learners_rank_a_table_on_hosts_is_resumed(cluster, tmp_path: Path) -> None:
    there = {"runtime": "ray", "address": cluster.address, "log_dir": str(tmp_path), "timesteps": 4000}
    first = penstock.train({**RANKED, **there}, quiet=True)
    check_steps(first)
    second = penstock.resume(first.run_folder, timesteps=8000, quiet=True)
    assert second.steps >= 8000
    check_steps(second)
    check_ranked(second)


# Shorter: ``test_ranked.py`` moves learners, and gives a host that comes later the priorities.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_host_that_is_lost_with_a_learner_that_ranks_a_table_ends_nothing(cluster, tmp_path: Path) -> None:
    settings = {name: value for name, value in RANKED.items() if name not in {"env", "hidden_sizes"}}
    launcher = Launcher(tmp_path, cluster.address, updates=12, **settings)
    try:
        assert wait_until(lambda: all_have_settled(launcher), 150)
        lose_host_of_learner(cluster, launcher)
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    result = SimpleNamespace(run_folder=launcher.run_folder())
    check_steps(result)
    check_ranked(result)
    # The hosts that are left are as many as before, for the tests behind this one.
    cluster.add_node(**HOST)


# The last test of this module: it takes a host away. Shorter: the last one of ``test_learners.py`` does so, too.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_host_that_is_lost_with_a_learner_changes_no_bit(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=12, **TWO)
    try:
        assert launcher.next_checkpoint()
        lose_host_of_learner(cluster, launcher)
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    alone = train_on_cartpole(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


def lose_host_of_learner(cluster, launcher: Launcher) -> None:
    """End the host that runs ``learner.1``, and wait until the run has learned on without it."""
    cluster.remove_node(host_of(cluster, "learner.1"), allow_graceful=False)
    assert wait_until(lambda: launcher.has(1, "learner.1 was lost with its machine"), 150)
    assert launcher.next_checkpoint()


@pytest.mark.parametrize("algo", ["ppo", "apex"])
def test_learners_that_share_memory_are_refused(tmp_path: Path, algo: str) -> None:
    whole = {"env": "CartPole-v1", "algo": algo, "learners": 2, "num_workers": 2, "runtime": "ray"}
    with pytest.raises(ConfigError, match=r"one vector in shared memory, .*; give --exchange parameter_server, or"):
        penstock.train({**whole, "exchange": "hogwild", "log_dir": str(tmp_path)}, quiet=True)
