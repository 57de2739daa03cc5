"""Which runs can learn from kept episodes, and from which of them. Reads no episode.

An algorithm: if it needs nothing of the policy that acted. An episode of a game: if the run's agent has seen it.
"""

from collections.abc import Mapping

from penstock.algorithm import AlgorithmSpec
from penstock.envs.games import agent_class, agent_name, is_game
from penstock.errors import ConfigError
from penstock.games.agent import hooks_of
from penstock.types import EnvReference

__all__ = ["check_agent", "lacking"]


def lacking(spec: AlgorithmSpec) -> str | None:
    """What an algorithm needs that kept episodes do not hold, to be read after its name; ``None``: nothing."""
    if spec.table is None:
        return "learns from rollouts of its present policy, and kept episodes are of others"
    if spec.table.sequences is not None or spec.policy.carry:
        return "learns with a memory here, which kept episodes do not hold"
    missing = [part.name for part in spec.row if part.name in spec.minibatch]
    return f"learns from {missing[0]} of the policy that acted, which kept episodes do not hold" if missing else None


def check_agent(env: EnvReference, agents: Mapping[int, str], source: str) -> None:
    """Check that kept episodes hold what the agent of a run sees, if it may change what clients send.

    Args:
        env: of the run.
        agents: number of an episode -> name of the agent that has seen it; empty: it is as a client has sent it.
        source: the flag and the folder of the episodes, for the error text.

    Raises:
        ConfigError: an episode holds what a client has sent, or what another agent has seen.
    """
    if not is_game(env):
        return
    name = agent_name(env)
    # `encode` only changes replies.
    hooks = [hook for hook in hooks_of(agent_class(env)) if hook != "encode"]
    for number, agent in agents.items() if hooks else ():
        if agent != name:
            holds = f"what agent {agent} has seen" if agent else "what a client has sent"
            raise ConfigError(
                f"{source}: episode {number} holds {holds}, and the run learns from what its agent {name} sees "
                f"({', '.join(hooks)}); collect episodes with penstock serve RUN, without --agent"
            )
