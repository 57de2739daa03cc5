"""Programs of several learners from one table, made of the program of one."""

from dataclasses import replace

from penstock.algorithm import UpdaterSettings
from penstock.exchange.gradients import board_specs, slot_specs
from penstock.nodes.learner import (
    FollowerSettings,
    ParameterSettings,
    parameter_record_specs,
    replay_record_specs,
)
from penstock.program.graph import Board, NodeSpec, Program, Record, Stream, Table
from penstock.program.plan import Plan
from penstock.topologies.off_policy import replayed

LIMIT_S = 300.0
MAX_GRADIENT_LAG = 20


def asynchronous(plan: Plan, learners: int, *, max_gradient_lag: int = MAX_GRADIENT_LAG) -> Program:
    """Learners hand their gradients to the node that takes the learner's place."""
    program = replayed(plan, max_lag=None, order="by_arrival", niceness=0)
    one = program.node("learner").settings
    run, state = plan.run, plan.spec.state
    parameter = ParameterSettings(one.keeper, one.update, one.updater, max_gradient_lag, LIMIT_S)
    names = tuple(f"learner.{number}" for number in range(learners))
    nodes = [
        NodeSpec("learner", "parameter", parameter, group="learner"),
        *(follower(plan, one.update, one.updater, "gradients", learners, number) for number in range(learners)),
    ]
    mine = parameter_record_specs(plan.spec, run.num_envs, plan.num_workers, learners)
    more = [spec for spec in mine if spec not in replay_record_specs(plan.spec, run.num_envs, plan.num_workers)]
    edges = []
    for edge in program.edges:
        if isinstance(edge, Record):
            edges.append(replace(edge, arrays=mine))
        elif isinstance(edge, Table):
            edges.append(replace(edge, readers=("learner", *names)))
        elif isinstance(edge, Stream) and edge.name == "checkpoints":
            edges.append(replace(edge, arrays=(*edge.arrays, *more)))
        else:
            edges.append(edge)
    edges += [
        Stream("gradients", names, ("learner",), slot_specs(state), 2 * learners, "wait"),
        Board("parameters", "learner", names, board_specs(state, learners)),
    ]
    others = [node for node in program.nodes if node.name != "learner"]
    return replace(program, nodes=(*others, *nodes), edges=tuple(edges))


def follower(plan: Plan, update: str, updater: UpdaterSettings, team: str, learners: int, number: int) -> NodeSpec:
    """One of several learners."""
    settings = FollowerSettings(
        update=update,
        updater=replace(updater, learner=number),
        team=f"penstock.exchange.{team}:build",
        learners=learners,
        num_envs=plan.run.num_envs,
        timesteps=plan.run.timesteps,
        open_limit_s=LIMIT_S,
    )
    name = f"learner.{number}"
    return NodeSpec(name, "follower", settings, group=name)
