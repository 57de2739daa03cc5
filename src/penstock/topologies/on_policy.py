"""Lock step: every environment node writes one rollout for each published version. The learner waits for all."""

from typing import Literal

from penstock.algorithm import Schedule
from penstock.config.agreement import agreement
from penstock.errors import PenstockError
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.learner import (
    JOINING,
    EpochSettings,
    LearnerSettings,
    StreamReplicaSettings,
    batch_goal_specs,
    record_specs,
)
from penstock.program.graph import Board, Edge, Program, Rounds, Stream
from penstock.program.plan import Plan
from penstock.topologies import parameter_server
from penstock.topologies.env_nodes import env_names
from penstock.topologies.learners import (
    keeper_settings,
    learner_names,
    learner_nodes,
    rollout_arrays,
    stream_minibatch,
    updater_settings,
)
from penstock.topologies.training import TopologyParts, wire

__all__ = ["build", "streamed"]


def build(plan: Plan) -> Program:
    """The graph with one slot for each environment node, no lag, and batches in lane order."""
    return streamed(plan, slots=plan.num_workers, max_lag=0, assemble="by_lane", niceness=0)


def streamed(
    plan: Plan, *, slots: int, max_lag: int | None, assemble: Literal["by_lane", "by_arrival"], niceness: int
) -> Program:
    """Rollouts go to the learner in a stream of ``slots``. ``niceness`` is that of environment processes."""
    run = plan.run
    if agreement(run, from_table=False).exchange == "parameter_server" and run.learners > 1:
        return parameter_server.in_step(plan, slots=slots, max_lag=max_lag, assemble=assemble, niceness=niceness)
    learners = learner_names(run.learners)
    steps = [_epochs(plan, number) for number in range(run.learners)]
    first = LearnerSettings(keeper_settings(plan), steps[0], plan.num_workers, assemble)
    others = [StreamReplicaSettings(own, plan.num_workers, plan.learning.initial, plan.checkpoint) for own in steps[1:]]
    kinds = ("learner", *("stream_replica" for _ in others))
    together: tuple[Edge, ...] = ()
    if others:
        together = (
            # Gradients, and the state for learners that join later.
            Rounds("gradients", learners, (*plan.learning.spec.state, *JOINING)),
            # The next batch of all learners.
            Board("goals", learners[0], learners[1:], batch_goal_specs(plan.num_workers)),
        )
    topology = TopologyParts(
        rollouts=Stream(
            "rollouts", env_names(plan), learners[:1], rollout_arrays(plan), slots, "wait", viewers=learners[1:]
        ),
        record=record_specs(plan.learning.spec, run.num_envs, plan.num_workers, beside_return=plan.beside_return),
        learners=learner_nodes(plan, learners, kinds, (first, *others), stream_minibatch(plan, run.learners)),
        max_lag=max_lag,
        niceness=niceness,
        together=together,
    )
    return wire(plan, topology)


def _epochs(plan: Plan, learner: int) -> EpochSettings:
    """How one learner learns from a batch. Several share each minibatch."""
    run, spec = plan.run, plan.learning.spec
    if not isinstance(spec.schedule, Schedule):
        raise PenstockError("a stream of rollouts is learned from in epochs")
    rule = {"allreduce": "all_reduce", "gossip": "gossip"}[agreement(run, from_table=False).exchange]
    team = f"penstock.gradient_exchange.{rule}:build" if run.learners > 1 else None
    updater = updater_settings(plan, learner, run.learners)
    return EpochSettings(
        build=plan.learning.backend.stream,
        updater=updater,
        schedule=spec.schedule,
        learners=run.learners,
        team=team,
        work_limit_s=WORK_LIMIT_S,
    )
