"""The programs of both on-policy patterns: their edges, and how far a node may run ahead."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.cut import host_program
from penstock.errors import ConfigError
from penstock.planning import plan
from penstock.policies.batching import BatchRule
from penstock.program.check import check
from penstock.program.draw import draw
from penstock.program.graph import Ask, Board, Program, RemoteAnswer, SharedObject, Stream
from penstock.topologies import async_on_policy, on_policy
from penstock.topologies.env_nodes import NICENESS
from tests.planned import prepared


def program(pattern, **settings: object) -> Program:
    found = prepared(**{"num_workers": 2, "num_envs": 4, **settings})
    return check(pattern.build(plan(found, Path("run"), quiet=True)))


def stream(of: Program, name: str) -> Stream:
    edge = of.edge(name)
    assert isinstance(edge, Stream)
    return edge


def board(of: Program, name: str) -> Board:
    edge = of.edge(name)
    assert isinstance(edge, Board)
    return edge


def test_in_lock_step_each_worker_has_one_slot_and_waits_for_its_version() -> None:
    lock_step = program(on_policy)
    assert stream(lock_step, "rollouts").slots == 2
    assert board(lock_step, "policy").max_lag == 0
    assert lock_step.node("learner").settings.assemble == "by_lane"


def test_without_lock_step_each_worker_has_two_slots_and_never_waits() -> None:
    overlapping = program(async_on_policy)
    assert stream(overlapping, "rollouts").slots == 4
    assert board(overlapping, "policy").max_lag is None
    assert overlapping.node("learner").settings.assemble == "by_arrival"


@pytest.mark.parametrize(("max_policy_lag", "here", "on_host"), [(3, 1, 1), (4, 2, 2)])
def test_on_several_machines_few_rollouts_wait_if_few_may_be_old(max_policy_lag, here, on_host) -> None:
    ahead = program(async_on_policy, runtime="ray", max_policy_lag=max_policy_lag)
    assert stream(ahead, "rollouts").slots == 2 * here
    assert stream(host_program(ahead), "rollouts.env.1").slots == on_host


def test_a_minibatch_of_whole_lanes_takes_the_memory_of_its_rows() -> None:
    settings = {"num_steps": 64, "mini_batch_size": 128, "model": "lstm", "backend": "eager"}
    lanes = program(on_policy, **settings).node("learner").minibatch
    rows = program(on_policy, **{**settings, "model": "mlp"}).node("learner").minibatch
    assert lanes is not None
    assert rows is not None
    assert lanes.size == rows.size == 128
    assert lanes.nbytes > rows.nbytes


def test_the_monitor_knows_over_what_tensorboard_draws() -> None:
    assert program(on_policy).node("monitor").settings.tensorboard_axis == "steps"
    assert program(on_policy, tensorboard_axis="seconds").node("monitor").settings.tensorboard_axis == "seconds"


def test_lines_are_a_second_apart_unless_log_interval_differs_from_its_default() -> None:
    assert program(on_policy).node("monitor").settings.least_s == 1.0
    assert program(on_policy, log_interval=20).node("monitor").settings.least_s == 0.0


def test_the_monitor_gets_all_settings_for_tensorboard() -> None:
    assert 'env = "tests.environments:ClockEnv"\n' in program(on_policy).node("monitor").settings.settings


def test_histograms_go_from_the_checkpointer_to_the_monitor_where_they_are_asked_for() -> None:
    asked = program(on_policy, tensorboard_histograms=True)
    assert asked.edge("histograms") == SharedObject("histograms", ("checkpointer", "monitor"))
    assert asked.node("monitor").settings.histograms
    parts = asked.node("checkpointer").settings.parts
    assert {part.array for part in parts} == {"actor", "critic"}
    assert parts[0] == ("actor/0.weight", "actor", 0, 64)
    assert parts[1] == ("actor/0.bias", "actor", 64, 64)
    plain = program(on_policy)
    assert "histograms" not in {edge.name for edge in plain.edges}
    assert not plain.node("checkpointer").settings.parts


def test_a_trace_is_kept_in_the_run_folder_where_it_is_asked_for() -> None:
    assert program(on_policy, trace=True).trace == Path("run") / "trace"
    assert program(on_policy).trace is None


def test_where_collection_overlaps_learning_the_learner_goes_first() -> None:
    overlapping = program(async_on_policy)
    assert overlapping.node("learner").niceness < overlapping.node("env.0").niceness == NICENESS
    lock_step = program(on_policy)
    assert lock_step.node("learner").niceness == lock_step.node("env.1").niceness == 0


def test_environment_processes_have_cores_of_their_own_where_the_plan_says_so() -> None:
    found = prepared(num_workers=2, num_envs=4)
    asked = on_policy.build(replace(plan(found, Path("run"), quiet=True), own_cores=True))
    assert [asked.node(name).core for name in ("env.0", "env.1", "learner")] == [0, 1, None]
    assert program(on_policy).node("env.1").core is None


@pytest.mark.parametrize(("device", "gpus"), [("cuda", [0, 1]), ("cuda:1", [None, None]), ("cpu", [None, None])])
def test_several_learners_ask_for_gpus_in_turn_unless_one_is_named(device: str, gpus: list[int | None]) -> None:
    found = plan(prepared(num_workers=2, num_envs=4, learners=2), Path("run"), quiet=True)
    made = on_policy.build(replace(found, run=replace(found.run, device=device)))
    assert [made.node(name).gpu for name in ("learner", "learner.1")] == gpus


def test_lanes_are_split_evenly_and_in_order() -> None:
    lock_step = program(on_policy, num_envs=6, num_workers=3)
    lanes = [(node.settings.first_lane, node.settings.lanes) for node in lock_step.nodes if node.kind == "env"]
    assert lanes == [(0, 2), (2, 2), (4, 2)]


@pytest.mark.parametrize(("eval_interval", "evaluators"), [(0, 0), (5, 1)])
def test_an_evaluator_is_there_if_it_is_asked_for(eval_interval: int, evaluators: int) -> None:
    lock_step = program(on_policy, eval_interval=eval_interval)
    assert sum(node.kind == "evaluator" for node in lock_step.nodes) == evaluators
    assert ("evaluations" in {edge.name for edge in lock_step.edges}) == bool(evaluators)


def test_a_program_is_drawn_with_processes_and_edges() -> None:
    text = draw(program(on_policy))
    assert "env.0        env.0 (env)" in text
    assert "stream rollouts     env.0, env.1 -> learner: 2 slots of" in text
    assert "board  policy       learner -> env.0, env.1:" in text


def test_many_processes_that_are_alike_share_a_line() -> None:
    text = draw(program(on_policy, num_workers=4, num_envs=8))
    assert "env.0 .. env.3 (4) env each" in text
    assert "log    actions.env.0 .. actions.env.3 (4) one environment node each -> learner: 2 lanes" in text
    assert "learner      learner (learner)" in text


def test_policy_nodes_share_the_environment_nodes_and_are_drawn() -> None:
    placed = program(on_policy, num_workers=4, policy_placement="node", policy_nodes=2)
    ask = placed.edge("act")
    assert isinstance(ask, Ask)
    assert isinstance(ask.answer, RemoteAnswer)
    assert ask.answer.nodes == ("policy.0", "policy.1")
    assert {"policy.0", "policy.1"} <= set(board(placed, "policy").readers)
    text = draw(placed)
    assert "policy.1     policy.1 (policy_node)" in text
    assert "env.0 .. env.3 (4) <-> policy: answered by policy.0, policy.1, in the slots of rollouts" in text
    assert "<-> policy: answered in the process that asks" in draw(program(on_policy))


def test_policy_nodes_get_the_rule_of_their_batches() -> None:
    placed = program(on_policy, policy_placement="node", max_batch=64, max_wait=0.002)
    assert placed.node("policy.0").settings.rule == BatchRule(64, 0.002)
    assert program(on_policy, policy_placement="node").node("policy.0").settings.rule == BatchRule(None, 0.0)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"policy_nodes": 2}, "--policy_nodes needs --policy_placement node"),
        ({"max_batch": 64}, "--max_batch needs --policy_placement node"),
        ({"max_wait": 0.002}, "--max_wait needs --policy_placement node"),
        ({"policy_nodes": 3, "policy_placement": "node"}, "--policy_nodes 3 is more than --num_workers 2"),
    ],
)
def test_settings_that_fit_no_policy_nodes_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        program(on_policy, **settings)


def test_the_monitor_knows_which_nodes_and_rows_the_first_update_needs() -> None:
    found = plan(prepared(num_workers=2, num_envs=4, learners=2), Path("run"), quiet=True)
    starts = tuple(replace(start, collected=10, spoilt=lane) for lane, start in enumerate(found.starts))
    first = on_policy.build(replace(found, starts=starts)).node("monitor").settings.first_update
    assert first.given == {"env.0": 19, "env.1": 15}
    assert (first.learners, first.least) == (("learner", "learner.1"), None)
    assert first.learned == "2 learners learn from them, each of which waits for all others"
    alone = on_policy.build(plan(prepared(), Path("run"), quiet=True)).node("monitor").settings.first_update
    assert (alone.learners, alone.learned) == (("learner",), "the learner learns from them")
