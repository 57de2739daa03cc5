"""Actor and learner in one process: each finds the gradients of its own rollouts. One node applies them as they come.

env.k --rollouts--> learner.k (same process) --gradients--> learner --policy--> env.k, learner.k
"""

import math
from dataclasses import replace

from penstock.errors import ConfigError
from penstock.nodes.learner import (
    ActorLearnerSettings,
    SharedParameterSettings,
    record_specs,
)
from penstock.nodes.learner.gradient_slot import slot_specs
from penstock.program.graph import NodeSpec, Program, Stream
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.topologies.training import (
    OPEN_LIMIT_S,
    Pattern,
    env_names,
    keeper_settings,
    learner_imports,
    required,
    updater_settings,
    wire,
)

__all__ = ["build"]


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
    if run.runtime == "ray":
        raise ConfigError(f"--algo {run.algo} stays on one machine: leave --runtime ray out")
    lanes = run.num_envs // plan.num_workers
    envs = env_names(plan)
    learners = tuple(f"learner.{worker}" for worker in range(plan.num_workers))
    rollout = rollout_specs(
        plan.spaces,
        spec.row,
        plan.num_steps,
        lanes,
        same_step=plan.same_step,
        shaped=plan.shaped,
        carry=spec.policy.carry,
    )
    finder, applier = required(plan, plan.learning.update.stream_finder), required(plan, plan.learning.update.applier)
    units = lanes if spec.unit == "lane" else lanes * plan.num_steps
    parts = math.ceil(units / spec.schedule.mini_batch_size)
    schedule = replace(spec.schedule, mini_batch_size=math.ceil(units / parts))
    own = [
        replace(updater_settings(plan, worker, 1), spec=replace(spec, schedule=schedule), accumulate=parts)
        for worker in range(plan.num_workers)
    ]
    pattern = Pattern(
        Stream("rollouts", envs, ("learner",), rollout, plan.num_workers, "wait", viewers=learners),
        record_specs(spec, run.num_envs, 1, shaped=plan.shaped),
        (
            NodeSpec(
                "learner",
                "shared_parameter",
                SharedParameterSettings(keeper_settings(plan), applier, own[0], OPEN_LIMIT_S),
                group="learner",
                imports=learner_imports(plan),
            ),
            *(
                NodeSpec(
                    name,
                    "actor_learner",
                    ActorLearnerSettings(
                        finder, updater, worker * lanes, plan.num_workers, run.timesteps, OPEN_LIMIT_S
                    ),
                    group=env,
                    threads=plan.learner_threads,
                    imports=learner_imports(plan),
                )
                for worker, (name, env, updater) in enumerate(zip(learners, envs, own, strict=True))
            ),
        ),
        None,
        0,
        (
            # The gradient of one rollout, to be applied once.
            Stream("gradients", learners, ("learner",), slot_specs(spec.shared()), 2 * plan.num_workers, "wait"),
        ),
        policy_readers=learners,
    )
    return wire(plan, pattern)
