"""The node that evaluates the policy while a training goes on.

Builds no program of its own: that of a final evaluation is in ``evaluation.py``.
"""

from penstock.algorithm_lookup import find_algorithm
from penstock.config.episode_metrics import episode_metrics, info_names
from penstock.nodes.contract import OPEN_LIMIT_S
from penstock.nodes.evaluation import EvaluatorSettings, PlaySettings
from penstock.program.graph import NodeSpec
from penstock.program.plan import Plan
from penstock.topologies.env_nodes import step_limit_s
from penstock.topologies.imports import policy_imports

__all__ = ["evaluator_node"]


def evaluator_node(plan: Plan) -> NodeSpec:
    """The evaluator. It plays the episodes of one evaluation in as many lanes as the training has."""
    played = PlaySettings(
        env=plan.env,
        vector=plan.run.vector_env,
        ignore_obs=plan.run.ignore_obs or (),
        spaces=plan.spaces,
        policy=plan.learning.spec.policy,
        backend=plan.learning.inference,
        lanes=plan.run.num_envs,
        seed=plan.run.seed,
        bad_numbers=plan.run.bad_numbers,
        open_limit_s=OPEN_LIMIT_S,
        masks=find_algorithm(plan.run.algo).masks,
        episode_metrics=info_names(plan.run.episode_metrics),
    )
    settings = EvaluatorSettings(played, plan.run.eval_episodes, episode_metrics(plan.run.episode_metrics))
    limit = step_limit_s(plan.run, plan.kind, plan.run.num_envs)
    return NodeSpec(
        "evaluator",
        "evaluator",
        settings,
        group="evaluator",
        silence_limit_s=limit,
        steps_envs=True,
        imports=policy_imports(plan.run, plan.learning.inference),
    )
