"""Programs of learners that hand their gradients on: their nodes, minibatches, edges, and who hears of a rollout."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.planning import plan
from penstock.program.check import check
from penstock.program.draw import draw
from penstock.program.graph import Board, Program, SharedArrays, Stream
from penstock.topologies import async_off_policy, async_on_policy, on_policy
from tests.planned import prepared

SERVED = {
    "num_workers": 4,
    "num_envs": 8,
    "num_steps": 32,
    "learners": 2,
    "exchange": "parameter_server",
    "mini_batch_size": 64,
}
FOLLOWERS = ("learner.1", "learner.2")


def program(pattern, **settings: object) -> Program:
    found = prepared(**{**SERVED, **settings})
    return check(pattern.build(plan(found, Path("run"), quiet=True)))


def stream(of: Program, name: str) -> Stream:
    edge = of.edge(name)
    assert isinstance(edge, Stream)
    return edge


def board(of: Program, name: str) -> dict[str, tuple[int, ...]]:
    edge = of.edge(name)
    assert isinstance(edge, Board)
    assert edge.readers == FOLLOWERS
    return {spec.name: spec.shape for spec in edge.arrays}


def test_learners_in_step_share_each_minibatch_of_the_batches_of_one_learner() -> None:
    together = program(on_policy, pace="sync")
    assert together.node("learner").kind == "learner"
    assert together.node("learner").settings.rollouts_per_batch == 4
    for number, name in enumerate(FOLLOWERS):
        settings = together.node(name).settings
        assert together.node(name).kind == "batch_follower"
        assert (settings.updater.learner, settings.updater.sharing, settings.updater.waits) == (number, 2, True)
        assert (settings.updater.spec.schedule.mini_batch_size, settings.schedule.mini_batch_size) == (32, 64)
    rollouts = stream(together, "rollouts")
    assert (rollouts.readers, rollouts.viewers, rollouts.woken) == (("learner",), FOLLOWERS, ())
    told = board(together, "parameters")
    assert told["slots"] == (4,)
    assert not {name for name in told if name.startswith("adam_")}


def test_learners_apart_have_batches_of_their_own_and_hear_of_each_rollout() -> None:
    apart = program(async_on_policy, pace="lag", max_policy_lag=10)
    assert apart.node("learner").kind == "stream_parameter"
    assert apart.node("learner").settings.max_gradient_lag == 10
    for number, name in enumerate(FOLLOWERS):
        settings = apart.node(name).settings
        assert apart.node(name).kind == "stream_follower"
        assert (settings.updater.learner, settings.updater.sharing, settings.updater.waits) == (number, 1, False)
        # Two slots of gradients for each learner may wait.
        assert settings.updater.pull_after == 10 - 4
        assert (settings.learners, settings.rollouts, settings.schedule.mini_batch_size) == (2, 2, 64)
    assert stream(apart, "rollouts").woken == FOLLOWERS
    assert stream(apart, "gradients").slots == 4
    assert board(apart, "parameters")["batch"] == (2, 2)


def test_a_minibatch_has_at_most_the_lanes_or_rows_of_a_batch() -> None:
    """A learner's batch has 4 lanes of 32 steps."""
    for settings, size in (({"mini_batch_size": 256}, 128), ({"algo": "impala", "mini_batch_size": 256}, 4)):
        follower = program(async_on_policy, **settings).node("learner.1").settings
        assert follower.schedule.mini_batch_size == follower.updater.spec.schedule.mini_batch_size == size


@pytest.mark.parametrize("compress", ["none", "int8", "topk:0.01"])
def test_a_slot_is_as_large_as_the_encoded_gradients(compress: str) -> None:
    apart = program(async_on_policy, compress=compress)
    networks = plan(prepared(**SERVED), Path("run"), quiet=True).learning.spec.policy.networks
    sizes = [network.num_parameters for network in networks]
    each = {
        "none": [4 * size for size in sizes],
        "int8": [8 + -(-size // 4) * 4 for size in sizes],
        "topk:0.01": [8 * math.ceil(0.01 * size) for size in sizes],
    }[compress]
    values = {spec.name: spec for spec in stream(apart, "gradients").arrays}["values"]
    # Running statistics of observations and values may take a few bytes more.
    assert sum(each) <= values.nbytes <= sum(each) + 64


@pytest.mark.parametrize(
    ("pattern", "settings"),
    [
        (async_on_policy, {}),
        (async_off_policy, {"env": "Pendulum-v1", "algo": "sac", "sync_mode": "non_blocking"}),
    ],
)
def test_hogwild_learners_share_their_state_and_hand_on_notes(pattern, settings: dict[str, object]) -> None:
    wild = program(pattern, exchange="hogwild", **settings)
    vector = wild.edge("vector")
    assert isinstance(vector, SharedArrays)
    assert vector.members == ("learner", *FOLLOWERS)
    names = {spec.name for spec in vector.arrays}
    assert "actor" in names
    assert any(name.startswith("adam_m") for name in names)
    assert not {"progress", "gradient_steps"} & names
    assert set(board(wild, "parameters")) <= {"progress", "settled", "batch", "batch_settled", "batch_applied"}
    assert {spec.name: spec.size for spec in stream(wild, "gradients").arrays}["values"] == 0
    owner = wild.node("learner").settings
    assert owner.max_gradient_lag == math.inf
    assert owner.owner == "penstock.gradient_exchange.hogwild:build_owner"
    assert "shared vector       learner, learner.1, learner.2:" in draw(wild)


def test_learners_of_a_table_may_compress_what_they_hand_on() -> None:
    settings = {"env": "Pendulum-v1", "algo": "sac", "sync_mode": "non_blocking"}
    plain, small = (
        stream(program(async_off_policy, compress=compress, **settings), "gradients") for compress in ("none", "int8")
    )
    assert 3 * sum(spec.nbytes for spec in small.arrays) < sum(spec.nbytes for spec in plain.arrays)


def test_shared_arrays_of_unknown_nodes_are_a_fault() -> None:
    wild = program(async_on_policy, exchange="hogwild")
    broken = replace(wild, edges=(*wild.edges, SharedArrays("other", ("nobody",), ())))
    with pytest.raises(Exception, match="edge other ends at unknown node nobody"):
        check(broken)
