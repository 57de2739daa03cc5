"""Learning from a table while experience is collected: each side waits only if the table's rate limiter says so.

If cores are short, the learner goes first, as with a stream. Several learners do not wait for each other: node
``learner`` owns the parameters and applies the gradients of the others.
"""

from penstock.config.agreement import agreement
from penstock.nodes.learner import FollowerSettings, ParameterSettings, parameter_record_specs
from penstock.nodes.learner.gradient_slot import board_specs, slot_specs
from penstock.program.graph import Board, NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.topologies.off_policy import limiter, minibatch, replayed, slots_ahead, step_settings, table
from penstock.topologies.training import OPEN_LIMIT_S, Pattern, keeper_settings, learner_imports, required, wire

__all__ = ["build"]

NICENESS = 5
"""Niceness of environment processes; see ``async_on_policy``."""
SLOTS = 2
"""Slots of the stream of gradients for each learner: it fills one while the other waits."""


def build(plan: Plan) -> Program:
    """The graph of ``off_policy`` without waiting for versions."""
    agreed = agreement(plan.run, from_table=True)
    if plan.run.learners > 1 and agreed.exchange == "parameter_server":
        return _apart(plan, agreed.pace)
    schedule, _ = plan.learning.spec.replay()
    return replayed(plan, max_lag=None, order="by_arrival", niceness=NICENESS, reuse=schedule.reuse)


def _apart(plan: Plan, pace: str) -> Program:
    run, spec = plan.run, plan.learning.spec
    learners = tuple(f"learner.{number}" for number in range(1, run.learners + 1))
    team = "penstock.gradient_exchange.gradients:build"
    finder, applier = required(plan, plan.learning.update.finder), required(plan, plan.learning.update.applier)
    # Gradients that wait when one is handed on are applied before it, and make it so much older.
    waiting = SLOTS * run.learners
    pull_after = max(0, run.max_policy_lag - waiting) if pace == "lag" else 0
    steps = [step_settings(plan, number, 1, finder, team, pull_after=pull_after) for number in range(run.learners)]
    schedule, _ = spec.replay()
    limits = limiter(plan, schedule.reuse)
    parameter = ParameterSettings(
        keeper_settings(plan), applier, steps[0].updater, limits, run.max_policy_lag, OPEN_LIMIT_S
    )
    pattern = Pattern(
        table(plan, ("learner", *learners), limits, ahead=slots_ahead(plan, limits)),
        parameter_record_specs(spec, run.num_envs, plan.num_workers, run.learners, shaped=plan.shaped),
        (
            NodeSpec("learner", "parameter", parameter, group="learner", imports=learner_imports(plan)),
            *(
                NodeSpec(
                    name,
                    "follower",
                    FollowerSettings(own, run.timesteps),
                    group=name,
                    threads=plan.learner_threads,
                    minibatch=minibatch(plan, 1),
                    imports=learner_imports(plan),
                )
                for name, own in zip(learners, steps, strict=True)
            ),
        ),
        None,
        NICENESS,
        (
            # The gradients of one step of a follower, to be applied once.
            Stream("gradients", learners, ("learner",), slot_specs(spec.shared()), waiting, "wait"),
            # The state after these steps; for each learner, its last gradients that were applied or dropped.
            Board("parameters", "learner", learners, board_specs(spec.shared(), run.learners)),
        ),
    )
    return wire(plan, pattern)
