"""The agents of games as one vector environment: spaces, actions, observations, masks. Opens no connection."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.engines import whole
from penstock.envs.mlagents.game import Action
from penstock.envs.mlagents.lanes import GameLanes, Kind
from penstock.envs.mlagents.observations import read_observation
from penstock.errors import BadDataError, SpaceError
from penstock.types import Array

__all__ = ["Agents"]


class Agents:
    """The agents of one game or several, as a vector environment that resets them in the same step.

    Args:
        num_envs: lanes. Games are taken until they have as many agents; those beyond get zeros as actions.
        games: connects one game after the other.
        masks: use action masks even if no agent has one at its first question.
    """

    metadata: Mapping[str, Any] = {"autoreset_mode": "SameStep"}

    def __init__(self, num_envs: int, games: Iterator[GameLanes], *, masks: bool) -> None:
        self.num_envs = num_envs
        self._games: list[GameLanes] = []
        try:
            while sum(map(len, self._games)) < num_envs:
                self._games.append(next(games))
            self._kind = _common([game.kind for game in self._games])
            self.single_action_space = _action_space(self._kind)
            self._spaces = _observed_spaces(self._kind)
            self.single_observation_space = whole(self._spaces)
            self._begun: list[Any] | None = self._asked()
            self._masked = masks or any(info.action_mask for info in self._begun)
        except BaseException:
            self.close()
            raise

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes. A game takes a seed only when it begins."""
        del seed, options
        asks, self._begun = self._begun or self._asked(), None
        return self._observed(asks), self._mask(asks)

    def step(self, action: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all agents."""
        actions = self._per_agent(action)
        turns = []
        for game in self._games:
            turns += game.step(actions[: len(game)])
            actions = actions[len(game) :]
        del turns[self.num_envs :]
        ended = np.array([turn.end is not None for turn in turns])
        truncated = np.array([turn.end is not None and turn.end.max_step_reached for turn in turns])
        asks = [turn.asks for turn in turns]
        final = [None if turn.end is None else self._seen(turn.end) for turn in turns]
        reward = np.array([turn.reward for turn in turns], np.float32)
        last = [ask if turn.end is None else turn.end for turn, ask in zip(turns, asks, strict=True)]
        # Unless masks are used, the mask of an agent that has ended is not read, whatever it is.
        infos = {"final_obs": final, "final_info": self._mask(last) if self._masked else {}, **self._mask(asks)}
        return self._observed(asks), reward, ended & ~truncated, truncated, infos

    def close(self) -> None:
        """Let the games end."""
        games, self._games = self._games, []
        for game in games:
            game.close()

    def _asked(self) -> list[Any]:
        return [info for game in self._games for info in game.reset()][: self.num_envs]

    def _per_agent(self, action: Any) -> list[Action]:
        """The actions of all agents of all games."""
        given = action if isinstance(action, Mapping) else {"continuous": action, "discrete": action}
        kind, found = self._kind, []
        for lane in range(self.num_envs):
            continuous = given["continuous"][lane].tolist() if kind.continuous else ()
            discrete = np.atleast_1d(given["discrete"][lane]).tolist() if kind.branches else ()
            found.append(Action(continuous, discrete))
        return found + [kind.idle] * (sum(map(len, self._games)) - self.num_envs)

    def _observed(self, asks: Sequence[Any]) -> Any:
        rows = [self._seen(info) for info in asks]
        if len(self._spaces) == 1:
            return np.stack(rows)
        return {name: np.stack([row[name] for row in rows]) for name in self._spaces}

    def _seen(self, info: Any) -> Any:
        """The observation of one agent."""
        if len(info.observations) != len(self._spaces):
            raise BadDataError(f"an agent shows {len(info.observations)} observations instead of {len(self._spaces)}")
        parts = zip(self._kind.seen, info.observations, strict=True)
        found = {name: read_observation(part, name, shape) for (name, shape), part in parts}
        return next(iter(found.values())) if len(found) == 1 else found

    def _mask(self, asks: Sequence[Any]) -> dict[str, Any]:
        """The action masks, uint8 ``[B, choices]``, 1 where a choice is possible. Nothing, if they are not used."""
        if not self._masked:
            if any(True in info.action_mask for info in asks):
                raise BadDataError(
                    "an agent cannot take every action now, which none of them said when the game began; give "
                    "--env_args '{\"action_mask\": true}'"
                )
            return {}
        choices = sum(self._kind.branches)
        rows = [[not forbidden for forbidden in info.action_mask] or [True] * choices for info in asks]
        if any(len(row) != choices for row in rows):
            raise BadDataError(f"an agent's action mask has not one number for each of its {choices} choices")
        return {"action_mask": np.array(rows, np.uint8)}


def _common(kinds: Sequence[Kind]) -> Kind:
    if any(kind != kinds[0] for kind in kinds):
        raise SpaceError("the games have agents of different kinds: all lanes need the same spaces")
    return kinds[0]


def _action_space(kind: Kind) -> Any:
    from gymnasium.spaces import Box, Discrete, MultiDiscrete  # noqa: PLC0415 - takes 70 ms

    parts: dict[str, Any] = {}
    if kind.continuous:
        parts["continuous"] = Box(-1.0, 1.0, (kind.continuous,), np.float32)
    if kind.branches:
        parts["discrete"] = (
            Discrete(kind.branches[0]) if len(kind.branches) == 1 else MultiDiscrete(list(kind.branches))
        )
    if not parts:
        raise SpaceError("the game's agents take no actions")
    return whole(parts)


def _observed_spaces(kind: Kind) -> dict[str, Any]:
    if not kind.seen:
        raise SpaceError("the game's agents see nothing")
    return {name: _space(shape) for name, shape in kind.seen}


def _space(shape: tuple[int, ...]) -> Any:
    from gymnasium.spaces import Box  # noqa: PLC0415

    return Box(0, 255, shape, np.uint8) if len(shape) == 3 else Box(-np.inf, np.inf, shape, np.float32)
