"""The node that evaluates the policy while a training goes on.

Builds no program of its own: that of a final evaluation is in ``evaluation.py``.
"""

from penstock.config.episode_metrics import episode_metrics
from penstock.nodes.evaluation import EvaluatorSettings
from penstock.program.graph import NodeSpec
from penstock.program.plan import Plan
from penstock.topologies.env_nodes import step_limit_s
from penstock.topologies.imports import policy_imports
from penstock.topologies.play_settings import play_settings

__all__ = ["evaluator_node"]


def evaluator_node(plan: Plan) -> NodeSpec:
    """The evaluator. It plays the episodes of one evaluation in as many lanes as the training has."""
    run, learning = plan.run, plan.learning
    played = play_settings(
        run, plan.env, plan.spaces, learning.spec.policy, learning.inference, lanes=run.num_envs, seed=run.seed
    )
    settings = EvaluatorSettings(played, run.eval_episodes, episode_metrics(run.episode_metrics))
    limit = step_limit_s(run, plan.kind, run.num_envs)
    return NodeSpec(
        "evaluator",
        "evaluator",
        settings,
        group="evaluator",
        silence_limit_s=limit,
        steps_envs=True,
        imports=policy_imports(run, learning.inference),
    )
