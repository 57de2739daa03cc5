"""The agents of one game of ML-Agents as lanes that act together. Does not read observations.

An agent asks for an action, acts, and asks again. When its episode ends it says so, and asks next under a new id.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.envs.fields import one_line
from penstock.envs.mlagents.game import Action, Game
from penstock.errors import EnvError, SpaceError

__all__ = ["GameLanes", "Kind", "Turn"]

_MOST = 1 << 24
"""Most numbers of an action or of a part of an observation, and most choices of one element of an action. A game that
says nonsense must not fill the memory."""


class Kind(NamedTuple):
    """What an agent sees and does. All agents of a run are of one kind."""

    continuous: int
    """Numbers of an action."""
    branches: tuple[int, ...]
    """Choices of each further element of an action."""
    seen: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each part of an observation."""

    @property
    def idle(self) -> Action:
        """The action of an agent that has no lane."""
        return Action([0.0] * self.continuous, [0] * len(self.branches))


class Turn(NamedTuple):
    """What became of a lane until it asks again."""

    asks: Any
    """The ``AgentInfoProto`` that asks for an action."""
    reward: float
    """Of the action before."""
    end: Any
    """The last ``AgentInfoProto`` of the episode that has ended in between; ``None``: none has."""


class _Agent(NamedTuple):
    behavior: str
    id: int


class GameLanes:
    """The lanes of one game: as many as there are agents that ask when it begins.

    Args:
        game: this object owns it, and closes it.

    Attributes:
        kind: of its agents.

    Raises:
        EnvError: the game is gone.
        SpaceError: it has agents of several kinds.
    """

    kind: Kind

    def __init__(self, game: Game) -> None:
        self._game = game
        self._kinds: dict[str, Kind] = {}
        self._asking: list[_Agent] = []
        """In the order in which the game expects their actions."""
        self._lanes: list[_Agent] = []
        """The agent of each lane, or its last one until the next one asks."""
        self._begun: list[Any] | None = self._begin()

    def __len__(self) -> int:
        return len(self._lanes)

    def reset(self) -> list[Any]:
        """Begin all episodes. Returns the ``AgentInfoProto`` with which each lane asks.

        Raises:
            EnvError: the game is gone, or has another number of agents now.
        """
        # The game was reset once to find out what its agents are.
        begun, self._begun = self._begun, None
        if begun is None:
            count, begun = len(self._lanes), self._begin()
            if len(begun) != count:
                raise EnvError(f"the game had {count} agents when it began, and has {len(begun)} after a reset")
        return begun

    def step(self, actions: Sequence[Action]) -> list[Turn]:
        """Let all lanes act.

        Args:
            actions: one for each lane.

        Raises:
            EnvError: the game is gone, or not all of its agents ask again.
            SpaceError: it has got agents of another kind.
        """
        ends: dict[int, Any] = {}
        infos = self._after(dict(zip(self._lanes, actions, strict=True)))
        while True:
            for agent, info in infos:
                # An agent without a lane has ended before it has asked for anything.
                if info.done and agent in self._lanes:
                    ends[self._lanes.index(agent)] = info
            asks = {agent: info for agent, info in infos if not info.done}
            if asks:
                break
            infos = self._after({})
        self._seat(list(asks), sorted(ends))
        turns = []
        for lane, agent in enumerate(self._lanes):
            asked, end = asks[agent], ends.get(lane)
            paid = asked if end is None else end
            turns.append(Turn(asked, paid.reward + paid.group_reward, end))
        return turns

    def close(self) -> None:
        """Let the game end."""
        self._game.close()

    def _begin(self) -> list[Any]:
        self._asking = []
        infos = self._read(self._game.reset())
        if not self._kinds:
            raise EnvError("the game does not say what its agents see and do")
        while not (asks := {agent: info for agent, info in infos if not info.done}):
            infos = self._after({})
        self._asking = list(asks)
        self._lanes = sorted(asks)
        return [asks[agent] for agent in self._lanes]

    def _after(self, actions: Mapping[_Agent, Action]) -> list[tuple[_Agent, Any]]:
        """What agents say next. Those that have asked and get no action here do nothing."""
        listed: dict[str, list[Action]] = {}
        for agent in self._asking:
            listed.setdefault(agent.behavior, []).append(actions.get(agent, self.kind.idle))
        self._asking = []
        return self._read(self._game.act(listed))

    def _seat(self, asking: list[_Agent], free: Sequence[int]) -> None:
        """Give the lanes whose agents have ended to those that ask for the first time."""
        self._asking = asking
        fresh = iter([agent for agent in asking if agent not in self._lanes])
        for lane in free:
            self._lanes[lane] = next(fresh, self._lanes[lane])
        silent = sum(agent not in asking for agent in self._lanes)
        if silent:
            raise EnvError(
                f"{silent} of {len(self._lanes)} agents of the game ask for no action while others do: penstock steps "
                "all agents of a game together; give their Decision Requesters one period and one step, and let new "
                "agents take the place of those that end"
            )

    def _read(self, output: Any) -> list[tuple[_Agent, Any]]:
        infos = {behavior: list(listed.value) for behavior, listed in output.rl_output.agentInfos.items()}
        for described in output.rl_initialization_output.brain_parameters:
            name = described.brain_name
            # A game describes agents together with their first observation.
            if infos.get(name):
                self._kinds[name] = _kind(described.action_spec, infos[name][0])
        kinds = {kind: name for name, kind in self._kinds.items()}
        if len(kinds) > 1:
            names = " and ".join(sorted(kinds.values()))
            raise SpaceError(f"the game's agents {names} see or do different things: all lanes need the same spaces")
        if kinds:
            (self.kind,) = kinds
        return [(_Agent(behavior, info.id), info) for behavior in sorted(infos) for info in infos[behavior]]


def _kind(action: Any, info: Any) -> Kind:
    """What an agent of this ``ActionSpecProto`` and ``AgentInfoProto`` sees and does.

    Raises:
        SpaceError: a shape or a number of choices is impossible, or too large.
    """
    names = [part.name or f"obs_{place}" for place, part in enumerate(info.observations)]
    names = [f"{name}_{place}" if names.count(name) > 1 else name for place, name in enumerate(names)]
    seen = tuple((name, tuple(part.shape)) for name, part in zip(names, info.observations, strict=True))
    for name, shape in seen:
        if not shape or min(shape) < 1 or math.prod(shape) > _MOST:
            raise SpaceError(f"the game shows {one_line(name)} in the shape {list(shape[:16])}: no observation has it")
    continuous, branches = action.num_continuous_actions, tuple(action.discrete_branch_sizes)
    if not 0 <= continuous <= _MOST or not all(1 <= choices <= _MOST for choices in branches):
        raise SpaceError(f"the game's agents take {continuous} numbers and choices of {list(branches[:16])}: none can")
    return Kind(continuous, branches, seen)
