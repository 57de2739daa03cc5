"""Agent: what a user writes for a game that trains: spaces, and what to do at a tick and at the end of an episode.

Knows no sockets, no rollouts and no learner.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import BadDataError

__all__ = ["Acts", "Agent", "Game", "State", "Told", "hooks_of"]

_HOOKS = ("decode", "encode", "on_tick", "on_episode")
"""Methods of `Agent` that a class may override."""


class Told(NamedTuple):
    """What the body of a request says."""

    obs: Any = None
    """As the observation space has it; ``None``: the body holds none."""
    reward: float | None = None
    """Of the action before; ``None``: the body holds none."""
    terminated: bool = False
    """The episode has ended by itself. Only ``stop`` says so."""
    action_mask: Any = None
    """1 where a choice is possible."""
    info: Any = None
    """A mapping with numbers of the episode, for episode metrics. Only ``stop`` has it."""


class Acts(Protocol):
    """Lets the policy act on a state."""

    async def act(self, state: "State") -> Any:  # noqa: ANN401 - as the action space has it
        """Store the state in the session's rollout, let the policy act and return the action."""
        ...


class State:
    """One tick of an episode, or its end.

    Attributes:
        body: the request's body, as it came.
        obs: as the observation space has it. `Agent.on_tick` may replace it.
        reward: of the action before this tick; 0 at the first one. `Agent.on_tick` may replace it.
        action_mask: 1 where a choice is possible, if the agent has masks.
        action: the policy's action, once it has acted.
        reply: the reply's body; ``None``: the agent encodes the action.
        terminated: the episode has ended by itself. Only at its end.
        truncated: the episode was cut off. Only at its end.
        info: numbers of the episode, for episode metrics. Only at its end, where `Agent.on_episode` may replace it.
        vanished: the client did not say that its episode ends: its last action has no outcome.
        has_acted: the policy has acted on this state.
    """

    __slots__ = (
        "_acts",
        "action",
        "action_mask",
        "body",
        "has_acted",
        "info",
        "obs",
        "reply",
        "reward",
        "terminated",
        "truncated",
        "vanished",
    )

    def __init__(self, body: bytes, told: Told, acts: Acts | None = None) -> None:
        self.body = body
        self.obs = told.obs
        self.reward = 0.0 if told.reward is None else told.reward
        self.action_mask = told.action_mask
        self.info = told.info
        self.action: Any = None
        self.reply: bytes | None = None
        self.terminated = told.terminated
        self.truncated = False
        self.vanished = False
        self.has_acted = False
        self._acts = acts

    async def act(self) -> Any:  # noqa: ANN401 - as the action space has it
        """Let the policy act on ``obs``. For `Agent.on_tick` as a coroutine; otherwise it is done after `on_tick`.

        Raises:
            BadDataError: the policy has acted on this state already, or it is the end of an episode.
        """
        if self._acts is None or self.has_acted:
            raise BadDataError("a policy acts once on each tick of an episode")
        self.has_acted = True
        self.action = await self._acts.act(self)
        return self.action


