"""Lock step: every environment node writes one rollout for each published version. The learner waits for all."""

from typing import Literal

from penstock.algorithm import Schedule
from penstock.config.agreement import agreement
from penstock.errors import PenstockError
from penstock.nodes.learner import (
    EpochSettings,
    LearnerSettings,
    StreamReplicaSettings,
    batch_specs,
    record_specs,
)
from penstock.program.graph import Board, Edge, Minibatch, NodeSpec, Program, Rounds, Stream
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.topologies.training import (
    OPEN_LIMIT_S,
    Pattern,
    activation_bytes,
    env_names,
    keeper_settings,
    learner_imports,
    learner_names,
    part_rows,
    updater_settings,
    wire,
)
from penstock.types import ArraySpec

__all__ = ["build", "streamed"]


NUMBER_BYTES = 12
"""Bytes of a row's flat index and weight."""


def build(plan: Plan) -> Program:
    """The graph with one slot for each environment node, no lag, and batches in lane order."""
    return streamed(plan, slots=plan.num_workers, max_lag=0, assemble="by_lane", niceness=0)


def streamed(
    plan: Plan, *, slots: int, max_lag: int | None, assemble: Literal["by_lane", "by_arrival"], niceness: int
) -> Program:
    """Rollouts go to the learner in a stream of ``slots``. ``niceness`` is that of environment processes."""
    run = plan.run
    lanes = run.num_envs // plan.num_workers
    rollout = rollout_specs(
        plan.spaces,
        plan.learning.spec.row,
        plan.num_steps,
        lanes,
        same_step=plan.same_step,
        shaped=plan.shaped,
        carry=plan.learning.spec.policy.carry,
    )
    learners = learner_names(run.learners)
    steps = [_epochs(plan, number) for number in range(run.learners)]
    first = LearnerSettings(keeper_settings(plan), steps[0], plan.num_workers, assemble)
    others = [StreamReplicaSettings(own, plan.num_workers, plan.learning.initial, plan.checkpoint) for own in steps[1:]]
    kinds = ("learner", *("stream_replica" for _ in others))
    together: tuple[Edge, ...] = ()
    if others:
        together = (
            # Gradients, and the state for learners that join later.
            Rounds("gradients", learners, (*plan.learning.spec.state, ArraySpec("update", (), "int64"))),
            # The next batch of all learners.
            Board("goals", learners[0], learners[1:], batch_specs(plan.num_workers)),
        )
    pattern = Pattern(
        Stream("rollouts", env_names(plan), learners[:1], rollout, slots, "wait", viewers=learners[1:]),
        record_specs(plan.learning.spec, run.num_envs, plan.num_workers, shaped=plan.shaped),
        tuple(
            NodeSpec(
                name,
                kind,
                own,
                group=name,
                threads=plan.learner_threads,
                minibatch=_minibatch(plan, rollout),
                imports=learner_imports(plan),
            )
            for name, kind, own in zip(learners, kinds, (first, *others), strict=True)
        ),
        max_lag,
        niceness,
        together,
    )
    return wire(plan, pattern)


def _epochs(plan: Plan, learner: int) -> EpochSettings:
    """How one learner learns from a batch. Several share each minibatch."""
    run, spec = plan.run, plan.learning.spec
    if not isinstance(spec.schedule, Schedule):
        raise PenstockError("a stream of rollouts is learned from in epochs")
    rule = {"allreduce": "all_reduce", "gossip": "gossip"}[agreement(run, from_table=False).exchange]
    team = f"penstock.gradient_exchange.{rule}:build" if run.learners > 1 else None
    updater = updater_settings(plan, learner, run.learners)
    return EpochSettings(plan.learning.update.stream, updater, spec.schedule, run.learners, team, OPEN_LIMIT_S)


def _minibatch(plan: Plan, rollout: tuple[ArraySpec, ...]) -> Minibatch:
    """Memory for a learner's share of a minibatch: indices and weights of rows, with torch also copies of the rows.

    The networks' outputs are counted for one part of the minibatch at a time.
    """
    spec = plan.learning.spec
    units = part_rows(plan, plan.run.learners)
    whole, part = (spec.rows(number, plan.num_steps) for number in (spec.schedule.mini_batch_size, units))
    held = part * plan.run.accumulate
    row = NUMBER_BYTES
    if not plan.learning.update.native:
        lanes = plan.run.num_envs // plan.num_workers
        kept = sum(part.nbytes for part in rollout if part.name in spec.minibatch)
        row += kept // ((plan.num_steps + 1) * lanes)
        row += sum(target.nbytes for target in spec.targets if target.name in spec.minibatch)
    return Minibatch(whole, held * row + part * activation_bytes(plan))
