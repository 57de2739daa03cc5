"""Actor and learner in one process: each computes gradients of its own rollouts. One node applies them as they come.

env.k --rollouts--> learner.k (same process) --gradients--> learner --policy--> env.k, --parameters--> learner.k
"""

import math
from dataclasses import replace

from penstock.algorithm import Schedule
from penstock.errors import ConfigError
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.learner import StreamFollowerSettings, StreamParameterSettings, stream_parameter_record_specs
from penstock.nodes.learner.gradient_slot import own_batch_board_specs, own_batch_slot_specs
from penstock.program.graph import Board, NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.topologies.env_nodes import env_names
from penstock.topologies.learners import (
    GRADIENTS_TEAM,
    gpu_of,
    keeper_settings,
    learner_imports,
    required,
    rollout_arrays,
    updater_settings,
)
from penstock.topologies.training import TopologyParts, wire

__all__ = ["build"]


def build(plan: Plan) -> Program:
    """The graph with one slot for each environment node, which waits until the gradient of its rollout is applied.

    Raises:
        ConfigError: ``learners`` is set, the backend compiles or has no part for this, or ``accumulate`` is larger than
            a rollout.
    """
    run, spec = plan.run, plan.learning.spec
    if run.learners > 1:
        raise ConfigError(
            f"--algo {run.algo} has a learner in each environment process: leave --learners out, and give --num_workers"
        )
    if run.backend == "compiled":
        raise ConfigError(
            f"--backend {run.backend} does not run --algo {run.algo} here: every environment process would compile; "
            "try --backend auto"
        )
    envs = env_names(plan)
    learners = tuple(f"learner.{worker}" for worker in range(plan.num_workers))
    update = plan.learning.backend
    follower, applier = required(plan, update.stream_follower), required(plan, update.stream_applier)
    part, parts = _parts(plan)
    cut = replace(spec, schedule=replace(spec.schedule, mini_batch_size=part))
    of_part = replace(plan, run=replace(run, accumulate=1), learning=replace(plan.learning, spec=cut))
    own = [replace(updater_settings(of_part, worker, 1), accumulate=parts) for worker in range(plan.num_workers)]
    # One gradient of each rollout.
    whole = Schedule(epochs=1, mini_batch_size=part * parts)
    first = StreamParameterSettings(
        keeper=keeper_settings(plan),
        build=applier,
        updater=own[0],
        max_gradient_lag=run.max_policy_lag,
        work_limit_s=WORK_LIMIT_S,
    )
    topology = TopologyParts(
        rollouts=Stream(
            "rollouts", envs, ("learner",), rollout_arrays(plan), plan.num_workers, "wait", viewers=learners
        ),
        record=stream_parameter_record_specs(spec, run.num_envs, plan.num_workers, 1, beside_return=plan.beside_return),
        learners=(
            NodeSpec("learner", "stream_parameter", first, group="learner", imports=learner_imports(plan)),
            *(
                NodeSpec(
                    name,
                    "stream_follower",
                    # A rollout is learned from however old its policy is: it has just ended.
                    StreamFollowerSettings(
                        build=follower,
                        updater=updater,
                        schedule=whole,
                        team=GRADIENTS_TEAM,
                        learners=plan.num_workers,
                        rollouts=1,
                        max_policy_lag=math.inf,
                        work_limit_s=WORK_LIMIT_S,
                    ),
                    group=env,
                    threads=plan.learner_threads,
                    gpu=gpu_of(plan, number),
                    imports=learner_imports(plan),
                )
                for number, (name, env, updater) in enumerate(zip(learners, envs, own, strict=True))
            ),
        ),
        max_lag=None,
        niceness=0,
        together=(
            # The gradient of one rollout, to be applied once.
            Stream(
                "gradients",
                learners,
                ("learner",),
                own_batch_slot_specs(spec.shared(), 1),
                2 * plan.num_workers,
                "wait",
            ),
            # The parameters; for each learner, its last settled gradient.
            Board("parameters", "learner", learners, own_batch_board_specs(spec.shared(), plan.num_workers, 1)),
        ),
        policy_readers=learners,
    )
    return wire(plan, topology)


def _parts(plan: Plan) -> tuple[int, int]:
    """Rows or lanes of each part of a rollout, and the number of parts. The gradients of the parts are averaged.

    There are ``accumulate`` parts, or more if a part would be larger than ``mini_batch_size``.

    Raises:
        ConfigError: a rollout has fewer rows or lanes.
    """
    run, spec = plan.run, plan.learning.spec
    lanes = run.num_envs // plan.num_workers
    units = lanes if spec.unit == "lane" else lanes * plan.num_steps
    if run.accumulate > units:
        raise ConfigError(
            f"--accumulate {run.accumulate} is more than the {units} {spec.unit}s of a rollout, which is what "
            f"--algo {run.algo} takes a gradient of; give at most {units}"
        )
    parts = max(run.accumulate, math.ceil(units / spec.schedule.mini_batch_size))
    return math.ceil(units / parts), parts
