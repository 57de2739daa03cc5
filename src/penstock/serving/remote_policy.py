"""The policy of a ``penstock serve``, or of several, called like one in this process. Computes no action.

It asks over Gamecore, the protocol of the clients. A policy without memory answers requests of no session, which hold
up to ``--max_batch`` rows and ``--max_body`` bytes. A policy with memory answers one session for each lane, and the
server keeps its memory. Which server is asked: ``remote_servers.py``.
"""

import contextlib
import os
import secrets
import weakref
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from penstock.clients.agents import MOST_AGENTS
from penstock.clients.session import PATIENCE_S, TIMEOUT_S
from penstock.clients.wire import EpisodeLostError, RefusedError, decoded, encoded
from penstock.errors import UsageError
from penstock.kernels.actions import environment_array
from penstock.serving.description import Description
from penstock.serving.observations import observation_of
from penstock.serving.policy import Lanes, Policy
from penstock.serving.remote_server import Access, RemoteServer
from penstock.serving.remote_servers import RemoteServers
from penstock.types import ActionSpace, Array, Arrays, Composite, LeafPath, Spaces

__all__ = ["RemotePolicy", "connect_policy"]


def connect_policy(
    url: str | list[str] | tuple[str, ...],
    *,
    policy: str = "",
    token: str = "",
    timeout: float = TIMEOUT_S,
    patience: float = PATIENCE_S,
    ca_file: str | None = None,
) -> "RemotePolicy":
    """The policy of a ``penstock serve``, to be called as what `penstock.load_policy` gives.

    Args:
        url: ``tcp://localhost:8001``; for a server with TLS, ``tcps://``. A policy without memory also answers at
            ``http://localhost:8000`` or ``https://``. Or a list of such addresses, of servers that have the same
            policy: see `RemotePolicy`.
        policy: its name, of a server that has several; left out: its first one.
        token: for a server that wants one.
        timeout: longest time for one reply, in seconds. Then another server is asked, if there are several.
        patience: how long each call tries again while all servers are away or full, in seconds.
        ca_file: with TLS: certificates in PEM; one of them must have signed the server's. ``None``: those that this
            machine trusts.

    Raises:
        ConfigError: ``url`` is no address of a server, or no list of several; a number of seconds cannot be used; a
            server's certificate is not trusted; or two servers have policies of different spaces or memory.
        penstock.clients.EpisodeLostError: no server can be reached.
        penstock.clients.RefusedError: a server refuses the token, has no such policy, answers through an agent or in
            raw numbers, or is of a version that cannot be asked.
    """
    urls = url if isinstance(url, list | tuple) else [url]
    servers = RemoteServers(urls, Access(policy, token, timeout, patience, ca_file))
    return RemotePolicy(servers, servers.connect())


