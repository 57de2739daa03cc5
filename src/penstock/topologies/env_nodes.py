"""The nodes that write rollouts: environment nodes; or the lanes of games, and the node that games connect to."""

from dataclasses import replace

from penstock.algorithm_lookup import find_algorithm
from penstock.config.episode_metrics import info_names
from penstock.config.schema import RunConfig
from penstock.nodes.contract import WORK_LIMIT_S, LaneStart
from penstock.nodes.env import EnvSettings
from penstock.program.graph import NodeSpec
from penstock.program.plan import Plan
from penstock.topologies.imports import policy_imports
from penstock.types import EnvKind

__all__ = ["GAMES", "NICENESS", "env_names", "env_nodes", "step_limit_s"]

NICENESS = 5
"""Niceness of environment processes where collection overlaps learning. They get a third of the learner's share of a
core. With equal shares, two environment processes and a slow learner do not fill two cores: both processes wait for the
learner, and one core rests.
"""
GAMES = "games"
"""Name of the node that games connect to, of its process, and of the object that lanes and sessions share."""


def env_names(plan: Plan) -> tuple[str, ...]:
    """The environment nodes, in lane order."""
    return tuple(f"env.{worker}" for worker in range(plan.num_workers))


def env_nodes(plan: Plan, niceness: int) -> tuple[NodeSpec, ...]:
    """The nodes that write rollouts, each environment node in a process of its own, of this niceness."""
    nodes = tuple(_env(plan, worker, niceness) for worker in range(plan.num_workers))
    if plan.games is None:
        return nodes
    imports = policy_imports(plan.run, plan.learning.inference)
    return (
        *(replace(node, kind="game_lane", group=GAMES) for node in nodes),
        NodeSpec(GAMES, "games", plan.games, group=GAMES, niceness=niceness, imports=imports),
    )


def _env(plan: Plan, worker: int, niceness: int) -> NodeSpec:
    lanes = plan.run.num_envs // plan.num_workers
    first = worker * lanes
    starts: tuple[LaneStart, ...] = plan.starts[first : first + lanes]
    settings = EnvSettings(
        env=plan.env,
        vector=plan.run.vector_env,
        ignore_obs=plan.run.ignore_obs or (),
        spaces=plan.spaces,
        worker=worker,
        num_workers=plan.num_workers,
        first_lane=first,
        lanes=lanes,
        num_steps=plan.num_steps,
        renew_every=plan.run.renew_every,
        seed=plan.run.seed,
        starts=starts,
        bad_numbers=plan.run.bad_numbers,
        work_limit_s=WORK_LIMIT_S,
        masks=find_algorithm(plan.run.algo).masks,
        reward=plan.reward,
        episode_metrics=info_names(plan.run.episode_metrics),
    )
    name = f"env.{worker}"
    limit = step_limit_s(plan.run, plan.kind, lanes)
    return NodeSpec(
        name,
        "env",
        settings,
        group=name,
        silence_limit_s=limit,
        steps_envs=True,
        niceness=niceness,
        core=worker if plan.own_cores else None,
        imports=policy_imports(plan.run, plan.learning.inference),
    )


def step_limit_s(run: RunConfig, kind: EnvKind, lanes: int) -> float:
    """Longest silence of a node that steps environments: one step of a scalar one, or one call for all lanes."""
    return run.env_timeout * (lanes if kind == "vector" else 1)
