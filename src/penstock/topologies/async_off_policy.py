"""Learning from a table while experience is collected: each side waits only if the table's rate limiter says so.

If cores are short, the learner goes first, as with a stream. Several learners do not wait for each other: node
``learner`` owns the parameters and applies the gradients of the others.
"""

from penstock.config.agreement import Agreement, agreement
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.learner import ParameterSettings, parameter_record_specs
from penstock.nodes.learner.gradient_slot import board_specs, slot_specs
from penstock.program.graph import NodeSpec, Program
from penstock.program.plan import Plan
from penstock.registry import compression_of
from penstock.topologies.env_nodes import NICENESS
from penstock.topologies.learners import (
    follower_names,
    gradient_edges,
    keeper_settings,
    learner_imports,
    learner_nodes,
    pull_after,
    required,
    rule_of,
)
from penstock.topologies.off_policy import limiter, minibatch, replayed, slots_ahead, step_settings, table
from penstock.topologies.training import TopologyParts, wire

__all__ = ["build"]


def build(plan: Plan) -> Program:
    """The graph of ``off_policy`` without waiting for versions."""
    agreed = agreement(plan.run, from_table=True)
    if agreed.apart:
        return _apart(plan, agreed)
    schedule, _ = plan.learning.spec.replay()
    return replayed(plan, max_lag=None, order="by_arrival", niceness=NICENESS, reuse=schedule.reuse)


def _apart(plan: Plan, agreed: Agreement) -> Program:
    run, spec = plan.run, plan.learning.spec
    schedule, _ = spec.replay()
    learners, rule, update = follower_names(run.learners), rule_of(plan, agreed), plan.learning.backend
    follower = required(plan, update.follower if rule.owner is None else update.replay)
    applier = required(plan, update.applier)
    behind = pull_after(plan, agreed.pace)
    steps = [step_settings(plan, number, 1, follower, rule.team, pull_after=behind) for number in range(run.learners)]
    limits = limiter(plan, schedule.reuse)
    parameter = ParameterSettings(
        keeper=keeper_settings(plan),
        build=applier,
        updater=steps[0].updater,
        limiter=limits,
        max_gradient_lag=rule.max_gradient_lag,
        work_limit_s=WORK_LIMIT_S,
        owner=rule.owner,
    )
    topology = TopologyParts(
        rollouts=table(plan, ("learner", *learners), limits, ahead=slots_ahead(plan, limits)),
        record=parameter_record_specs(
            spec, run.num_envs, plan.num_workers, run.learners, beside_return=plan.beside_return
        ),
        learners=(
            NodeSpec("learner", "parameter", parameter, group="learner", imports=learner_imports(plan)),
            *learner_nodes(plan, learners, ["follower"] * run.learners, steps, minibatch(plan, 1)),
        ),
        max_lag=None,
        niceness=NICENESS,
        together=(
            # For each learner, the board also has its last gradients that were applied or dropped.
            *gradient_edges(
                plan,
                slot_specs(rule.handed_on, compression_of(run.compress)),
                board_specs(rule.told, run.learners),
            ),
            *rule.edges,
        ),
    )
    return wire(plan, topology)
