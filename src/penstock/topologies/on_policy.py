"""Lock step: every environment node writes one rollout for each published version. The learner waits for all."""

from typing import Literal

from penstock.nodes.learner import LearnerSettings, record_specs
from penstock.program.graph import Minibatch, NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.topologies.training import (
    OPEN_LIMIT_S,
    Pattern,
    activation_bytes,
    env_names,
    keeper_settings,
    learner_imports,
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
    settings = LearnerSettings(
        keeper=keeper_settings(plan),
        update=plan.learning.update.stream,
        updater=updater_settings(plan, 0, 1),
        rollouts_per_batch=plan.num_workers,
        assemble=assemble,
        open_limit_s=OPEN_LIMIT_S,
    )
    pattern = Pattern(
        Stream("rollouts", env_names(plan), ("learner",), rollout, slots, "wait"),
        record_specs(plan.learning.spec, run.num_envs, plan.num_workers, shaped=plan.shaped),
        (
            NodeSpec(
                "learner",
                "learner",
                settings,
                group="learner",
                threads=plan.learner_threads,
                minibatch=_minibatch(plan, rollout),
                imports=learner_imports(plan),
            ),
        ),
        max_lag,
        niceness,
    )
    return wire(plan, pattern)


def _minibatch(plan: Plan, rollout: tuple[ArraySpec, ...]) -> Minibatch:
    """Memory for a minibatch: indices and weights of rows, with torch also copies of the rows.

    The networks' outputs are counted for one part of the minibatch at a time.
    """
    spec = plan.learning.spec
    size, part = (spec.rows(units, plan.num_steps) for units in (spec.schedule.mini_batch_size, part_rows(plan, 1)))
    row = NUMBER_BYTES
    if not plan.learning.update.native:
        lanes = plan.run.num_envs // plan.num_workers
        kept = sum(part.nbytes for part in rollout if part.name in spec.minibatch)
        row += kept // ((plan.num_steps + 1) * lanes)
        row += sum(target.nbytes for target in spec.targets if target.name in spec.minibatch)
    return Minibatch(size, size * row + part * activation_bytes(plan))
