"""A program is cut so that a host has what its nodes need, and home finds everything as it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.apart import apart
from penstock.cluster.crossing import carried, same_bits, watched
from penstock.cluster.cut import RELAY, host_program, with_relay
from penstock.cluster.movable import movable_envs, movable_learners, ranking
from penstock.cluster.seats import answerers, names_on_hosts, seats
from penstock.nodes.learner import ReplicaSettings, StepSettings
from penstock.nodes.learner.demonstrations import DemonstrationSettings, TableDemonstrations
from penstock.planning import plan
from penstock.program.graph import Ask, Board, NodeSpec, ProcessGroup, Program, RemoteAnswer, Rounds, Stream, Table
from penstock.topologies import async_off_policy, async_on_policy, off_policy, on_policy
from tests.planned import prepared

APEX = {"algo": "apex", "num_workers": 2, "num_envs": 4, "sync_mode": "non_blocking", "exchange": "parameter_server"}
SAC = {"algo": "sac", "env": "Pendulum-v1", "num_workers": 2, "num_envs": 4}


def program(pattern=on_policy, **settings: object) -> Program:
    found = prepared(**{"num_workers": 2, "num_envs": 4, "learners": 2, **settings})
    return pattern.build(plan(found, Path("run"), quiet=True))


def names(nodes: tuple[NodeSpec, ...]) -> set[str]:
    return {node.name for node in nodes}


def test_all_learners_but_the_first_may_move() -> None:
    cut = apart(program(learners=3, num_workers=3, num_envs=6, mini_batch_size=96), "10.0.0.1")
    assert movable_learners(cut) == ("learner.1", "learner.2")
    group = cut.edge("gradients")
    assert isinstance(group, ProcessGroup)
    assert (group.members, group.address) == (("learner", "learner.1", "learner.2"), "10.0.0.1")
    assert {board.name for board in carried(cut)} == {"policy", "goals", "team"}
    # Each hears at home of what it may have to hand on.
    home = with_relay(cut)
    assert all(RELAY in edge.readers for edge in home.edges if isinstance(edge, Board) and edge in carried(home))


def test_a_host_has_the_slots_into_which_its_learners_look() -> None:
    cut = apart(program(), "10.0.0.1")
    host = host_program(cut)
    assert names(host.nodes) == {"env.0", "env.1", "learner.1", RELAY}
    rollouts, at_home = host.edge("rollouts"), cut.edge("rollouts")
    assert isinstance(rollouts, Stream)
    assert isinstance(at_home, Stream)
    assert (rollouts.writers, rollouts.viewers) == ((RELAY,), ("learner.1",))
    assert (rollouts.slots, rollouts.arrays) == (at_home.slots, at_home.arrays)
    # Its place among the members is that of home.
    group = host.edge("gradients")
    assert isinstance(group, ProcessGroup)
    assert group.members.index("learner.1") == 1


def test_a_host_has_the_rings_of_the_table_that_its_learners_sample() -> None:
    cut = apart(program(off_policy, **SAC), "10.0.0.1")
    assert movable_learners(cut) == ("learner.1",)
    host = host_program(cut)
    rollouts = host.edge("rollouts")
    assert isinstance(rollouts, Table)
    assert (rollouts.readers, rollouts.shards, rollouts.file) == (("learner.1",), 2, None)
    # Its environment nodes write into streams of their own, as those of any host do.
    assert isinstance(host.edge("rollouts.env.1"), Stream)


def test_learners_that_share_memory_stay_at_home() -> None:
    whole = program(async_on_policy, sync_mode="non_blocking", exchange="hogwild")
    assert apart(whole, "10.0.0.1") == whole
    assert movable_learners(whole) == ()
    assert not any(isinstance(edge, Rounds | ProcessGroup) for edge in host_program(whole).edges)


SERVED = {"exchange": "parameter_server", "max_policy_lag": 8}


@pytest.mark.parametrize(
    ("pattern", "settings", "slots"),
    [(on_policy, {"pace": "sync"}, 1), (async_on_policy, {"sync_mode": "non_blocking", "pace": "lag"}, 2)],
    ids=["in step", "apart"],
)
def test_learners_that_hand_gradients_on_may_move(pattern, settings: dict[str, object], slots: int) -> None:
    whole = apart(program(pattern, **SERVED, **settings), "10.0.0.1")
    assert movable_learners(whole) == ("learner.1", "learner.2")
    assert "drift apart" not in str(same_bits(whole))
    host = host_program(whole)
    streams = {edge.name: edge for edge in host.edges if isinstance(edge, Stream)}
    # Two gradients of each may be handed on, also in lock step. A rollout waits for its slot.
    assert streams["gradients.learner.2"].slots == 2
    assert streams["rollouts.env.1"].slots == slots
    assert host.node("learner.2").edges == (("gradients", "gradients.learner.2"),)
    assert streams["rollouts"].viewers == ("learner.1", "learner.2")
    # Learners apart look for rollouts by themselves. Theirs are freed later than those of home.
    woken = watched(whole) is not None
    at_home = whole.edge("rollouts")
    assert isinstance(at_home, Stream)
    assert woken == (settings["pace"] == "lag")
    assert streams["rollouts"].slots == at_home.slots * (1 + woken)
    seen = with_relay(whole).edge("rollouts")
    assert isinstance(seen, Stream)
    assert (RELAY in seen.woken) == woken


def test_a_host_has_all_rings_of_the_table_whose_learners_hand_gradients_on() -> None:
    cut = apart(program(async_off_policy, **SAC, sync_mode="non_blocking", exchange="parameter_server"), "10.0.0.1")
    assert movable_learners(cut) == ("learner.1", "learner.2")
    rollouts = host_program(cut).edge("rollouts")
    assert isinstance(rollouts, Table)
    assert (rollouts.readers, rollouts.shards, rollouts.file) == (("learner.1", "learner.2"), 1, None)


def test_learners_that_rank_a_table_may_move_once_their_gradients_take_the_priorities_home() -> None:
    whole = program(async_off_policy, **APEX, mini_batch_size=64)
    assert movable_learners(whole) == ranking(whole) == ()
    cut = apart(whole, "10.0.0.1")
    assert movable_learners(cut) == ranking(cut) == ("learner.1", "learner.2")
    assert ranking(with_relay(cut)) == ranking(cut)
    host = host_program(cut)
    for edge in (cut.edge("gradients"), host.edge("gradients.learner.2")):
        assert isinstance(edge, Stream)
        told = {spec.name: (spec.shape, spec.dtype) for spec in edge.arrays}
        # Of the 64 rows of a minibatch.
        assert [told[name] for name in ("row", "stamp", "priority")] == [
            ((64,), "int64"),
            ((64,), "int64"),
            ((64,), "float64"),
        ]
    rollouts, at_home = host.edge("rollouts"), cut.edge("rollouts")
    assert isinstance(rollouts, Table)
    assert isinstance(at_home, Table)
    assert rollouts.ranking == at_home.ranking is not None
    assert (rollouts.shards, rollouts.slots, rollouts.writers) == (1, at_home.slots, at_home.writers)
    # Of a table without priorities nothing is told.
    sac = program(async_off_policy, **SAC, sync_mode="non_blocking", exchange="parameter_server")
    assert apart(sac, "10.0.0.1").edge("gradients") == sac.edge("gradients")
    assert ranking(apart(sac, "10.0.0.1")) == ()


@pytest.mark.parametrize(
    ("pattern", "settings"),
    [
        (off_policy, SAC),
        (async_off_policy, {**SAC, "sync_mode": "non_blocking", "exchange": "parameter_server"}),
    ],
    ids=["meeting", "handing gradients on"],
)
def test_learners_with_demonstrations_stay_where_these_lie(pattern, settings: dict[str, object]) -> None:
    whole = program(pattern, **settings)
    assert movable_learners(apart(whole, "10.0.0.1")) != ()
    kept = (DemonstrationSettings(TableDemonstrations(Path("other"), ()), 0.5),)

    def shown(node: NodeSpec) -> NodeSpec:
        of = node.settings
        if isinstance(of, StepSettings):
            return replace(node, settings=replace(of, demonstrations=kept))
        if isinstance(of, ReplicaSettings):
            return replace(node, settings=replace(of, steps=replace(of.steps, demonstrations=kept)))
        return node

    whole = replace(whole, nodes=tuple(map(shown, whole.nodes)))
    assert movable_learners(apart(whole, "10.0.0.1")) == ()


def test_learners_on_several_machines_need_the_same_bits_in_any_mode() -> None:
    overlapping = {"sync_mode": "non_blocking"}
    assert same_bits(program(async_on_policy, **overlapping, learners=1)) is None
    assert "--sync_mode non_blocking" in str(same_bits(program(learners=1)))
    assert "leave --learners out" in str(same_bits(apart(program(async_on_policy, **overlapping), "10.0.0.1")))


@pytest.mark.parametrize(
    ("pattern", "settings"), [(on_policy, {}), (off_policy, SAC)], ids=["rollouts in a stream", "in a table"]
)
def test_the_environment_nodes_of_a_host_ask_policy_nodes_there(pattern, settings: dict[str, object]) -> None:
    asking = {"learners": 1, "policy_placement": "node", "policy_nodes": 2}
    whole = program(pattern, **{**settings, **asking})
    assert movable_envs(whole) == ("env.0", "env.1")
    host = host_program(whole)
    assert names(host.nodes) == {"env.0", "env.1", "policy.0", "policy.1", RELAY}
    ask, at_home = host.edge("act"), whole.edge("act")
    assert isinstance(ask, Ask)
    assert isinstance(at_home, Ask)
    assert isinstance(ask.answer, RemoteAnswer)
    # An asker's rows are in its own stream there.
    assert ask.answer.streams == ("rollouts.env.0", "rollouts.env.1")
    assert replace(ask, answer=replace(ask.answer, streams=("rollouts", "rollouts"))) == at_home
    policy = host.edge("policy")
    assert isinstance(policy, Board)
    assert set(policy.readers) == {"env.0", "env.1", "policy.0", "policy.1"}


def test_home_has_the_policy_nodes_of_as_many_hosts_as_there_may_be() -> None:
    whole = program(learners=1, policy_placement="node", policy_nodes=2)
    of_home, first, second = seats(whole)
    assert (of_home, first, second) == (
        ("policy.0", "policy.1"),
        ("policy.0.1", "policy.1.1"),
        ("policy.0.2", "policy.1.2"),
    )
    home = with_relay(whole)
    assert names(home.nodes) - names(whole.nodes) == {*first, *second, RELAY}
    # Each is as that of home. Nobody at home asks it, and what it reads is carried to its host.
    for name, there in names_on_hosts(whole).items():
        assert replace(home.node(name), name=there, group=there) == whole.node(there)
    assert home.edge("act") == whole.edge("act")
    policy = home.edge("policy")
    assert isinstance(policy, Board)
    assert {*of_home, *first, *second, RELAY} <= set(policy.readers)
    # Cut again, it is the same.
    assert seats(home) == seats(whole)


def test_without_policy_nodes_no_machine_has_any() -> None:
    whole = program(learners=1)
    assert (answerers(whole), seats(whole), names_on_hosts(whole)) == ((), (), {})
    assert names(with_relay(whole).nodes) == {*names(whole.nodes), RELAY}
