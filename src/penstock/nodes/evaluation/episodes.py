"""Plays greedy episodes in the lanes of one source. The caller decides which lane plays which episode, and its seed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from penstock.envs.bad_numbers import not_finite, spoilt_rows
from penstock.envs.sources import display_name, open_source
from penstock.errors import BadDataError
from penstock.nodes.evaluation.tapes import Tapes
from penstock.policies.acting_session import ActingSession
from penstock.policies.contract import PolicySpec
from penstock.registry import load
from penstock.saved_runs.episodes import KeptEpisode
from penstock.types import Array, Arrays, BackendSpec, EnvReference, EnvSource, PolicyBackend, Spaces, StepResult

__all__ = ["Episode", "PlaySettings", "play"]


@dataclass(frozen=True)
class PlaySettings:
    """What is played in an evaluation, and by which policy."""

    env: EnvReference
    vector: bool
    """Use Gymnasium's own vector environment of this id."""
    ignore_obs: tuple[str, ...]
    """Fields of the observation that are left out."""
    spaces: Spaces
    policy: PolicySpec
    backend: BackendSpec
    lanes: int
    seed: int
    """Of the evaluation. An episode's seed depends on it and on the episode's number."""
    bad_numbers: Literal["stop", "skip"]
    """An episode with NaN or infinity is an error (``stop``) or does not count (``skip``)."""
    work_limit_s: float
    """How long making the policy or the environments may take, in seconds."""
    masks: bool = False
    """The policy uses action masks. Then it is an error if the environment gives one and ``spaces`` has none."""
    episode_metrics: tuple[str, ...] = ()
    """Names of numbers that are read in the last info of each episode."""

    @property
    def name(self) -> str:
        """Name of the environment, for messages."""
        return display_name(self.env)

    def make_backend(self) -> PolicyBackend:
        """The policy, without parameters."""
        backend: PolicyBackend = load(self.backend.build)(*self.backend.arguments)
        return backend

    def open_source(self, lanes: int, seed: int) -> EnvSource:
        """The environments of these lanes. ``seed`` is for sources that seed themselves."""
        mask = self.spaces.mask
        return open_source(
            self.env, self.vector, lanes, seed=seed, ignore_obs=self.ignore_obs, mask=mask, masks=self.masks
        )


class Episode(NamedTuple):
    """One episode that has ended."""

    number: int
    episode_return: float
    """Undiscounted sum of the environment's own rewards."""
    length: int
    spoilt: bool = False
    """It held NaN or infinity and was given up there."""
    kept: KeptEpisode | None = None
    """Its rows, if they are kept."""
    metrics: tuple[float, ...] = ()
    """Its number of each episode metric; NaN: its last info has none. Empty if it did not end."""


def play(
    settings: PlaySettings,
    source: EnvSource,
    backend: PolicyBackend,
    *,
    seed_of: Callable[[int], int],
    next_number: Callable[[int], int | None],
    keeps: bool = False,
) -> Iterator[Episode | None]:
    """Play greedy episodes. Yields each one as it ends, and ``None`` after every vector step.

    Ends once no lane has an episode to play. Does not close the source.

    Args:
        settings: what is played.
        source: steps the lanes.
        backend: the policy, with its parameters loaded.
        seed_of: number of an episode -> its seed.
        next_number: lane -> number of the episode that the lane begins. ``None``: none for now; the lane plays an
            episode that does not count, and asks again after it.
        keeps: keep the rows of each episode.

    Raises:
        BadDataError: an observation or a reward is NaN or infinite. The text names environment, field, lane and step.
            With ``skip``, only if the source cannot reset a single lane.
    """
    tapes = Tapes(source.num_lanes, same_step=source.same_step) if keeps else None
    names = settings.episode_metrics
    metrics: Mapping[int, tuple[float, ...]] = source.follow(names) if names else {}
    skips = settings.bad_numbers == "skip"
    playing = _Playing(source, settings.name, seed_of, next_number, tapes, metrics=metrics, skips=skips)
    lanes, spec, policy = source.num_lanes, settings.spaces.action_spec(), settings.policy
    action = np.zeros((lanes, *spec.shape), spec.dtype)
    session = ActingSession(policy, settings.spaces.action, np.arange(lanes))
    obs = source.reset([playing.seed(lane) for lane in range(lanes)])
    yield from playing.begun(obs, range(lanes))
    while playing.busy():
        given = {**obs, "first": playing.first} if policy.carry else obs
        answer = session.act(backend, given, {"action": action})
        if tapes is not None:
            tapes.acted(obs, answer)
        result = source.step(answer, playing.next_seed)
        yield from playing.stepped(result)
        obs = result.obs
        yield None


