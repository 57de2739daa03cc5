"""Lock step: every environment node gives one rollout of each published version; the learner waits for all of them."""

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
"""A row's flat index and its weight."""


def build(plan: Plan) -> Program:
    """One slot for each environment node, no lag, batches assembled by lane; nobody works at the same time."""
    return streamed(plan, slots=plan.num_workers, max_lag=0, assemble="by_lane", niceness=0)


def streamed(
    plan: Plan, *, slots: int, max_lag: int | None, assemble: Literal["by_lane", "by_arrival"], niceness: int
) -> Program:
    """Rollouts go to the learner by a stream of so many slots; ``niceness`` is the environment nodes'."""
    run = plan.run
    lanes = run.num_envs // plan.num_workers
    rollout = rollout_specs(
        plan.spaces, plan.spec.row, plan.num_steps, lanes, same_step=plan.same_step, shaped=plan.shaped
    )
    settings = LearnerSettings(
        keeper=keeper_settings(plan),
        update=plan.update.stream,
        updater=updater_settings(plan, 0, 1),
        rollouts_per_batch=plan.num_workers,
        assemble=assemble,
        open_limit_s=OPEN_LIMIT_S,
    )
    pattern = Pattern(
        Stream("rollouts", env_names(plan), ("learner",), rollout, slots, "wait"),
        record_specs(plan.spec, run.num_envs, plan.num_workers, shaped=plan.shaped),
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
    """The rows of a minibatch, which are copied out of the stream where torch learns; their numbers and weights.

    What networks give is there for one part of it at a time.
    """
    spec, size = plan.spec, plan.spec.schedule.mini_batch_size
    row = NUMBER_BYTES
    if not plan.update.native:
        lanes = plan.run.num_envs // plan.num_workers
        kept = sum(part.nbytes for part in rollout if part.name in spec.minibatch)
        row += kept // ((plan.num_steps + 1) * lanes)
        row += sum(part.nbytes for part in spec.targets if part.name in spec.minibatch)
    return Minibatch(size, size * row + part_rows(plan, 1) * activation_bytes(plan))
