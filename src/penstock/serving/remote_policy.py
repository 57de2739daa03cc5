"""The policy of a ``penstock serve``, called like one in this process. Computes no action.

It asks over Gamecore, the protocol of the clients. A policy without memory answers requests of no session, which hold
up to ``--max_batch`` rows and ``--max_body`` bytes. A policy with memory answers one session for each lane, and the
server keeps its memory.
"""

import contextlib
import json
import os
import secrets
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from penstock.clients.agents import MOST_AGENTS, AgentsClient
from penstock.clients.blocking import GameClient
from penstock.clients.session import PATIENCE_S, TIMEOUT_S, pause_after
from penstock.clients.wire import EpisodeLostError, RefusedError, decoded, encoded
from penstock.errors import PenstockError, UsageError
from penstock.kernels.actions import environment_array
from penstock.serving.description import QUESTION, Description
from penstock.serving.observations import observation_of
from penstock.serving.policy import Lanes, Policy
from penstock.types import ActionSpace, Array, Arrays, Composite, LeafPath, Spaces

__all__ = ["RemotePolicy", "connect_policy"]

_VERSION = 2
"""Of Gamecore over TCP. Version 1 does not say why it refuses."""


def connect_policy(
    url: str,
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
            ``http://localhost:8000`` or ``https://``.
        policy: its name, of a server that has several; left out: its first one.
        token: for a server that wants one.
        timeout: longest time for one reply, in seconds.
        patience: how long each call tries again while the server is away or full, in seconds.
        ca_file: with TLS: certificates in PEM; one of them must have signed the server's. ``None``: those that this
            machine trusts.

    Raises:
        ConfigError: ``url`` is no address of a server, a number of seconds cannot be used, or the server's certificate
            is not trusted.
        penstock.clients.EpisodeLostError: the server cannot be reached.
        penstock.clients.RefusedError: it refuses the token, has no such policy, answers through an agent or in raw
            numbers, or is of a version that cannot be asked.
    """
    server = _Server(_Reach(url, policy, token, timeout, patience, ca_file))
    return RemotePolicy(server, server.describe())


class RemotePolicy(Policy):
    """A policy that a server runs. Observations are checked here, by the rules of the server.

    - A question without memory is asked again until ``patience`` is over, on a new connection where need be.
    - A lost connection loses the memory of all lanes of an acting session. Then its ``act`` raises
      `penstock.clients.EpisodeLostError` until all lanes begin an episode (``first=True``).
    - ``carry`` of an acting session can neither be read nor set: the server keeps it.
    - A process that is forked from this one connects for itself, and so does the one that unpickles it, at its first
      call. An acting session with memory stays in the process that has begun it.
    - Its pickle holds the arguments of `connect_policy`, the token among them, and what the server has said of the
      policy.

    ``close``, or the end of a ``with`` block, ends its sessions on the server. A call after that connects anew.
    """

    def __init__(self, server: "_Server", told: Description) -> None:
        """The policy that this server has described so."""
        super().__init__(told.spaces, told.carry, f"{told.name}, version {told.version}, served at {server.url}")
        self._server = server
        self._told = told
        self._sessions: weakref.WeakSet[_ServerSessions] = weakref.WeakSet()

    def __reduce__(self) -> tuple[type["RemotePolicy"], tuple["_Server", Description]]:
        """Neither connections nor acting sessions travel."""
        return RemotePolicy, (self._server, self._told)

    def begin(self, lanes: int) -> Lanes:
        """Begin to act in these lanes, without checks."""
        if not self.carry:
            return _Questions(self._server, self._told, lanes)
        sessions = _ServerSessions(self._server, self._told, lanes)
        self._sessions.add(sessions)
        return sessions

    def close(self) -> None:
        """End its sessions on the server, and close the connections. May be called twice."""
        for sessions in self._sessions:
            sessions.close()
        self._server.close()

    def __enter__(self) -> "RemotePolicy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Reach(NamedTuple):
    """How a server is reached: the arguments of `connect_policy`."""

    url: str
    policy: str
    token: str
    timeout: float
    patience: float
    ca_file: str | None


class _Server:
    """A server, and a connection for requests of no session."""

    def __init__(self, reach: _Reach) -> None:
        self.url = reach.url
        self._reach = reach
        self._client = GameClient(
            reach.url,
            "",
            policy=reach.policy,
            token=reach.token,
            timeout=reach.timeout,
            patience=reach.patience,
            version=_VERSION,
            ca_file=reach.ca_file,
        )
        weakref.finalize(self, self._client.close)
        self._process = os.getpid()
        """The one that uses the connection."""

    def __reduce__(self) -> tuple[type["_Server"], tuple[_Reach]]:
        """The connection does not travel."""
        return _Server, (self._reach,)

    def describe(self) -> Description:
        """What its policy is like."""
        with self.named():
            told = self.ask(QUESTION)
        try:
            return Description.from_json(json.loads(told))
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(f"the server at {self.url} does not describe its policy: {error!r}") from None

    def ask(self, body: bytes) -> bytes:
        """The reply to a request of no session. It changes nothing on the server, so it may be asked again."""
        if self._process != os.getpid():
            # Forked. The parent goes on with this connection, and both would take each other's replies.
            self._client.close()
            self._process = os.getpid()
        until, tries = time.monotonic() + self._reach.patience, 0
        while True:
            try:
                return self._client.send("", body)
            except (RefusedError, EpisodeLostError) as error:
                time.sleep(pause_after(error, tries, is_late=time.monotonic() > until))
                tries += 1

    def agents(self, game: str, names: Sequence[str]) -> AgentsClient:
        """A connection for the sessions of these agents."""
        return AgentsClient(
            self.url,
            game,
            names,
            policy=self._reach.policy,
            token=self._reach.token,
            timeout=self._reach.timeout,
            patience=self._reach.patience,
            ca_file=self._reach.ca_file,
        )

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Let errors of its connections name the server."""
        try:
            yield
        except RefusedError as error:
            raise RefusedError(error.status, f"the server at {self.url} refuses: {error}") from None
        except EpisodeLostError as error:
            raise EpisodeLostError(f"the server at {self.url} does not answer: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class _Questions:
    """Lanes of a policy without memory: each question stands alone."""

    def __init__(self, server: _Server, told: Description, lanes: int) -> None:
        self.carry: Arrays = {}
        self.environment_action = environment_array(told.spaces.action, lanes)
        self._server = server
        self._told = told
        self._rows = min(lanes, told.max_rows)
        """Of one request."""

    def act(self, given: Mapping[str, Array]) -> None:
        spaces, first = self._told.spaces, 0
        with self._server.named():
            while first < len(self.environment_action):
                rows = slice(first, first + self._rows)
                obs, mask = _sent(spaces, given, rows)
                body = encoded(obs, None, None, mask)
                if len(body) > self._told.max_body and self._rows > 1:
                    # Observations of many numbers: the server takes fewer of them at a time.
                    self._rows = -(-self._rows // 2)
                    continue
                _check_size(body, self._told, self._server.url)
                _take(spaces.action, decoded(self._server.ask(body)), self.environment_action[rows])
                first += self._rows


class _ServerSessions:
    """Lanes of a policy with memory, each a session of the server."""

    def __init__(self, server: _Server, told: Description, lanes: int) -> None:
        self.environment_action = environment_array(told.spaces.action, lanes)
        self._server = server
        self._spaces = told.spaces
        self._process = os.getpid()
        game = f"policy-{secrets.token_hex(8)}"
        self._parts = [range(lanes)[first : first + MOST_AGENTS] for first in range(0, lanes, MOST_AGENTS)]
        self._clients = [server.agents(game, [str(lane) for lane in part]) for part in self._parts]
        for client in self._clients:
            weakref.finalize(self, client.close)
        self._began = np.zeros(lanes, np.bool_)
        """Lanes whose session has begun."""
        self._is_lost = False
        """A call failed, and nobody knows what the lanes remember."""

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"an acting session at {self._server.url} stays in the process that has begun it: pickle the policy, and "
            "begin one there: policy.session(n)"
        )

    @property
    def carry(self) -> Arrays:
        raise UsageError(f"the server at {self._server.url} keeps what this policy remembers: carry is not here")

    def act(self, given: Mapping[str, Array]) -> None:
        if self._process != os.getpid():
            raise UsageError(
                f"another process has begun this acting session at {self._server.url}, and goes on with it; begin one "
                "here: policy.session(n)"
            )
        begins = given["first"] | ~self._began
        if self._is_lost and not begins.all():
            raise EpisodeLostError(
                f"what the policy at {self._server.url} remembers of this acting session was lost with the call that "
                "failed; begin all episodes anew: act(obs, first=True)"
            )
        # A call that fails in the middle has changed some lanes, and not the others.
        self._is_lost = True
        with self._server.named():
            for client, part in zip(self._clients, self._parts, strict=True):
                if beginning := [str(lane) for lane in part if begins[lane]]:
                    client.start(beginning)
                obs, masks = {}, {}
                for lane in part:
                    obs[str(lane)], masks[str(lane)] = _sent(self._spaces, given, lane)
                actions = client.tick(obs, action_mask=masks)
                for lane in part:
                    _take(self._spaces.action, actions[str(lane)], self.environment_action[lane : lane + 1])
        self._began[...] = True
        self._is_lost = False

    def close(self) -> None:
        """End the sessions, as far as the server can be reached, and close the connections."""
        for client, part in zip(self._clients, self._parts, strict=True):
            if self._began[part.start] and self._process == os.getpid():
                with contextlib.suppress(RefusedError, EpisodeLostError):
                    client.send([("stop", str(lane), b"") for lane in part])
            client.close()
        self._is_lost = self._is_lost or bool(self._began.any())


def _sent(spaces: Spaces, given: Mapping[str, Array], rows: slice | int) -> tuple[Any, Any]:
    """Observation and action mask of these rows, or of one, as clients send them; ``None``: there is no mask."""
    fields = {name: given[name][rows] for name, _ in spaces.seen}
    return observation_of(fields), None if spaces.mask is None else given[spaces.mask][rows]


def _check_size(body: bytes, told: Description, url: str) -> None:
    """Check that the server takes a request. It closes the connection of a larger one before it has read all of it."""
    if len(body) > told.max_body:
        raise UsageError(
            f"an observation has {len(body):,} bytes as JSON, and the server at {url} takes {told.max_body:,}; start "
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