class RemotePolicy(Policy):
    """A policy that servers run. Observations are checked here, by the rules of the servers.

    - A question without memory goes to the server that is expected to answer soonest
      (`penstock.serving.answer_times`). If that one fails, others are asked, and it rests for a while. The question is
      asked again until ``patience`` is over.
    - An acting session with memory stays with one server until all its lanes begin an episode at once
      (``first=True``). Then it may move to another one.
    - A lost connection loses the memory of all lanes of an acting session. Then its ``act`` raises
      `penstock.clients.EpisodeLostError` until all lanes begin an episode (``first=True``).
    - ``carry`` of an acting session can neither be read nor set: the server keeps it.
    - A process that is forked from this one connects for itself, and so does the one that unpickles it, at its first
      call. An acting session with memory stays in the process that has begun it.
    - Its pickle holds the arguments of `connect_policy`, the token among them, and what the servers have said of the
      policy.

    ``close``, or the end of a ``with`` block, ends its sessions on the servers. A call after that connects anew.
    """

    def __init__(self, servers: RemoteServers, told: Description) -> None:
        """The policy that these servers have described so."""
        # Several servers may have different versions while a newer one is introduced.
        version = f", version {told.version}" if len(servers.each) == 1 else ""
        super().__init__(told.spaces, told.carry, f"{told.name}{version}, served at {servers.urls}")
        self._servers = servers
        self._told = told
        self._sessions: weakref.WeakSet[_ServerSessions] = weakref.WeakSet()

    def __reduce__(self) -> tuple[type["RemotePolicy"], tuple[RemoteServers, Description]]:
        """Neither connections nor acting sessions travel."""
        return RemotePolicy, (self._servers, self._told)

    def begin(self, lanes: int) -> Lanes:
        """Begin to act in these lanes, without checks."""
        if not self.carry:
            return _Questions(self._servers, self._told, lanes)
        sessions = _ServerSessions(self._servers, self._told, lanes)
        self._sessions.add(sessions)
        return sessions

    def close(self) -> None:
        """End its sessions on the servers, and close the connections. May be called twice."""
        for sessions in self._sessions:
            sessions.close()
        self._servers.close()

    def __enter__(self) -> "RemotePolicy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Questions:
    """Lanes of a policy without memory: each question stands alone."""

    def __init__(self, servers: RemoteServers, told: Description, lanes: int) -> None:
        self.carry: Arrays = {}
        self.environment_action = environment_array(told.spaces.action, lanes)
        self._servers = servers
        self._told = told
        self._rows = min(lanes, told.max_rows)
        """Of one request."""

    def act(self, given: Mapping[str, Array]) -> None:
        first = 0
        while first < len(self.environment_action):
            rows = slice(first, first + self._rows)
            obs, mask = _sent(self._told.spaces, given, rows)
            body = encoded(obs, None, None, mask)
            if len(body) > self._told.max_body and self._rows > 1:
                # Observations of many numbers: a server takes fewer of them at a time.
                self._rows = -(-self._rows // 2)
                continue
            _check_size(body, self._told, self._servers.urls)
            self._servers.answered(partial(self._ask, body, rows))
            first += self._rows

    def _ask(self, body: bytes, rows: slice, server: RemoteServer) -> None:
        _take(self._told.spaces.action, decoded(server.ask(body, self._told)), self.environment_action[rows])


class _ServerSessions:
    """Lanes of a policy with memory, each a session of one server."""

    def __init__(self, servers: RemoteServers, told: Description, lanes: int) -> None:
        self.environment_action = environment_array(told.spaces.action, lanes)
        self._servers = servers
        self._told = told
        self._process = os.getpid()
        game = f"policy-{secrets.token_hex(8)}"
        self._parts = [range(lanes)[first : first + MOST_AGENTS] for first in range(0, lanes, MOST_AGENTS)]
        # They connect when they begin.
        self._clients = {
            server: [server.agents(game, [str(lane) for lane in part]) for part in self._parts]
            for server in servers.each
        }
        for client in (client for clients in self._clients.values() for client in clients):
            weakref.finalize(self, client.close)
        self._server = servers.each[0]
        """Keeps the memory of all lanes that have begun."""
        self._began = np.zeros(lanes, np.bool_)
        """Lanes whose session has begun."""
        self._is_lost = False
        """A call failed, and nobody knows what the lanes remember."""

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"an acting session at {self._servers.urls} stays in the process that has begun it: pickle the policy, and "
            "begin one there: policy.session(n)"
        )

    @property
    def carry(self) -> Arrays:
        raise UsageError(f"the server at {self._servers.urls} keeps what this policy remembers: carry is not here")

    def act(self, given: Mapping[str, Array]) -> None:
        if self._process != os.getpid():
            raise UsageError(
                f"another process has begun this acting session at {self._server.url}, and goes on with it; begin one "
                "here: policy.session(n)"
            )
        begins = given["first"] | ~self._began
        if begins.all():
            # Nothing is remembered yet, so that any server may begin, and a second one if the first fails.
            self._servers.answered(partial(self._begin, given))
            return
        if self._is_lost:
            raise EpisodeLostError(
                f"what the policy at {self._server.url} remembers of this acting session was lost with the call that "
                "failed; begin all episodes anew: act(obs, first=True)"
            )
        # A call that fails in the middle has changed some lanes, and not the others.
        self._is_lost = True
        try:
            if begins.any():
                self._servers.answered(partial(self._start, begins), at=self._server)
            self._server.tried(partial(self._tick, given))
        except EpisodeLostError as error:
            text = "; what it remembers of this acting session is lost: begin all episodes anew, act(obs, first=True)"
            raise EpisodeLostError(f"{error}{text}") from None
        self._began[...] = True
        self._is_lost = False

    def close(self) -> None:
        """End the sessions, as far as their server can be reached, and close the connections."""
        if self._began.any() and self._process == os.getpid():
            self._stop()
        for client in (client for clients in self._clients.values() for client in clients):
            client.close()
        self._is_lost = self._is_lost or bool(self._began.any())

    def _begin(self, given: Mapping[str, Array], server: RemoteServer) -> None:
        """Begin an episode in all lanes, at this server."""
        if server is not self._server or self._is_lost or not self._began.any():
            server.check(self._told)
        if server is not self._server and self._began.any() and not self._is_lost:
            self._stop()
        self._server, self._is_lost = server, True
        try:
            self._start(np.ones_like(self._began), server)
            self._tick(given, server)
        except RefusedError:
            # The server is full, say. Lanes that have begun must not fill it further.
            self._stop()
            raise
        self._began[...] = True
        self._is_lost = False

    def _start(self, begins: Array, server: RemoteServer) -> None:
        """Begin an episode in these lanes, bool ``[n]``."""
        for client, part in zip(self._clients[server], self._parts, strict=True):
            if beginning := [str(lane) for lane in part if begins[lane]]:
                client.start(beginning)

    def _tick(self, given: Mapping[str, Array], server: RemoteServer) -> None:
        """Ask for the actions of all lanes."""
        spaces = self._told.spaces
        for client, part in zip(self._clients[server], self._parts, strict=True):
            obs, masks = {}, {}
            for lane in part:
                obs[str(lane)], masks[str(lane)] = _sent(spaces, given, lane)
            with server.timed():
                actions = client.tick(obs, action_mask=masks)
            for lane in part:
                _take(spaces.action, actions[str(lane)], self.environment_action[lane : lane + 1])

    def _stop(self) -> None:
        """End the sessions of all lanes, as far as their server can be reached."""
        for client, part in zip(self._clients[self._server], self._parts, strict=True):
            with contextlib.suppress(RefusedError, EpisodeLostError):
                client.send([("stop", str(lane), b"") for lane in part])


