"""How the environment nodes of a training get actions: from a policy of their own, or from policy nodes.

`RunConfig.policy_placement` says which.
"""

from penstock.kernels.actions import environment_array
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.policy_node import PolicyNodeSettings
from penstock.policies.acting import PolicySettings
from penstock.policies.batching import BatchRule
from penstock.policies.exploration import Exploration
from penstock.program.graph import Edge, LocalAnswer, NodeSpec, RemoteAnswer, Table
from penstock.program.plan import Plan
from penstock.topologies.imports import policy_imports
from penstock.types import ArraySpec

__all__ = ["answer", "policy_names", "policy_nodes"]


def policy_names(plan: Plan) -> tuple[str, ...]:
    """The policy nodes; empty if environment nodes run the policy themselves."""
    count = plan.run.policy_nodes if plan.run.policy_placement == "node" else 0
    return tuple(f"policy.{index}" for index in range(count))


def answer(plan: Plan, rollouts: Edge) -> LocalAnswer | RemoteAnswer:
    """What answers the environment nodes, which write ``rollouts``."""
    policies, stacks = policy_names(plan), _stacks(plan, rollouts)
    if not policies:
        return LocalAnswer("local_policy", _policy_settings(plan, stacks))
    lanes = plan.run.num_envs // plan.num_workers
    array = environment_array(plan.spaces.action, lanes)
    action = ArraySpec("environment_action", array.shape, array.dtype.name)
    carry = tuple(spec.within(lanes) for spec in plan.learning.spec.policy.carry)
    streams = ("rollouts",) * plan.num_workers
    return RemoteAnswer(policies, streams, action, tuple(spec.within(lanes) for spec in stacks), carry)


def policy_nodes(plan: Plan, rollouts: Edge) -> tuple[NodeSpec, ...]:
    """The policy nodes, each in a process of its own. Those who ask write ``rollouts``."""
    rule = BatchRule(plan.run.max_batch, plan.run.max_wait)
    settings = PolicyNodeSettings(_policy_settings(plan, _stacks(plan, rollouts)), WORK_LIMIT_S, rule)
    imports = policy_imports(plan.run, plan.learning.inference)
    return tuple(NodeSpec(name, "policy_node", settings, group=name, imports=imports) for name in policy_names(plan))


def _policy_settings(plan: Plan, stacks: tuple[ArraySpec, ...]) -> PolicySettings:
    run, spec = plan.run, plan.learning.spec
    return PolicySettings(
        backend=plan.learning.inference,
        policy=spec.policy,
        spaces=plan.spaces,
        row=spec.row,
        seed=run.seed,
        exploration=Exploration(spec.explore, spec.warmup, run.num_envs, run.timesteps / run.num_envs),
        stacks=stacks,
    )


def _stacks(plan: Plan, rollouts: Edge) -> tuple[ArraySpec, ...]:
    """Observation fields that rollouts store in another shape than the policy sees: one frame instead of a stack."""
    kept = {spec.name: spec.shape[2:] for spec in rollouts.arrays} if isinstance(rollouts, Table) else {}
    return tuple(spec for spec in plan.spaces.obs_specs() if kept.get(spec.name, spec.shape) != spec.shape)
