"""AgentsClient: several agents of one game that act together. Their requests leave as one, and so do the replies.

For a server this is much less work than a connection for each agent: it wakes once for all of them.
"""

import contextlib
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

from penstock.clients.dialling import received, welcomed
from penstock.clients.frames import Replies, frame
from penstock.clients.session import PATIENCE_S, TIMEOUT_S, Reach, pause_after
from penstock.clients.wire import NO_SECOND_VERSION, EpisodeLostError, RefusedError, closed, decoded, encoded
from penstock.errors import ConfigError

__all__ = ["MOST_AGENTS", "AgentsClient"]

MOST_AGENTS = 64
"""Requests of one connection that a server takes at a time."""


class AgentsClient:
    """The agents of a game, over one connection of Gamecore's version 2 and in one thread.

    Errors are those of `penstock.clients.GameClient`. A lost connection loses the episodes of all agents.
    """

    def __init__(
        self,
        url: str,
        game: str,
        agents: Iterable[str],
        *,
        policy: str = "",
        token: str = "",
        timeout: float = TIMEOUT_S,
        patience: float = PATIENCE_S,
        ca_file: str | None = None,
    ) -> None:
        """No connection is made yet.

        Args:
            url: ``tcp://localhost:8001``; for a server with TLS, ``tcps://``.
            game: name of the game. Two clients need two names.
            agents: their names, 64 at most. The session of one is ``<game>-agent-<agent>``.
            policy: name of the policy, of a server that has several; left out: its first one.
            token: for a server that wants one.
            timeout: longest time for the replies to one call, in seconds.
            patience: how long `start` tries, in seconds.
            ca_file: with TLS: certificates in PEM; one of them must have signed the server's. ``None``: those that
                this machine trusts.
        """
        self._reach = Reach.read(url, ca_file, policy=policy, token=token, timeout=timeout, patience=patience)
        if self._reach.address.scheme != "tcp":
            raise ConfigError(f"agents that act together need a tcp:// address, not {url!r}")
        self._sessions = {agent: f"{game}-agent-{agent}" for agent in agents}
        if not 1 <= len(self._sessions) <= MOST_AGENTS:
            wanted = f"wanted 1 to {MOST_AGENTS}: divide them among clients"
            raise ConfigError(f"{len(self._sessions)} agents share a connection; {wanted}")
        self._open: set[str] = set()
        """Agents whose episode has begun, as far as the client knows."""
        self._connection: socket.socket | None = None
        self._number = 0

    def start(self, agents: Iterable[str] | None = None) -> None:
        """Begin an episode of these agents, or of all. One that is still open on the server ends as truncated.

        Raises:
            RefusedError: the server refuses one of them, and goes on refusing.
            EpisodeLostError: the server cannot be reached.
        """
        left = list(self._sessions if agents is None else agents)
        until, tries = time.monotonic() + self._reach.patience, 0
        while left:
            errors: list[RefusedError | EpisodeLostError] = []
            try:
                stops = [agent for agent in left if agent in self._open]
                self._open.difference_update(stops)
                # A stop is refused if the server has ended that episode by itself.
                self.send([("stop", agent, b"") for agent in stops])
                replies = dict(zip(left, self.send([("start", agent, b"") for agent in left]), strict=True))
            except (RefusedError, EpisodeLostError) as error:
                errors.append(error)
            else:
                refused = {agent: reply for agent, reply in replies.items() if isinstance(reply, RefusedError)}
                # ``has_begun``: the server still has an episode that a lost connection left. The next try stops it.
                self._open.update(agent for agent in left if agent not in refused or refused[agent].has_begun)
                left = list(refused)
                errors += refused.values()
            if errors:
                is_late = time.monotonic() > until
                time.sleep(max(pause_after(error, tries, is_late=is_late) for error in errors))
                tries += 1

    def tick(
        self,
        obs: Mapping[str, Any],
        reward: Mapping[str, float] | None = None,
        *,
        action_mask: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The next action of each agent that has an observation.

        Args:
            obs: agent -> its observation.
            reward: agent -> the reward of its action before.
            action_mask: agent -> 1 where a choice is possible.

        Raises:
            RefusedError: the server refuses one of these ticks. The others were taken, and their actions are lost.
            EpisodeLostError: the connection broke.
        """
        rewards, masks = reward or {}, action_mask or {}
        bodies = {agent: encoded(one, rewards.get(agent), None, masks.get(agent)) for agent, one in obs.items()}
        replies = self._all("tick", bodies)
        return {agent: decoded(reply) for agent, reply in zip(bodies, replies, strict=True)}

    def stop(
        self,
        obs: Mapping[str, Any],
        reward: Mapping[str, float] | None = None,
        *,
        terminated: Collection[str] = (),
        info: Mapping[str, Mapping[str, float]] | None = None,
        action_mask: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode of each agent that has an observation.

        Args:
            obs: agent -> its last observation.
            reward: agent -> the reward of its last action.
            terminated: agents whose episode has ended by itself. Those of others were cut off.
            info: agent -> numbers of its episode by their names, as for `penstock.clients.GameClient.stop`.
            action_mask: agent -> 1 where a choice would be possible in its last observation. It may be left out.

        Raises:
            RefusedError: the server refuses one of them. The others have ended.
            EpisodeLostError: the connection broke.
        """
        rewards, infos, masks = reward or {}, info or {}, action_mask or {}
        self._all(
            "stop",
            {
                agent: encoded(one, rewards.get(agent), agent in terminated, masks.get(agent), infos.get(agent))
                for agent, one in obs.items()
            },
        )
        self._open.difference_update(obs)

    def send(self, requests: Collection[tuple[str, str, bytes]]) -> list[bytes | RefusedError]:
        """Send requests of any encoding together.

        Args:
            requests: kind (``start``, ``tick`` or ``stop``), agent and body of each; 64 at most.

        Returns:
            For each, the reply's body, or why the server refuses it.

        Raises:
            EpisodeLostError: the server cannot be reached, or the connection broke.
            RefusedError: the server refuses the token.
        """
        if not requests:
            return []
        if len(requests) > MOST_AGENTS:
            raise ConfigError(f"{len(requests)} requests are sent together; the most is {MOST_AGENTS}")
        replies = Replies(self._number + 1, len(requests))
        frames = []
        for kind, agent, body in requests:
            self._number += 1
            frames.append(frame(self._number, kind, self._session(agent), body))
        try:
            return self._exchange(b"".join(frames), replies)
        except OSError as error:
            self.close()
            raise EpisodeLostError(f"no reply: {str(error) or type(error).__name__}") from None
        except BaseException:
            # Also an interrupt: replies that nobody waits for must not be taken for the next ones.
            self.close()
            raise

    def _exchange(self, sent: bytes, replies: Replies) -> list[bytes | RefusedError]:
        connection = self._connected()
        connection.sendall(sent)
        for data in received(connection, self._reach.timeout):
            found = replies.feed(data)
            if found is not None:
                return found
        raise closed("")

    def close(self) -> None:
        """Close the connection. Open episodes end as truncated, unless their sessions connect again soon."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def __enter__(self) -> "AgentsClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _all(self, kind: str, bodies: Mapping[str, bytes]) -> list[bytes]:
        """The replies to one request of each agent."""
        replies = self.send([(kind, agent, body) for agent, body in bodies.items()])
        found = []
        for agent, reply in zip(bodies, replies, strict=True):
            if isinstance(reply, RefusedError):
                raise RefusedError(reply.status, f"agent {agent!r}: {reply}")
            found.append(reply)
        return found

    def _session(self, agent: str) -> str:
        session = self._sessions.get(agent)
        if session is None:
            raise ConfigError(
                f"the client has no agent {agent!r}; its agents are {', '.join(map(str, self._sessions))}"
            )
        return session

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = welcomed(self._reach)
            if self._connection is None:
                raise EpisodeLostError(NO_SECOND_VERSION)
        return self._connection
