"""Doubles of a run that trains from games: a fake game, a fake policy, a fake learner, and the stage for an agent."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import numpy as np

from penstock.clients import GameClient
from penstock.config.episode_metrics import check_episode_metrics, info_names
from penstock.envs.games import SCHEME, game_spaces
from penstock.envs.imports import sendable
from penstock.errors import ConfigError, PenstockError
from penstock.games.agent import Agent
from penstock.games.node import GameLaneNode, GamesNode
from penstock.games.settings import GamesSettings
from penstock.kernels.actions import environment_array, to_environment
from penstock.memory.action_log import ActionLog
from penstock.memory.layout import aligned_zeros
from penstock.nodes.contract import LaneStart, Ports
from penstock.nodes.env import EnvSettings
from penstock.program.rollout import fields_beside_return, rollout_specs
from penstock.types import Array, Arrays, ArraySpec, EnvRecipe, Spaces

__all__ = ["FakeGame", "FakeLearner", "FakePolicy", "Rehearsal", "Script", "rehearse"]

Shared = TypeVar("Shared")


@dataclass(frozen=True)
class Script:
    """One episode: n + 1 observations and n rewards."""

    obs: Sequence[Any]
    reward: Sequence[float]
    terminated: bool = True


class FakeGame:
    """Plays scripts through a client, one episode after the other.

    Args:
        client: connected to a run, a rehearsal or a served policy.

    Attributes:
        actions: of each episode that was played, in order.
    """

    def __init__(self, client: GameClient) -> None:
        self._client = client
        self.actions: list[list[Any]] = []

    def play(self, script: Script) -> list[Any]:
        """Play one episode to its end. Returns the actions."""
        *ticks, last = script.obs
        actions = self.begin(script, len(ticks))
        self._client.stop(last, script.reward[-1], terminated=script.terminated)
        return actions

    def begin(self, script: Script, ticks: int) -> list[Any]:
        """Play only the first ticks of an episode, as a game that will vanish. Returns the actions."""
        self._client.start()
        actions = [self._client.tick(script.obs[0])]
        actions += [self._client.tick(script.obs[t], script.reward[t - 1]) for t in range(1, ticks)]
        self.actions.append(actions)
        return actions


class FakePolicy:
    """Acts by a function. Implements `penstock.nodes.ports.PolicyPort` for one lane.

    Args:
        spaces: of the agent.
        act: observation fields ``[1, ...]`` to an action as rows store it, see `Spaces.action_spec`.
        value: observation fields to the value of a state.
    """

    version = 0
    answers_at_once = True

    def __init__(
        self,
        spaces: Spaces,
        act: Callable[[Arrays], Any] = lambda _: 0,
        value: Callable[[Arrays], float] = lambda _: 0.0,
    ) -> None:
        self.stacks: Arrays = {}
        self.carry: Arrays = {}
        self.environment_action = environment_array(spaces.action, 1)
        self._spaces = spaces
        self._act = act
        self._value = value
        self._rows: list[Arrays] = []

    def fresh(self, rollout: int) -> bool:
        """True: its version never changes."""
        del rollout
        return True

    def refresh(self) -> None:
        """Nothing."""

    def bind(self, rows: Arrays) -> int:
        """Remember the arrays of a slot."""
        self._rows.append(rows)
        return len(self._rows) - 1

    def unbind(self, handle: int) -> None:
        """Forget the arrays of a slot."""
        self._rows[handle] = {}

    def ask(self, handle: int, row: int, step: int) -> None:
        """Act at once."""
        del step
        rows = self._rows[handle]
        obs = {name: rows[name][row] for name, _ in self._spaces.obs}
        rows["action"][row] = self._act(obs)
        rows["value"][row] = self._value(obs)
        to_environment(rows["action"][row], self._spaces.action, self.environment_action)

    def ask_value(self, given: Mapping[str, Array], value: Array) -> None:
        """Value a state at once."""
        value[...] = self._value(dict(given))

    def answered(self) -> bool:
        """True."""
        return True


class FakeLearner:
    """Keeps the rollouts that lanes push, and gives their slots back at once.

    Args:
        spaces: of the agent.
        num_steps: steps of a rollout.
        slots: how many rollouts may be under way. Later ones wait until `hold` is false.
        episode_metrics: names of the numbers that it wants of each episode.

    Attributes:
        rollouts: copies of the slots, in the order of their completion; see `penstock.program.rollout`.
        hold: keep the slots, as a learner that is busy.
    """

    def __init__(self, spaces: Spaces, num_steps: int, slots: int = 8, *, episode_metrics: Sequence[str] = ()) -> None:
        value = ArraySpec("value", (), "float32")
        beside = fields_beside_return(episode_metrics, shaped=False)
        specs = rollout_specs(spaces, (value,), num_steps, 1, same_step=False, beside_return=beside)
        self._slots: list[Arrays] = [
            {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs} for _ in range(slots)
        ]
        self._free = list(range(slots))
        self._held: list[int] = []
        self.slots = slots
        self.rollouts: list[Arrays] = []
        self.hold = False

    def free(self) -> int:
        """Number of free slots."""
        if not self.hold:
            self._free += self._held
            self._held.clear()
        return len(self._free)

    def claim(self, sequence: int) -> int | None:
        """Take a free slot."""
        del sequence
        return self._free.pop(0) if self.free() else None

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot."""
        return self._slots[index]

    def push(self, index: int) -> None:
        """Keep a copy of a rollout."""
        self.rollouts.append({name: values.copy() for name, values in self._slots[index].items()})
        self._held.append(index)

    def written(self) -> dict[int, int]:
        """Nothing waits."""
        return {}


