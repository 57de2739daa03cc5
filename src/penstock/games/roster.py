"""Roster: the agents of a run by their sessions' names. The next episode of a name has the same agent."""

from collections.abc import Callable, Container

from penstock.games.agent import Agent, Game
from penstock.serving.server.sessions import SessionKey

__all__ = ["Roster"]

_BETWEEN = "-agent-"
"""Between the names of game and agent, in the name of a session."""


class Roster:
    """Agents, and the games that they belong to.

    Args:
        make: makes an agent.
    """

    def __init__(self, make: Callable[[], Agent]) -> None:
        self._make = make
        self._agents: dict[SessionKey, Agent] = {}
        self._games: dict[str, Game] = {}

    def __len__(self) -> int:
        return len(self._agents)

    def agent(self, key: SessionKey) -> Agent:
        """The agent of a session. It is made if its name is new; errors of the user's class are raised."""
        agent = self._agents.get(key)
        if agent is None:
            name = str(key[1])
            game, between, own = name.rpartition(_BETWEEN)
            if not between:
                game, own = name, "0"
            agent = self._agents[key] = self._make()
            agent.name, agent.game = own, self._games.setdefault(game, Game(game))
        return agent

    def keep_only(self, live: Container[SessionKey]) -> None:
        """Forget the agents of other sessions: clients that name each episode anew must not fill the memory."""
        self._agents = {key: agent for key, agent in self._agents.items() if key in live}
        self._games = {agent.game.name: agent.game for agent in self._agents.values()}
