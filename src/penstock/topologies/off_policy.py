"""Learning from replay, in lock step: a turn is one rollout of every environment node, then the steps it makes due.

Rollouts stay in rings of shared memory, one for each environment node, until they are overwritten; the learner draws
its minibatches from there.
"""

import math
from typing import Literal

from penstock.algorithm import ReplaySchedule, UpdaterSettings
from penstock.errors import PenstockError
from penstock.nodes.learner import ReplayLearnerSettings, replay_record_specs
from penstock.program.graph import NodeSpec, Program, Table
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
    settings = ReplayLearnerSettings(
        keeper=keeper_settings(plan),
        update=plan.update,
        updater=UpdaterSettings(
            learn=plan.learn,
            config=plan.algorithm_config,
            spec=spec,
            spaces=plan.spaces,
            device=run.device,
            threads=plan.learner_threads,
            seed=run.seed,
        ),
        order=order,
        open_limit_s=OPEN_LIMIT_S,
    )
    pattern = Pattern(
        Table("rollouts", env_names(plan), ("learner",), rollout, slots, limiter, ranking),
        replay_record_specs(spec, run.num_envs, plan.num_workers),
        NodeSpec("learner", "replay_learner", settings, group="learner", threads=plan.learner_threads),
        max_lag,
        niceness,
    )
    return wire(plan, pattern)