class _Ports:
    """The ends of the edges of one node of a rehearsal."""

    life = 1
    former: tuple[int, ...] = ()

    def __init__(self, name: str, stage: "_Stage") -> None:
        self.name = name
        self._stage = stage

    def stream_writer(self, role: str) -> FakeLearner:
        del role
        return self._stage.learner

    def policy(self, role: str, first_lane: int, lanes: int) -> FakePolicy:
        del role, first_lane, lanes
        return FakePolicy(self._stage.spaces, self._stage.act, self._stage.value)

    def action_log(self, role: str) -> ActionLog:
        del role
        action = self._stage.spaces.action_spec()
        memory = aligned_zeros(ActionLog.required(1, action, 16))
        return ActionLog(memory, 1, action, [name for name, _ in self._stage.spaces.obs], 16)

    def shared_object(self, role: str, make: Callable[[], Shared]) -> Shared:
        found: Shared = self._stage.shared.setdefault(role, make())
        return found

    def counters(self) -> dict[str, dict[str, int]]:
        """No run goes on here, so nothing was counted before."""
        return {self.name: {"collected": 0}}

    def note(self, counter: str, value: int) -> None:
        """Nobody reads it."""

    def count(self, counter: str, amount: int = 1) -> None:
        """Nobody reads it."""

    def checkpoints_wanted(self) -> int:
        """Nobody asks for one."""
        return 0

    def stopping(self) -> bool:
        return self._stage.ended.is_set()

    def interrupted(self) -> bool:
        """Nobody interrupts it."""
        return False


@dataclass
class _Stage:
    """What the nodes of a rehearsal share."""

    spaces: Spaces
    learner: FakeLearner
    act: Callable[[Arrays], Any]
    value: Callable[[Arrays], float]
    shared: dict[str, Any]
    ended: threading.Event


@dataclass
class Rehearsal:
    """An agent that plays without a run."""

    http: str
    """Address for clients."""
    tcp: str
    """Address for clients."""
    learner: FakeLearner
    """Keeps the rollouts."""
    episodes: Path
    """The folder of kept episodes."""


@contextlib.contextmanager
def rehearse(
    agent: type[Agent] | str,
    *,
    act: Callable[[Arrays], Any] = lambda _: 0,
    value: Callable[[Arrays], float] = lambda _: 0.0,
    num_envs: int = 2,
    num_steps: int = 8,
    keep_episodes: int = 0,
    idle_seconds: float = 60.0,
    patience: float = math.inf,
    arguments: Mapping[str, Any] | None = None,
    episode_metrics: Sequence[str] = (),
) -> Iterator[Rehearsal]:
    """Let games play with an agent, a fake policy and a fake learner, for as long as the body runs.

    Args:
        agent: the class, or ``module:Agent``.
        act: as for `FakePolicy`.
        value: as for `FakePolicy`.
        num_envs: most sessions.
        num_steps: steps of a rollout.
        keep_episodes: how many episodes are kept as files.
        idle_seconds: a session without a request for so long has vanished.
        patience: seconds without a request of any game after which the rehearsal fails.
        arguments: of the agent's constructor.
        episode_metrics: as ``--episode_metrics``.

    Raises:
        UsageError: the agent cannot be used.
        PenstockError: the agent failed. Raised when the body has ended, also in place of an error of the body.
    """
    name = agent if isinstance(agent, str) else sendable(agent, "agent")
    if not isinstance(name, str):
        raise ConfigError(f"agent {agent} has no name to find it by: put it into a module")
    env = EnvRecipe(SCHEME + name, dict(arguments or {}), ())
    spaces, _ = game_spaces(env, (), masks=True)
    check_episode_metrics(episode_metrics)
    names = info_names(episode_metrics)
    learner = FakeLearner(spaces, num_steps, slots=2 * num_envs, episode_metrics=names)
    stage = _Stage(spaces, learner, act, value, {}, threading.Event())
    with TemporaryDirectory() as folder:
        episodes = Path(folder) / "episodes"
        node = GamesNode(
            GamesSettings(env, spaces, "127.0.0.1", 0, 0, None, idle_seconds, episodes, keep_episodes, patience)
        )
        for lane in range(num_envs):
            settings = replace(_lane(env, spaces, lane, num_envs, num_steps), episode_metrics=names)
            GameLaneNode(settings).open(_ports(f"env.{lane}", stage))
        failure: list[BaseException] = []
        node.open(_ports("games", stage))

        def run() -> None:
            try:
                while not stage.ended.is_set():
                    node.step()
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                failure.append(error)
            finally:
                node.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            http, tcp = (f"{scheme}://127.0.0.1:{node.ports[scheme]}" for scheme in ("http", "tcp"))
            yield Rehearsal(http, tcp, learner, episodes)
        finally:
            stage.ended.set()
            thread.join()
            if failure:
                # Also if the body has failed: its client only knows that the connection broke.
                raise PenstockError(f"the agent failed: {failure[0]!r}") from failure[0]


def _ports(name: str, stage: _Stage) -> Ports:
    # The nodes of games use no other ends.
    return cast("Ports", _Ports(name, stage))


def _lane(env: EnvRecipe, spaces: Spaces, lane: int, num_envs: int, num_steps: int) -> EnvSettings:
    return EnvSettings(
        env=env,
        vector=False,
        ignore_obs=(),
        spaces=spaces,
        worker=lane,
        num_workers=num_envs,
        first_lane=lane,
        lanes=1,
        num_steps=num_steps,
        # Its policy never changes.
        renew_every=num_steps,
        seed=0,
        starts=(LaneStart(),),
        bad_numbers="stop",
        work_limit_s=60.0,
    )
