"""Lock step: every environment node gives one rollout of each published version; the learner waits for all of them."""

from typing import Literal

from penstock.nodes.learner import LearnerSettings, record_specs
from penstock.program.graph import NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.topologies.training import OPEN_LIMIT_S, Pattern, env_names, keeper_settings, wire

__all__ = ["build", "streamed"]


def build(plan: Plan) -> Program:
    """One slot for each environment node, no lag, batches assembled by lane; nobody works at the same time."""
    return streamed(plan, slots=plan.num_workers, max_lag=0, assemble="by_lane", niceness=0)


def streamed(
    plan: Plan, *, slots: int, max_lag: int | None, assemble: Literal["by_lane", "by_arrival"], niceness: int
) -> Program:
    """Rollouts go to the learner by a stream of so many slots; ``niceness`` is the environment nodes'."""
    run = plan.run
    lanes = run.num_envs // plan.num_workers
    rollout = rollout_specs(plan.spaces, plan.spec.row, plan.num_steps, lanes, same_step=plan.same_step)
    settings = LearnerSettings(
        keeper=keeper_settings(plan),
        learn=plan.learn,
        update=plan.update,
        rollouts_per_batch=plan.num_workers,
        assemble=assemble,
        threads=plan.learner_threads,
        open_limit_s=OPEN_LIMIT_S,
    )
    pattern = Pattern(
        Stream("rollouts", env_names(plan), ("learner",), rollout, slots, "wait"),
        record_specs(plan.spec, run.num_envs, plan.num_workers),
        (NodeSpec("learner", "learner", settings, group="learner", threads=plan.learner_threads),),
        max_lag,
        niceness,
    )
    return wire(plan, pattern)
