"""Environments of PettingZoo, as ``pettingzoo:module`` or ``pettingzoo:module:name``. Each agent is a lane.

All agents of an environment step together (PettingZoo's ``ParallelEnv``), and all lanes learn one policy. With
opponents (`opposed.py`), one agent of each environment learns, and is its only lane. An agent may end before the
others, or come after them. Until its next episode its lane is *absent*: the rows of that time are not valid, and
nothing is learned from them.

An environment begins its next episode in a step of its own, once no agent is left. The seed depends on the environment
and on the number of its episode. Episodes cannot be restored, because the agents of an environment have one state.

https://pettingzoo.farama.org/api/parallel
"""

import contextlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.fields import one_line
from penstock.envs.imports import attribute_of, imported
from penstock.envs.masks import KEY, lane_of
from penstock.envs.opponents import Pool, PoolSettings
from penstock.envs.opposed import Opposed
from penstock.envs.rows import as_number, as_truth, in_dtype
from penstock.envs.team_state import ShownState
from penstock.errors import BadDataError, EnvError, SpaceError
from penstock.seeding import episode_seed
from penstock.types import Array, EnvFactory

__all__ = ["agents_of"]

_USUAL = ("parallel_env", "env")
"""What makes the environment in a module of PettingZoo's own form."""


def agents_of(name: str) -> EnvFactory:
    """A factory of vector environments whose lanes are the agents of environments.

    Args:
        name: ``module``, which has ``parallel_env`` or ``env``; or ``module:name`` of what makes an environment.

    Raises:
        EnvError: PettingZoo is not installed, or there is no such module or name.
    """
    whose = f"environment pettingzoo:{name}"
    if importlib.util.find_spec("pettingzoo") is None:
        raise EnvError(f"{whose} needs PettingZoo: pip install 'penstock[pettingzoo]'")
    module, _, attribute = name.partition(":")
    loaded = imported(whose, module)
    if not attribute:
        attribute = next((usual for usual in _USUAL if hasattr(loaded, usual)), "")
    if not attribute:
        raise EnvError(f"{whose}: module {module} has no {' and no '.join(_USUAL)}; write pettingzoo:{module}:NAME")
    make_one = attribute_of(whose, loaded, attribute)

    def make_lanes(
        num_envs: int, *, with_state: bool = False, played_by: PoolSettings | None = None, **arguments: Any
    ) -> _Agents:
        pool = None if played_by is None else Pool(whose, played_by)

        def make_parallel() -> Any:
            env = _parallel(whose, make_one(**arguments))
            env = ShownState(whose, env) if with_state else env
            if pool is None:
                return env
            # If a check below fails, the environment is closed.
            with contextlib.ExitStack() as opened:
                opened.callback(env.close)
                # Each agent learns in some episodes, so all have the same spaces.
                for what in ("observation_space", "action_space"):
                    _shared(whose, env, what)
                opposed = Opposed(whose, pool, env)
                opened.pop_all()
            return opposed

        return _Agents(whose, num_envs, make_parallel)

    return make_lanes


class _Turn(NamedTuple):
    """The outcome of one step for one agent."""

    reward: float
    terminated: bool
    truncated: bool


_ABSENT = _Turn(0.0, terminated=False, truncated=False)


