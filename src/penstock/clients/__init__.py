"""Clients for games: they ask a run that trains, or a served policy, for actions. Standard library only."""

from penstock.clients.agents import AgentsClient
from penstock.clients.asynchronous import AsyncGameClient
from penstock.clients.blocking import GameClient
from penstock.clients.wire import EpisodeLostError, RefusedError

__all__ = ["AgentsClient", "AsyncGameClient", "EpisodeLostError", "GameClient", "RefusedError"]
