"""The place where the policy runs changes no bit in lock step, and otherwise only the speed."""

from pathlib import Path

import pytest

import penstock
from tests.end_to_end.test_replay import fingerprint as of_table_run
from tests.end_to_end.test_same_answer import fingerprint, train

NODE = {"policy_placement": "node"}


@pytest.mark.parametrize(
    "env",
    [
        "CartPole-v1",
        "Pendulum-v1",  # actions in a box
        "tests.environments:ClockEnv",  # last observations of truncated episodes
        "tests.environments:DictEnv",  # several observation fields
    ],
)
def test_a_policy_node_gives_the_answer_of_policies_in_place(tmp_path: Path, env: str) -> None:
    shared = {"env": env, "runtime": "inline", "num_workers": 2, "inference": "native"}
    answers = [train(tmp_path / placement, policy_placement=placement, **shared) for placement in ("env", "node")]
    assert fingerprint(answers[0]) == fingerprint(answers[1])


# Nine seconds with two policy nodes. Shorter: two of them die in ``tests/chaos/test_exact_kills.py``.
@pytest.mark.parametrize(("workers", "nodes"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.nightly)])
def test_in_processes_of_their_own_too(tmp_path: Path, workers: int, nodes: int, started) -> None:
    shared = {"env": "CartPole-v1", "num_workers": workers}
    reference = train(tmp_path / "reference", runtime="inline", **shared)
    result = train(tmp_path / "node", policy_nodes=nodes, **NODE, **shared)
    assert fingerprint(result) == fingerprint(reference)
    assert started() == []


@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_batches_that_wait_change_no_bit(tmp_path: Path, runtime: str, started) -> None:
    shared = {"env": "tests.environments:ClockEnv", "num_workers": 4, "inference": "native"}
    reference = train(tmp_path / "reference", runtime="inline", **shared)
    # Two of the four processes fill a batch.
    batches = {"max_batch": 4, "max_wait": 0.05, "policy_nodes": 1}
    result = train(tmp_path / "node", runtime=runtime, **batches, **NODE, **shared)
    assert fingerprint(result) == fingerprint(reference)
    assert started() == []


def test_collection_that_overlaps_learning_ends_in_order(tmp_path: Path, started) -> None:
    result = train(tmp_path, env="CartPole-v1", num_workers=2, sync_mode="non_blocking", timesteps=2048, **NODE)
    assert result.steps >= 2048
    assert started() == []


# Blind actions first, noise of a fixed scale, a scale that falls, one for each lane.
FROM_A_TABLE = {
    "sac": {"algo": "sac", "env": "Pendulum-v1"},
    "td3": {"algo": "td3", "env": "Pendulum-v1"},
    "dqn": {"algo": "dqn", "env": "CartPole-v1"},
    "apex": {"algo": "apex", "env": "CartPole-v1"},
}


@pytest.mark.parametrize("name", FROM_A_TABLE)
def test_a_policy_node_explores_as_policies_in_place_do(tmp_path: Path, name: str) -> None:
    sizes = {"num_envs": 4, "num_steps": 16, "mini_batch_size": 16, "min_rows": 100, "hidden_sizes": (8, 8)}
    run = {"num_workers": 2, "runtime": "inline", "inference": "native", "timesteps": 640, "eval_episodes": 1}
    fingerprints = []
    for placement in ("env", "node"):
        values = {**sizes, **run, **FROM_A_TABLE[name], "log_dir": str(tmp_path / placement)}
        result = penstock.train(values | {"policy_placement": placement}, quiet=True)
        fingerprints.append(of_table_run(result))
    assert fingerprints[0] == fingerprints[1]
