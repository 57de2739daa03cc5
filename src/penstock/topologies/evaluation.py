"""The graph of a final evaluation. A judge hands out greedy episodes, players play them, the judge adds them up.

judge --tickets--> player.0 .. player.n --episodes--> judge
judge --policy--> player.0 .. player.n
"""

from penstock.config.episode_metrics import info_names
from penstock.nodes.evaluation import (
    TICKET,
    JudgeSettings,
    PlayerSettings,
    answer_specs,
    found_specs,
)
from penstock.program.graph import Board, NodeSpec, Program, Record, Stream
from penstock.program.plan import EvaluationPlan
from penstock.topologies.env_nodes import step_limit_s
from penstock.topologies.imports import policy_imports
from penstock.topologies.play_settings import play_settings

__all__ = ["build"]

WAITING_TICKETS = 64
"""Least number of tickets that wait for players, so that no player waits for the judge."""
ALARM_S = 5.0
"""A player breaks off a step that takes too long. If it cannot, it counts as hung this many seconds later."""


def build(plan: EvaluationPlan) -> Program:
    """As many players as the plan allows, but no more than there are episodes."""
    players = tuple(f"player.{index}" for index in range(min(plan.players, plan.episodes)))
    lanes = _lanes(plan, len(players))
    slots = min(plan.episodes, max(WAITING_TICKETS, 2 * lanes * len(players)))
    names = info_names(plan.run.episode_metrics)
    judge = JudgeSettings(
        env=plan.name,
        published=plan.published,
        episodes=plan.episodes,
        seconds=plan.seconds,
        stall_timeout=plan.run.stall_timeout,
        quiet=plan.quiet,
        first=plan.first,
    )
    return Program(
        nodes=(
            NodeSpec("judge", "judge", judge, group="judge"),
            *(_player(plan, index, name, lanes) for index, name in enumerate(players)),
        ),
        edges=(
            # Episodes to be played. A slot is free again once its episode is answered.
            Stream("tickets", ("judge",), players, TICKET, slots, "wait"),
            # Results of these episodes.
            Stream("episodes", players, ("judge",), answer_specs(names), slots, "wait"),
            # Parameters of the policy that plays.
            Board("policy", "judge", players, plan.policy.published()),
            # The answers so far. The judge's successor continues after them.
            Record("evaluation", "judge", found_specs(plan.episodes, names)),
        ),
        ends_with=("judge",),
        max_restarts=plan.run.max_restarts,
        folder=plan.folder.path,
        deaths=plan.folder.deaths,
    )


def _lanes(plan: EvaluationPlan, players: int) -> int:
    """The lanes of one player.

    Scalar environments of one process take turns, so more than one would make their episodes longer, beyond the time
    limit of an evaluation. A vector environment has as many lanes as in training.
    """
    if plan.kind == "scalar":
        return 1
    return min(plan.run.num_envs // plan.num_workers, -(-plan.episodes // players))


def _player(plan: EvaluationPlan, index: int, name: str, lanes: int) -> NodeSpec:
    limit = step_limit_s(plan.run, plan.kind, lanes)
    played = play_settings(plan.run, plan.env, plan.spaces, plan.policy, plan.inference, lanes=lanes, seed=plan.seed)
    settings = PlayerSettings(played, plan.first_player + index, env_timeout=limit, keep=plan.keep)
    imports = policy_imports(plan.run, plan.inference)
    return NodeSpec(
        name, "player", settings, group=name, silence_limit_s=limit + ALARM_S, steps_envs=True, imports=imports
    )
