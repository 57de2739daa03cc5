"""A stream whose learners do not share the state: they compute gradients, and node ``learner`` owns the parameters.

env.0 .. env.n --rollouts--> learner, seen by learner.1 .. learner.K
learner.1 .. learner.K --gradients--> learner --parameters--> learner.1 .. learner.K

With pace ``sync`` the learners share each batch, and a step goes down their mean gradient. With ``async`` and ``lag``
each has batches of its own. With ``hogwild`` each also steps the parameters itself, in shared arrays.
"""

from dataclasses import replace
from typing import Literal

from penstock.algorithm import Schedule
from penstock.config.agreement import Agreement
from penstock.errors import PenstockError
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.learner import (
    BatchFollowerSettings,
    HandedOnEpochSettings,
    LearnerSettings,
    StreamFollowerSettings,
    StreamParameterSettings,
    record_specs,
    stream_parameter_record_specs,
)
from penstock.nodes.learner.gradient_slot import (
    common_batch_board_specs,
    own_batch_board_specs,
    own_batch_slot_specs,
    slot_specs,
)
from penstock.program.graph import NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.registry import compression_of
from penstock.topologies.env_nodes import env_names
from penstock.topologies.learners import (
    GRADIENTS_TEAM,
    follower_names,
    gradient_edges,
    keeper_settings,
    learner_imports,
    learner_nodes,
    pull_after,
    required,
    rollout_arrays,
    rule_of,
    stream_minibatch,
    updater_settings,
)
from penstock.topologies.training import TopologyParts, wire
from penstock.updates.settings import UpdaterSettings

__all__ = ["at_own_pace", "in_step"]


def in_step(
    plan: Plan, *, slots: int, max_lag: int | None, assemble: Literal["by_lane", "by_arrival"], niceness: int
) -> Program:
    """The graph with pace ``sync``. Its arguments are those of ``on_policy.streamed``."""
    run, spec = plan.run, plan.learning.spec
    learners, schedule = follower_names(run.learners), _schedule(plan)
    follower, applier = _backend(plan)
    own = [
        replace(updater_settings(plan, number, run.learners), sharing=run.learners, waits=True)
        for number in range(run.learners)
    ]
    epochs = HandedOnEpochSettings(
        build=applier, updater=own[0], schedule=schedule, learners=run.learners, work_limit_s=WORK_LIMIT_S
    )
    first = LearnerSettings(keeper_settings(plan), epochs, plan.num_workers, assemble)
    settings = [
        BatchFollowerSettings(
            build=follower,
            updater=updater,
            schedule=schedule,
            team=GRADIENTS_TEAM,
            rollouts=plan.num_workers,
            work_limit_s=WORK_LIMIT_S,
        )
        for updater in own
    ]
    topology = TopologyParts(
        rollouts=Stream(
            "rollouts", env_names(plan), ("learner",), rollout_arrays(plan), slots, "wait", viewers=learners
        ),
        record=record_specs(spec, run.num_envs, plan.num_workers, beside_return=plan.beside_return),
        learners=(
            NodeSpec("learner", "learner", first, group="learner", imports=learner_imports(plan)),
            *learner_nodes(
                plan, learners, ["batch_follower"] * run.learners, settings, stream_minibatch(plan, run.learners)
            ),
        ),
        max_lag=max_lag,
        niceness=niceness,
        # A slot has the gradient of one learner's share of the minibatch that the board names.
        together=gradient_edges(
            plan,
            slot_specs(spec.shared(), compression_of(run.compress)),
            common_batch_board_specs(spec.shared(), run.learners, plan.num_workers),
        ),
        policy_readers=learners,
    )
    return wire(plan, topology)


def at_own_pace(plan: Plan, agreed: Agreement, *, slots: int, niceness: int) -> Program:
    """The graph with pace ``async`` or ``lag``. No environment node waits for a version."""
    run, spec, rule = plan.run, plan.learning.spec, rule_of(plan, agreed)
    learners, rollouts = follower_names(run.learners), plan.num_workers // run.learners
    follower, applier = _backend(plan)
    if rule.owner is not None:
        follower = plan.learning.backend.stream
    own = [_own(plan, number, pull_after(plan, agreed.pace)) for number in range(run.learners)]
    schedule = replace(_schedule(plan), mini_batch_size=own[0].spec.schedule.mini_batch_size * run.accumulate)
    first = StreamParameterSettings(
        keeper=keeper_settings(plan),
        build=applier,
        updater=own[0],
        max_gradient_lag=rule.max_gradient_lag,
        work_limit_s=WORK_LIMIT_S,
        owner=rule.owner,
    )
    settings = [
        StreamFollowerSettings(
            build=follower,
            updater=updater,
            schedule=schedule,
            team=rule.team,
            learners=run.learners,
            rollouts=rollouts,
            max_policy_lag=run.max_policy_lag,
            work_limit_s=WORK_LIMIT_S,
        )
        for updater in own
    ]
    topology = TopologyParts(
        rollouts=Stream(
            "rollouts",
            env_names(plan),
            ("learner",),
            rollout_arrays(plan),
            slots,
            "wait",
            viewers=learners,
            woken=learners,
        ),
        record=stream_parameter_record_specs(
            spec, run.num_envs, run.learners, rollouts, beside_return=plan.beside_return
        ),
        learners=(
            NodeSpec("learner", "stream_parameter", first, group="learner", imports=learner_imports(plan)),
            *learner_nodes(plan, learners, ["stream_follower"] * run.learners, settings, stream_minibatch(plan, 1)),
        ),
        max_lag=None,
        niceness=niceness,
        together=(
            # For each learner, the board also has its last settled gradient, and how far its batch is.
            *gradient_edges(
                plan,
                own_batch_slot_specs(rule.handed_on, rollouts, compression_of(run.compress)),
                own_batch_board_specs(rule.told, run.learners, rollouts),
            ),
            *rule.edges,
        ),
        policy_readers=learners,
    )
    return wire(plan, topology)


def _own(plan: Plan, learner: int, behind: int) -> UpdaterSettings:
    """Settings of a learner that has batches of its own. A minibatch has at most all their rows or lanes."""
    updater = updater_settings(plan, learner, 1, pull_after=behind)
    schedule, lanes = updater.spec.schedule, plan.run.num_envs // plan.run.learners
    units = lanes if updater.spec.unit == "lane" else lanes * plan.num_steps
    size = min(schedule.mini_batch_size, -(-units // updater.accumulate))
    return replace(updater, spec=replace(updater.spec, schedule=replace(schedule, mini_batch_size=size)))


def _schedule(plan: Plan) -> Schedule:
    if not isinstance(plan.learning.spec.schedule, Schedule):
        raise PenstockError("a stream of rollouts is learned from in epochs")
    return plan.learning.spec.schedule


def _backend(plan: Plan) -> tuple[str, str]:
    """What computes gradients on rollouts, and what applies them."""
    update = plan.learning.backend
    return required(plan, update.stream_follower), required(plan, update.stream_applier)