class _Playing:
    """The current episode of each lane of a source.

    Attributes:
        first: bool ``[lanes]``: the lane's latest observation begins an episode.
    """

    def __init__(
        self,
        source: EnvSource,
        name: str,
        seed_of: Callable[[int], int],
        next_number: Callable[[int], int | None],
        tapes: Tapes | None,
        *,
        metrics: Mapping[int, tuple[float, ...]],
        skips: bool,
    ) -> None:
        lanes = source.num_lanes
        self._source = source
        self._name = name
        self._seed_of = seed_of
        self._next_number = next_number
        self._tapes = tapes
        self._metrics = metrics
        """Of the episodes that ended in the last step, by their lanes."""
        self._skips = skips
        self._numbers = [next_number(lane) for lane in range(lanes)]
        self._next: dict[int, int | None] = {}
        """Lane -> episode that a same-step source began in the same step in which the lane's last one ended."""
        self._returns, self._lengths = np.zeros(lanes), np.zeros(lanes, np.int64)
        self._given_up: deque[int] = deque()
        """Episodes of lanes to which no agent came. Other lanes play them."""
        self._away = np.ones(lanes, np.bool_)
        """The lane played nothing in the last step."""
        self._ended = np.zeros(lanes, np.int64)
        """Episodes of each lane that have ended, whether they count or not."""
        self._waited: Array | None = None
        """``_ended`` when the only lanes with episodes that count became absent."""
        self.first = np.ones(lanes, np.bool_)

    def busy(self) -> bool:
        """True while a lane plays an episode that counts, or one is left to play."""
        return bool(self._given_up) or any(number is not None for number in self._numbers)

    def seed(self, lane: int) -> int:
        """The seed of the lane's episode. An episode that does not count gets any seed."""
        number = self._numbers[lane]
        return self._seed_of(0 if number is None else number)

    def next_seed(self, lane: int) -> int:
        """The seed of the lane's next episode, which begins now."""
        number = self._next[lane] = self._take(lane)
        return self._seed_of(0 if number is None else number)

    def begun(self, obs: Arrays, lanes: Iterable[int]) -> Iterator[Episode]:
        """Check the first observations of lanes that begin episodes. Yields and replaces episodes that begin spoilt.

        Raises:
            BadDataError: an episode is spoilt and may not be skipped.
        """
        reward = np.zeros(self._source.num_lanes)
        for lane in lanes:
            while (number := self._numbers[lane]) is not None and lane in spoilt_rows(obs, reward):
                self._skip(lane, obs, reward)
                yield Episode(number, 0.0, 0, spoilt=True)

    def stepped(self, result: StepResult) -> Iterator[Episode]:
        """Add a vector step. Yields the episodes that end with it.

        Raises:
            BadDataError: an episode is spoilt and may not be skipped.
        """
        spoilt = spoilt_rows(result.obs, result.reward)
        if self._tapes is not None:
            self._tapes.stepped(result)
        played = ~result.reset
        ended = (result.terminated | result.truncated) & played
        # A source that resets in the next step still shows the last observation here.
        self.first[...] = ended if self._source.same_step else result.reset
        for lane in spoilt:
            # A same-step source gives the next episode's first observation in the step that ends an episode.
            of_next = ended[lane] and self._source.same_step and np.isfinite(result.reward[lane])
            if (number := self._numbers[lane]) is None or of_next:
                continue
            begins = bool(ended[lane])
            self._skip(lane, result.obs, result.reward, ended=begins)
            played[lane] = ended[lane] = False
            self._returns[lane], self._lengths[lane] = 0.0, 0
            yield Episode(number, 0.0, 0, spoilt=True)
            if not begins or self._source.same_step:
                yield from self.begun(result.obs, (lane,))
        self._returns += np.where(played, result.reward, 0.0)
        self._lengths += played
        for lane in np.flatnonzero(ended).tolist():
            number, value, length = self._numbers[lane], float(self._returns[lane]), int(self._lengths[lane])
            self._returns[lane], self._lengths[lane] = 0.0, 0
            kept = None if self._tapes is None else self._tapes.taken(lane, result, f"episode {number}")
            self._go_on(lane)
            if number is not None:
                yield Episode(number, value, length, kept=kept, metrics=self._metrics.get(lane, ()))
            if self._source.same_step:
                yield from self.begun(result.obs, (lane,))
        self._ended += ended
        # A lane that resets in the next step is away for one step. An absent one stays away.
        self._give_up(result.reset & self._away)
        self._away[...] = result.reset

    def _give_up(self, absent: Array) -> None:
        """Give the episodes of absent lanes to other lanes, if the absent agents do not come.

        1. All lanes with an episode that counts are absent. The other lanes play on.
        2. An agent may come with the next episode of its environment. So this waits until each playing lane has ended
           two more episodes: the second of them has begun during the wait.
        3. If the agents are still absent, the next lanes that begin an episode take over theirs.
        """
        if not absent.any():
            self._waited = None
            return
        holders = np.array([number is not None for number in self._numbers])
        if not holders.any() or (holders & ~absent).any():
            self._waited = None
        elif self._waited is None:
            self._waited = self._ended.copy()
        elif not absent.all() and (self._ended - self._waited)[~absent].min() > 1:
            self._given_up.extend(number for number in self._numbers if number is not None)
            self._numbers = [None] * len(self._numbers)

    def _take(self, lane: int) -> int | None:
        """The number of the episode that a lane begins; ``None``: one that does not count."""
        return self._given_up.popleft() if self._given_up else self._next_number(lane)

    def _go_on(self, lane: int) -> None:
        """Go on to the lane's next episode."""
        self._numbers[lane] = self._next.pop(lane) if lane in self._next else self._take(lane)

    def _skip(self, lane: int, obs: Arrays, reward: Array, *, ended: bool = False) -> None:
        """Give up a lane's episode. Write the first observation of its next one into ``obs``."""
        if not self._skips:
            self._refuse(lane, obs, reward)
        if self._tapes is not None:
            self._tapes.clear(lane)
        self._go_on(lane)
        # If the source has begun the next episode already, it need not be reset again.
        if not ended and not self._begin_alone(lane, obs):
            self._refuse(lane, obs, reward)

    def _begin_alone(self, lane: int, obs: Arrays) -> bool:
        """Reset a single lane and write its observation into ``obs``. False if the source cannot do that."""
        first = self._source.begin(lane, self.seed(lane))
        if first is None:
            return False
        for field, values in obs.items():
            values[lane] = first[field][lane]
        self.first[lane] = True
        return True

    def _refuse(self, lane: int, obs: Arrays, reward: Array) -> None:
        """Raise for a bad number. Greedy actions would hide it: even of NaN logits one is taken as the largest."""
        for field, values in (*obs.items(), ("reward", reward)):
            for at in not_finite(values[lane : lane + 1]):
                value, step = values[lane][at[1:]], self._lengths[lane]
                raise BadDataError(
                    f"evaluation: {field} of lane {lane} of {self._name} is {value} at step {step} of its episode"
                )