class _Environment:
    """One environment, and what its agents have seen last.

    Args:
        whose: begins an error's text.
        env: a ``ParallelEnv``.

    Attributes:
        env: as given.
        agents: all that it may have.
        goes_on: for each agent, whether it acts in the next step.
        shown: for each agent, its latest observation. For one that has not come yet, that of another agent.
        infos: for each agent, its latest info; ``None``: there is none.
    """

    def __init__(self, whose: str, env: Any) -> None:
        self.env = env
        self.agents: tuple[Any, ...] = tuple(env.possible_agents)
        self.goes_on = [False] * len(self.agents)
        self.shown: list[Any] = [None] * len(self.agents)
        self.infos: list[Mapping[str, Any] | None] = [None] * len(self.agents)
        self._whose = whose
        self._seed: int | None = None
        self._episodes = 0

    def reset(self, seed: int | None) -> None:
        """Begin the first episode of all that follow from this seed."""
        self._seed, self._episodes = seed, 0
        self._begin()

    def step(self, actions: Sequence[Any]) -> list[_Turn]:
        """Let the agents act, or begin the next episode if none is left.

        Args:
            actions: one for each of ``agents``; those of absent agents are not used.

        Raises:
            BadDataError: an agent has no observation, or a reward is no number.
            EnvError: there is an agent that is none of ``agents``.
        """
        if not any(self.goes_on):
            self._begin()
            return [_ABSENT] * len(self.agents)
        acted, acting = self.goes_on, set(self.env.agents)
        given = {agent: action for agent, action in zip(self.agents, actions, strict=True) if agent in acting}
        found, rewards, terminations, truncations, infos = self.env.step(given)
        obs = _observed_by(found)
        here = self._here()
        ends = [
            tuple(
                as_truth(flags.get(agent) or False, f"{name} of agent {agent} of {self._whose}")
                for name, flags in (("terminated", terminations), ("truncated", truncations))
            )
            for agent in self.agents
        ]
        self.goes_on = [agent in here and not any(end) for agent, end in zip(self.agents, ends, strict=True)]
        turns = []
        for place, (agent, (terminated, truncated)) in enumerate(zip(self.agents, ends, strict=True)):
            if not acted[place]:
                turns.append(_ABSENT)
                continue
            reward = as_number(rewards.get(agent, 0.0), f"reward of agent {agent}")
            # An agent that leaves without a flag counts as terminated.
            over = terminated or not (truncated or self.goes_on[place])
            turns.append(_Turn(reward, over, truncated))
            if truncated and not terminated and agent not in obs:
                raise BadDataError(f"{self._whose}: agent {agent} is truncated, but step gave it no last observation")
        self._look(obs, infos)
        return turns

    def _begin(self) -> None:
        """Begin the next episode."""
        seed = None if self._seed is None else episode_seed(self._seed, 0, self._episodes)
        self._episodes += 1
        found, infos = self.env.reset(seed=seed)
        obs = _observed_by(found)
        here = self._here()
        self.goes_on = [agent in here for agent in self.agents]
        if not here:
            raise EnvError(f"{self._whose} begins an episode without an agent")
        self._look(obs, infos)

    def _here(self) -> set[Any]:
        """The agents that take part now."""
        here = set(self.env.agents)
        unknown = here.difference(self.agents)
        if unknown:
            agent = min(map(str, unknown))
            raise EnvError(f"{self._whose} has the agent {agent}, which its possible_agents do not name")
        return here

    def _look(self, obs: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        """Keep what each agent has seen last, and its info."""
        for place, agent in enumerate(self.agents):
            if agent in obs:
                self.shown[place] = obs[agent]
            elif self.goes_on[place]:
                raise BadDataError(f"{self._whose}: agent {agent} is alive, but it gets no observation")
            info = infos.get(agent)
            self.infos[place] = info if isinstance(info, Mapping) else None
        other = self.shown[self.goes_on.index(True)] if any(self.goes_on) else None
        self.shown = [other if shown is None else shown for shown in self.shown]


def _check_whole_numbers(space: Any, obs: Any) -> None:
    """Refuse whole numbers that the dtype of their space does not hold: NumPy would make others of them.

    Raises:
        ValueError: one does not fit.
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        for key, part in parts.items():
            _check_whole_numbers(part, obs[key])
    elif parts is not None:
        for part, own in zip(parts, obs, strict=True):
            _check_whole_numbers(part, own)
    elif np.dtype(space.dtype).kind in "iu":
        values = np.asarray(obs)
        if values.dtype != space.dtype:
            in_dtype(values, space.dtype)


def _observed_by(found: Mapping[Any, Any]) -> dict[Any, Any]:
    """The observations of those agents that have one."""
    return {agent: obs for agent, obs in found.items() if obs is not None}


class _Agents:
    """The agents of several environments, as a vector environment that resets in the next step.

    Args:
        whose: begins an error's text.
        num_envs: least number of lanes; rounded up to whole environments.
        make_one: makes one ``ParallelEnv``.

    Attributes:
        agents_per_env: lanes of one environment.
        absent: bool ``[lanes]``: the lane has no agent that acts in the next step.
    """

    def __init__(self, whose: str, num_envs: int, make_one: Callable[[], Any]) -> None:
        from gymnasium.vector.utils import create_empty_array  # noqa: PLC0415  # takes 70 ms

        self._whose = whose
        self._environments: list[_Environment] = []
        # If one environment cannot be used, those before it are closed.
        with contextlib.ExitStack() as opened:
            opened.callback(self.close)
            first = make_one()
            self._environments.append(_Environment(whose, first))
            self.single_observation_space = _shared(whose, first, "observation_space")
            self.single_action_space = _shared(whose, first, "action_space")
            self.agents_per_env = len(self._environments[0].agents)
            while (lanes := self.agents_per_env * len(self._environments)) < num_envs:
                self._environments.append(_Environment(whose, make_one()))
                if any(self._environments[-1].env is other.env for other in self._environments[:-1]):
                    raise EnvError(f"{whose} returned one environment twice: it must make a new one each time")
            opened.pop_all()
        self.num_envs = lanes
        self.absent = np.zeros(lanes, np.bool_)
        said = (getattr(first, "metadata", None) or {}).get("render_fps")
        self.metadata: Mapping[str, Any] = {"autoreset_mode": "NextStep", "render_fps": said}
        self._obs: Any = create_empty_array(self.single_observation_space, lanes)

    def reset(self, *, seed: Sequence[int] | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes. An environment takes the seed of its first lane."""
        del options
        for number, one in enumerate(self._environments):
            one.reset(None if seed is None else int(seed[number * self.agents_per_env]))
        return self._observed(), self._infos()

    def step(self, action: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        turns: list[_Turn] = []
        for one in self._environments:
            turns += one.step([lane_of(action, len(turns) + place) for place in range(self.agents_per_env)])
        reward, terminated, truncated = zip(*turns, strict=True)
        flags = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return self._observed(), np.array(reward, np.float32), *flags, self._infos()

    def lane_infos(self) -> list[Mapping[str, Any] | None]:
        """The latest info of each lane's agent; ``None`` for an agent without one."""
        return [info for one in self._environments for info in one.infos]

    def take_version(self, version: int) -> None:
        """Tell the opponents, if there are any, which version of the policy acts in the lanes."""
        for one in self._environments:
            if isinstance(one.env, Opposed):
                one.env.take_version(version)

    def render(self) -> Any:
        """The present picture of the first environment."""
        return self._environments[0].env.render()

    def close(self) -> None:
        """Close the environments."""
        for one in self._environments:
            # One that cannot close must not keep others from closing.
            with contextlib.suppress(Exception):
                one.env.close()
        self._environments = []

    def _observed(self) -> Any:
        from gymnasium.vector.utils import concatenate  # noqa: PLC0415  # as above

        self.absent[:] = [not goes_on for one in self._environments for goes_on in one.goes_on]
        shown = [obs for one in self._environments for obs in one.shown]
        try:
            for obs in shown:
                _check_whole_numbers(self.single_observation_space, obs)
            self._obs = concatenate(self.single_observation_space, shown, self._obs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = one_line(f"{type(error).__name__}: {error}", 200)
            raise BadDataError(f"{self._whose}: an agent's observation does not fit its space: {why}") from error
        return self._obs

    def _infos(self) -> dict[str, Any]:
        """The action masks of all lanes, as Gymnasium puts infos together."""
        masks = [None if info is None else info.get(KEY) for info in self.lane_infos()]
        given = [mask is not None for mask in masks]
        if not any(given):
            return {}
        # A lane without a mask shows that of another one. It is not used, but whoever reads it finds a mask's form.
        other = masks[given.index(True)]
        return {KEY: [other if mask is None else mask for mask in masks], f"_{KEY}": np.array(given)}


def _parallel(whose: str, made: Any) -> Any:
    """The environment as a ``ParallelEnv``.

    Raises:
        EnvError: it is none of PettingZoo's, its agents act in turns, or it does not name all agents that it may have.
    """
    from pettingzoo import AECEnv, ParallelEnv  # noqa: PLC0415  # an optional package
    from pettingzoo.utils import aec_to_parallel  # noqa: PLC0415

    if isinstance(made, AECEnv):
        if not made.metadata.get("is_parallelizable", False):
            raise EnvError(
                f'{whose} lets its agents act in turns (its metadata have no "is_parallelizable"): penstock steps '
                "all agents together"
            )
        made = aec_to_parallel(made)
    if not isinstance(made, ParallelEnv):
        raise EnvError(f"{whose} returned {one_line(made)}, which is no ParallelEnv and no AECEnv of PettingZoo")
    if not getattr(made, "possible_agents", None):
        raise EnvError(f"{whose} has no possible_agents: penstock needs to know all agents that may come")
    return made


def _shared(whose: str, env: Any, what: str) -> Any:
    """The space that all agents have.

    Raises:
        SpaceError: two agents have different ones.
    """
    first, *others = env.possible_agents
    space = getattr(env, what)(first)
    for other in others:
        found = getattr(env, what)(other)
        if found != space:
            raise SpaceError(
                f"{whose}: the {what} of {first} is {one_line(space)}, that of {other} is {one_line(found)}: all lanes "
                "need the same spaces"
            )
    return space