class Game:
    """The agents that play one game together.

    Attributes:
        name: the game's own name.
        agents: those that have an episode now, by their names.
        board: for anything that they share.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.agents: dict[str, Agent] = {}
        self.board: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self._round: asyncio.Future[dict[str, Any]] | None = None

    async def exchange(self, agent: "Agent", value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever agents share
        """Give a value, wait until every agent of the game has given one, and get them all.

        Args:
            agent: the one that gives the value, ``self`` in its methods.
            value: anything.

        Returns:
            Agent's name -> its value.
        """
        if self._round is None:
            self._round = asyncio.get_running_loop().create_future()
        waiting, self._given[agent.name] = self._round, value
        self._look()
        # An agent that gives up waiting must not take the round from the others.
        return await asyncio.shield(waiting)

    def join(self, agent: "Agent") -> None:
        """An agent begins an episode."""
        self.agents[agent.name] = agent

    def leave(self, agent: "Agent") -> None:
        """An agent has ended its episode: the others no longer wait for it."""
        self.agents.pop(agent.name, None)
        self._look()

    def _look(self) -> None:
        if self._round is not None and self.agents.keys() <= self._given.keys():
            done, given, self._round, self._given = self._round, self._given, None, {}
            if not done.done():
                done.set_result(given)


class Agent:
    """One agent of a game. Derive from it, and give it two spaces. One object plays one episode after the other.

    Bodies are JSON by default: ``{"obs": VALUE, "reward": NUMBER}`` at a tick, with ``"terminated": BOOL`` and
    ``"info": {NAME: NUMBER}`` at the end, and ``{"action": VALUE}`` as the reply. Override `decode` and `encode` for
    other bodies.

    Attributes:
        observation_space: a space of Gymnasium.
        action_space: a space of Gymnasium.
        action_mask: ticks say which choices are possible.
        name: the agent's name in its game.
        game: the game, with its other agents.

    Example:
        class GameAgent(penstock.Agent):
            observation_space = Box(-np.inf, np.inf, (4,), np.float32)
            action_space = Discrete(2)

            def on_tick(self, state):
                state.reward = min(state.reward, 1.0)
    """

    observation_space: Any
    action_space: Any
    action_mask = False
    name = ""
    game: Game

    def decode(self, body: bytes) -> Told:
        """What a request's body says.

        Args:
            body: of the request, as it came.

        Raises:
            BadDataError: it cannot be read; the client is told so.
        """
        if not body:
            return Told()
        # Imported on use: without the extra, a user's module must still load, so that planning can name the extra.
        import orjson  # noqa: PLC0415 - as above

        try:
            given = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadDataError(f"the body is no JSON: {error}") from None
        if not isinstance(given, dict):
            raise BadDataError("the body is no JSON object")
        reward, terminated = given.get("reward"), given.get("terminated", False)
        if isinstance(reward, bool) or not isinstance(reward, int | float | None):
            raise BadDataError(f"reward is {one_line(reward, 40)!r}, which is no number")
        if not isinstance(terminated, bool):
            raise BadDataError(f"terminated is {one_line(terminated, 40)!r}, which is neither true nor false")
        info = given.get("info")
        if not isinstance(info, dict | None):
            raise BadDataError(f"info is {one_line(info, 40)!r}, which is no JSON object")
        return Told(given.get("obs"), reward, terminated, given.get("action_mask"), info)

    def encode(self, action: Any) -> bytes:  # noqa: ANN401 - as the action space has it
        """The reply's body for an action, as bytes.

        Args:
            action: as the action space has it.
        """
        import orjson  # noqa: PLC0415 - as in `decode`

        return orjson.dumps({"action": _plain(action)})

    def on_tick(self, state: State) -> Awaitable[None] | None:
        """Called at each tick, before the policy acts. It may be a coroutine, and then may ``await state.act()``.

        It may replace ``state.obs`` and ``state.reward``, and after `State.act` also set ``state.reply``.

        Args:
            state: the tick. Its ``action`` is set once the policy has acted.
        """

    def on_episode(self, episode: list[State], final: State) -> Awaitable[None] | None:
        """Called at the end of an episode. It may be a coroutine.

        It may replace ``final.reward``, ``final.obs`` and ``final.info``. These are checked after this call; of
        ``final.info`` only the names of ``--episode_metrics``. If one of them does not fit, ``stop`` is refused and the
        episode is still open. So this is called again, with the same ticks, when the episode is stopped again.

        Args:
            episode: its ticks, with the policy's actions.
            final: what ``stop`` said. If the client vanished, ``final.vanished`` is true.
        """


def hooks_of(agent: type[Any]) -> tuple[str, ...]:
    """The methods that an agent's class overrides. If there are none, nothing of the user runs at its ticks."""
    return tuple(name for name in _HOOKS if getattr(agent, name, None) is not getattr(Agent, name))


def _plain(action: Any) -> Any:  # noqa: ANN401 - as the action space has it
    """An action as Python values. Numbers are written so that reading them gives the same bits."""
    # The usual cases first: whether something is a Mapping takes longer to find out.
    if isinstance(action, int):
        return action
    if isinstance(action, np.ndarray):
        return action.tolist()
    if isinstance(action, Mapping):
        return {str(key): _plain(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return [_plain(part) for part in action]
    return action.item() if isinstance(action, np.generic) else action
