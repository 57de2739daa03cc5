"""Learning from replay, in lock step: a turn is one rollout of every environment node, then the steps it makes due.

Rollouts stay in rings of shared memory, one for each environment node, until they are overwritten; the learner draws
its minibatches from there.
"""

import math
from dataclasses import replace
from typing import Literal

from penstock.algorithm import ReplaySchedule, UpdaterSettings
from penstock.errors import ConfigError, PenstockError
from penstock.nodes.learner import (
    ReplayLearnerSettings,
    ReplicaSettings,
    StepSettings,
    replay_record_specs,
    turn_specs,
)
from penstock.program.graph import Board, Edge, NodeSpec, Program, Rounds, Table
from penstock.program.plan import Plan
from penstock.program.rollout import table_specs
from penstock.replay.limiter import RateLimiter
from penstock.replay.priorities import Ranking
from penstock.topologies.training import OPEN_LIMIT_S, Pattern, env_names, keeper_settings, wire

__all__ = ["build", "replayed"]


def build(plan: Plan) -> Program:
    """No lag, turns by lane; nobody works at the same time."""
    return replayed(plan, max_lag=0, order="by_lane", niceness=0)


def replayed(plan: Plan, *, max_lag: int | None, order: Literal["by_lane", "by_arrival"], niceness: int) -> Program:
    """Rollouts go into a table that the learner draws from; ``niceness`` is the environment nodes'."""
    run, spec = plan.run, plan.spec
    schedule, kept = spec.schedule, spec.table
    if not isinstance(schedule, ReplaySchedule) or kept is None:
        raise PenstockError(f"{run.algo} says nothing of a table to learn from")
    lanes = run.num_envs // plan.num_workers
    rollout = table_specs(plan.spaces, spec.row, plan.num_steps, lanes, same_step=plan.same_step)
    turn = run.num_envs * plan.num_steps
    # One slot more than the capacity asks for: while it is filled it cannot be drawn from.
    slots = max(2, math.ceil(kept.capacity / turn)) + 1
    limiter = RateLimiter(
        min_rows=schedule.min_rows,
        samples_per_insert=schedule.updates_per_step * schedule.mini_batch_size,
        tolerance=2 * turn,
    )
    ranking = None
    if kept.priorities is not None:
        ranking = Ranking(kept.priorities.alpha, spec.initial_priority, plan.algorithm_config)
    learners = learner_names(run.learners)
    steps = [
        StepSettings(
            update=plan.update,
            updater=UpdaterSettings(
                learn=plan.learn,
                config=plan.algorithm_config,
                spec=replace(spec, schedule=replace(schedule, mini_batch_size=_share(plan, schedule))),
                spaces=plan.spaces,
                device=run.device,
                threads=plan.learner_threads,
                seed=run.seed,
                learner=number,
            ),
            learners=run.learners,
            open_limit_s=OPEN_LIMIT_S,
        )
        for number in range(run.learners)
    ]
    kinds = ("replay_learner", *("replica" for _ in learners[1:]))
    settings = (
        ReplayLearnerSettings(keeper_settings(plan), steps[0], order),
        *(ReplicaSettings(own, plan.initial) for own in steps[1:]),
    )
    together: tuple[Edge, ...] = ()
    if run.learners > 1:
        together = (
            # Gradients, and the state for who comes later.
            Rounds("gradients", learners, spec.state),
            # Up to where all step, and what they draw from.
            Board("turns", learners[0], learners[1:], turn_specs(plan.num_workers)),
        )
    pattern = Pattern(
        Table("rollouts", env_names(plan), learners, rollout, slots, limiter, ranking),
        replay_record_specs(spec, run.num_envs, plan.num_workers),
        tuple(
            NodeSpec(name, kind, own, group=name, threads=plan.learner_threads)
            for name, kind, own in zip(learners, kinds, settings, strict=True)
        ),
        max_lag,
        niceness,
        together,
    )
    return wire(plan, pattern)


def learner_names(count: int) -> tuple[str, ...]:
    """The learners; the first keeps what all have learned."""
    return ("learner", *(f"learner.{number}" for number in range(1, count)))


def _share(plan: Plan, schedule: ReplaySchedule) -> int:
    """Rows of a minibatch that one learner takes.

    Raises:
        ConfigError: the learners cannot share it evenly.
    """
    share, rest = divmod(schedule.mini_batch_size, plan.run.learners)
    if rest:
        size, count = schedule.mini_batch_size, plan.run.learners
        raise ConfigError(f"--mini_batch_size {size} cannot be shared by {count} learners; give a multiple of {count}")
    return share