def _sent(spaces: Spaces, given: Mapping[str, Array], rows: slice | int) -> tuple[Any, Any]:
    """Observation and action mask of these rows, or of one, as clients send them; ``None``: there is no mask."""
    fields = {name: given[name][rows] for name, _ in spaces.seen}
    return observation_of(fields), None if spaces.mask is None else given[spaces.mask][rows]


def _check_size(body: bytes, told: Description, urls: str) -> None:
    """Check that servers take a request. They close the connection of a larger one before they have read all of it."""
    if len(body) > told.max_body:
        raise UsageError(
            f"an observation has {len(body):,} bytes as JSON, and the server at {urls} takes {told.max_body:,}; start "
            f"it with --max_body {len(body)} or more"
        )


def _take(space: ActionSpace, action: Any, out: Array) -> None:  # noqa: ANN401 - as the space has it
    """Write the actions of a reply, in the form of their space, into rows ``[n, ...]`` of an `environment_array`.

    Raises:
        EpisodeLostError: they do not fit the space.
    """
    try:
        if isinstance(space, Composite):
            for (path, _), (_, columns) in zip(space.leaves, space.columns(), strict=True):
                out[:, columns] = np.reshape(_leaf(action, path), (len(out), -1))
        else:
            out[...] = np.reshape(action, out.shape)
    except (ValueError, TypeError, KeyError, IndexError):
        raise EpisodeLostError("the reply holds other actions than those of the policy's space") from None


def _leaf(action: Any, path: LeafPath) -> Any:  # noqa: ANN401
    for key in path:
        action = action[key]
    return action
