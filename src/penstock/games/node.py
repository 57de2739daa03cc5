"""The nodes that games play with: `GameLaneNode` brings a lane, `GamesNode` owns the sockets and runs all sessions.

They share a process: sessions write into the slots of the lanes that they were given.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from penstock.clients.wire import bracketed
from penstock.envs.games import agent_maker, agent_name
from penstock.errors import EnvError
from penstock.games.kept_rows import KeptRows
from penstock.games.lane import Lane
from penstock.games.lobby import Lobby
from penstock.games.sessions import GameSteps
from penstock.games.settings import PORT_FLAGS, GamesSettings
from penstock.nodes.contract import Ports
from penstock.nodes.env import EnvSettings
from penstock.registry import load
from penstock.saved_runs.episodes import EpisodeFiles
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.connections.connection import Connection
from penstock.serving.server.connections.http import HttpConnection, HttpReply, HttpRequest, Route
from penstock.serving.server.connections.listening import cannot_listen
from penstock.serving.server.connections.service import Service
from penstock.serving.server.metrics import prometheus
from penstock.serving.server.metrics.prometheus import Metrics
from penstock.serving.server.protocols.gamecore.http import PATH, GamecoreHttp
from penstock.serving.server.protocols.gamecore.tcp import GamecoreConnection
from penstock.serving.server.protocols.open_inference.http import HEALTH, InferenceHttp
from penstock.serving.server.protocols.open_inference.models import Models
from penstock.serving.server.steps import StepReply

__all__ = ["GameLaneNode", "GamesNode"]

STEP_S = 0.05
"""Seconds that one call of ``step`` takes."""
_SWEEP_S = 0.25
_BACKLOG = 1024
_WAIT_S = 600.0
"""``max_seconds`` of a run's server. A tick may wait for the learner for five times as long, and then its connection is
dropped. Clients have time-outs of their own."""


class GameLaneNode:
    """Brings the lane of one session. The session itself writes its rollouts, so this node never has work."""

    def __init__(self, settings: EnvSettings) -> None:
        self._settings = settings

    def open(self, ports: Ports) -> None:
        """Make the lane."""
        lobby: Lobby = ports.shared_object("games", Lobby)
        lobby.bring(self._settings.worker, Lane(self._settings, ports))

    def ready(self) -> bool:
        """False: the lane's session does the work."""
        return False

    def step(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is open."""


class GamesNode:
    """Listens for games, and runs their sessions on an event loop of asyncio.

    Attributes:
        ports: ``http`` and ``tcp`` -> the port that it listens at.
    """

    def __init__(self, settings: GamesSettings) -> None:
        self.ports: dict[str, int] = {}
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[asyncio.Server] = []
        self._failure: BaseException | None = None

    def open(self, ports: Ports) -> None:
        """Listen.

        Raises:
            UsageError: a port or the file of tokens cannot be used, or the agent cannot be made.
        """
        settings = self._settings
        tokens = Tokens.read(settings.token_file, "--token_file")
        loop = self._loop = load("uvloop:new_event_loop")()
        asyncio.set_event_loop(loop)
        lobby: Lobby = ports.shared_object("games", Lobby)
        kept, agent = EpisodeFiles(settings.episodes, settings.keep_episodes), agent_name(settings.env)
        steps = self._steps = GameSteps(
            loop,
            spaces=settings.spaces,
            make=agent_maker(settings.env),
            lobby=lobby,
            keep=lambda session: KeptRows(kept, session, agent),
            idle_seconds=settings.idle_seconds,
            stopping=ports.stopping,
            # Nothing shows their number while a run trains.
            expired=lambda: None,
            failed=self._fail,
            purpose="this server trains",
        )
        limits = Limits(max_sessions=lobby.size, max_seconds=_WAIT_S, idle_seconds=max(settings.idle_seconds, 60.0))
        service = self._service = Service(loop, steps, lambda: not ports.stopping(), limits, tokens, Metrics())
        if settings.http is not None:
            route = _route(service)
            self._listen("http", lambda: HttpConnection(service, route), settings.http)
        if settings.tcp is not None:
            self._listen("tcp", lambda: GamecoreConnection(service), settings.tcp)
        self._swept, self._asked = 0.0, loop.time()

    def ready(self) -> bool:
        """True: games may ask at any time."""
        return True

    def step(self) -> None:
        """Let sessions go on for a while."""
        loop = self._loop
        if loop is None:
            raise EnvError("games are played before the node is open")
        loop.call_later(STEP_S, loop.stop)
        loop.run_forever()
        now = loop.time()
        if now - self._swept > _SWEEP_S:
            self._swept = now
            self._steps.sweep()
            self._look_for_games(now)
            for connection in list(self._service.connections):
                connection.sweep(now)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End all sessions and close the sockets."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        for listener in self._listeners:
            listener.close()
        if hasattr(self, "_service"):
            loop.run_until_complete(self._steps.close())
            for connection in list(self._service.connections):
                connection.transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()

    def _fail(self, error: BaseException, reply: StepReply | None) -> None:
        """An agent has failed, which ends the run. Its client loses the connection, as those of all others do."""
        del reply
        self._failure = error

    def _look_for_games(self, now: float) -> None:
        """End the run if it waits in vain for games, or for ticks that fit.

        Otherwise the supervisor would end it a little later, and only show the stacks of all nodes.
        """
        steps = self._steps
        if steps.refusal and now - steps.refused_since > self._settings.patience:
            silence = f"no tick of a game has fitted for {now - steps.refused_since:.0f} s"
            raise EnvError(f"{silence}; the latest was refused: {steps.refusal}")
        self._asked = max(self._asked, steps.asked())
        if now - self._asked > self._settings.patience:
            host = bracketed(self._settings.host)
            where = " or ".join(f"{scheme}://{host}:{port}" for scheme, port in self.ports.items())
            silence = f"no game has asked for {now - self._asked:.0f} s"
            raise EnvError(f"{silence}: connect one to {where}, or give a longer --stall_timeout")

    def _listen(self, scheme: str, protocol: Callable[[], Connection], port: int) -> None:
        host, loop = self._settings.host, self._loop
        if loop is None:
            raise EnvError("a closed node does not listen")
        try:
            made = loop.create_server(protocol, host, port, backlog=_BACKLOG)
            listener = loop.run_until_complete(made)
        except OSError as error:
            raise cannot_listen(host, port, f"give another {PORT_FLAGS[scheme]}", error) from None
        self._listeners.append(listener)
        self.ports[scheme] = int(listener.sockets[0].getsockname()[1])


def _route(service: Service) -> Route:
    """What a run answers over HTTP: games, and those who watch over it."""
    # A run serves no policy, so of its models there is only their health.
    games, health = GamecoreHttp(service), InferenceHttp(service, Models(()))

    def route(request: HttpRequest, reply: HttpReply) -> None:
        path = request.path
        if path == PATH:
            games.route(request, reply)
        elif path.startswith(f"{HEALTH}/"):
            health.route(request, reply)
        elif path == prometheus.PATH:
            page, content_type = service.page(request.headers)
            reply.send(HTTPStatus.OK, content_type, page)
        else:
            there = f"a run that trains has {PATH}, {prometheus.PATH} and {HEALTH} only"
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:120]}; {there}")

    return route
