"""Actor and learner in one process: each finds the gradients of its own rollouts. One node applies them as they come.

env.k --rollouts--> learner.k (same process) --gradients--> learner --policy--> env.k, --parameters--> learner.k
"""

import math
from dataclasses import replace

from penstock.algorithm import Schedule
from penstock.errors import ConfigError
from penstock.nodes.learner import SharedParameterSettings, StreamFollowerSettings, shared_record_specs
from penstock.nodes.learner.gradient_slot import batch_board_specs, batch_slot_specs
from penstock.program.graph import Board, NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.topologies.learners import (
    keeper_settings,
    learner_imports,
    required,
    rollout_arrays,
    updater_settings,
)
from penstock.topologies.training import OPEN_LIMIT_S, Pattern, env_names, wire

__all__ = ["build"]

TEAM = "penstock.gradient_exchange.gradients:build"


def build(plan: Plan) -> Program:
    """The graph with one slot for each environment node, which waits until the gradient of its rollout is applied.

    Raises:
        ConfigError: there are several learners besides, parts of minibatches, or several machines.
    """
    run, spec = plan.run, plan.learning.spec
    for name, instead in (("learners", "--num_workers"), ("accumulate", "--mini_batch_size")):
        if getattr(run, name) > 1:
            raise ConfigError(
                f"--algo {run.algo} has a learner in each environment process: leave --{name} out, and give {instead}"
            )
    if run.backend == "compiled":
        raise ConfigError(
            f"--backend {run.backend} does not run --algo {run.algo} here: every environment process would compile; "
            "try --backend auto"
        )
    if run.runtime == "ray":
        raise ConfigError(f"--algo {run.algo} stays on one machine: leave --runtime ray out")
    lanes = run.num_envs // plan.num_workers
    envs = env_names(plan)
    learners = tuple(f"learner.{worker}" for worker in range(plan.num_workers))
    update = plan.learning.update
    finder, applier = required(plan, update.stream_finder), required(plan, update.stream_applier)
    units = lanes if spec.unit == "lane" else lanes * plan.num_steps
    parts = math.ceil(units / spec.schedule.mini_batch_size)
    part = math.ceil(units / parts)
    cut = replace(spec, schedule=replace(spec.schedule, mini_batch_size=part))
    own = [replace(updater_settings(plan, worker, 1), spec=cut, accumulate=parts) for worker in range(plan.num_workers)]
    # One gradient of each rollout.
    whole = Schedule(epochs=1, mini_batch_size=part * parts)
    first = SharedParameterSettings(keeper_settings(plan), applier, own[0], run.max_policy_lag, OPEN_LIMIT_S)
    pattern = Pattern(
        Stream("rollouts", envs, ("learner",), rollout_arrays(plan), plan.num_workers, "wait", viewers=learners),
        shared_record_specs(spec, run.num_envs, plan.num_workers, 1, shaped=plan.shaped),
        (
            NodeSpec("learner", "shared_parameter", first, group="learner", imports=learner_imports(plan)),
            *(
                NodeSpec(
                    name,
                    "stream_follower",
                    # A rollout is learned from however old its policy is: it has just ended.
                    StreamFollowerSettings(finder, updater, whole, TEAM, plan.num_workers, 1, math.inf, OPEN_LIMIT_S),
                    group=env,
                    threads=plan.learner_threads,
                    imports=learner_imports(plan),
                )
                for name, env, updater in zip(learners, envs, own, strict=True)
            ),
        ),
        None,
        0,
        (
            # The gradient of one rollout, to be applied once.
            Stream(
                "gradients", learners, ("learner",), batch_slot_specs(spec.shared(), 1), 2 * plan.num_workers, "wait"
            ),
            # The parameters; for each learner, its last settled gradient.
            Board("parameters", "learner", learners, batch_board_specs(spec.shared(), plan.num_workers, 1)),
        ),
        policy_readers=learners,
    )
    return wire(plan, pattern)
