"""Greedy episodes of one source, as they end. Who plays which episode, and how it is seeded, its callers decide."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from penstock.envs.finite import not_finite, spoilt_rows
from penstock.errors import BadDataError
from penstock.kernels.actions import environment_array, to_environment
from penstock.types import Array, Arrays, EnvSource, NoiseSpec, PolicyBackend, Spaces, StepResult

__all__ = ["Episode", "play"]


class Episode(NamedTuple):
    """One episode that has ended."""

    number: int
    episode_return: float
    """Undiscounted sum of the environment's own rewards."""
    length: int
    spoilt: bool = False
    """It held NaN or infinity, and was given up there."""


def play(
    source: EnvSource,
    backend: PolicyBackend,
    spaces: Spaces,
    *,
    noise: NoiseSpec,
    name: str,
    seed_of: Callable[[int], int],
    next_number: Callable[[int], int | None],
    bad_numbers: Literal["stop", "skip"],
) -> Iterator[Episode | None]:
    """Play greedy episodes; yields each as it ends, and ``None`` after every vector step.

    Actions are greedy: their noise has the shape that ``noise`` says, and is zero. The source stays the caller's, to be
    closed by it. It ends once no lane has an episode to play.

    Args:
        source: plays them.
        backend: answers with the parameters that it was given last.
        spaces: of the environment.
        noise: of the policy.
        name: of the environment, for messages.
        seed_of: the seed of an episode, by its number.
        next_number: asked with a lane when that begins an episode: its number. ``None``: there is none for this lane
            now; it goes on with an episode that does not count, and asks again behind that.
        bad_numbers: what becomes of an episode with NaN or infinity.

    Raises:
        BadDataError: an observation or a reward is NaN or infinite; it names environment, field, lane and step. Where
            episodes with such numbers are skipped: the source resets no lane alone.
    """
    playing = _Playing(source, name, seed_of, next_number, skips=bad_numbers == "skip")
    lanes, spec = source.num_lanes, spaces.action_spec()
    action = np.zeros((lanes, *spec.shape), spec.dtype)
    outgoing = environment_array(spaces.action, lanes)
    explore, none = np.zeros(lanes, np.float32), np.zeros((lanes, *noise.shape), np.float32)
    obs = source.reset([playing.seed(lane) for lane in range(lanes)])
    yield from playing.begun(obs, range(lanes))
    while playing.busy():
        backend.act(obs, none, explore, {"action": action})
        to_environment(action, spaces.action, outgoing)
        result = source.step(outgoing, playing.next_seed)
        yield from playing.stepped(result)
        obs = result.obs
        yield None


class _Playing:
    """The episodes that the lanes of a source are in."""

    def __init__(
        self,
        source: EnvSource,
        name: str,
        seed_of: Callable[[int], int],
        next_number: Callable[[int], int | None],
        *,
        skips: bool,
    ) -> None:
        lanes = source.num_lanes
        self._source = source
        self._name = name
        self._seed_of = seed_of
        self._next_number = next_number
        self._skips = skips
        self._numbers = [next_number(lane) for lane in range(lanes)]
        self._next: dict[int, int | None] = {}
        """Lane -> the episode that the source has begun in the step that ended the lane's last one."""
        self._returns, self._lengths = np.zeros(lanes), np.zeros(lanes, np.int64)

    def busy(self) -> bool:
        """True while a lane plays an episode that counts."""
        return any(number is not None for number in self._numbers)

    def seed(self, lane: int) -> int:
        """The seed of the lane's episode; of one that does not count, any."""
        number = self._numbers[lane]
        return self._seed_of(0 if number is None else number)

    def next_seed(self, lane: int) -> int:
        """The seed of the lane's next episode, which begins now."""
        number = self._next[lane] = self._next_number(lane)
        return self._seed_of(0 if number is None else number)

    def begun(self, obs: Arrays, lanes: Iterable[int]) -> Iterator[Episode]:
        """These lanes have begun their episodes. Yields those that begin with NaN or infinity; others take their place.

        Raises:
            BadDataError: one does, and may not be skipped.
        """
        reward = np.zeros(self._source.num_lanes)
        for lane in lanes:
            while (number := self._numbers[lane]) is not None and lane in spoilt_rows(obs, reward):
                self._skip(lane, obs, reward)
                yield Episode(number, 0.0, 0, spoilt=True)

    def stepped(self, result: StepResult) -> Iterator[Episode]:
        """All lanes have taken a step. Yields the episodes that end with it.

        Raises:
            BadDataError: one shows NaN or infinity, and may not be skipped.
        """
        spoilt = spoilt_rows(result.obs, result.reward)
        played = ~result.reset
        ended = (result.terminated | result.truncated) & played
        for lane in spoilt:
            # What a lane shows in the step that ends its episode is the next one's, where the source resets at once.
            of_next = ended[lane] and self._source.same_step and np.isfinite(result.reward[lane])
            if (number := self._numbers[lane]) is None or of_next:
                continue
            begins = bool(ended[lane])
            self._skip(lane, result.obs, result.reward, ended=begins)
            played[lane] = ended[lane] = False
            self._returns[lane], self._lengths[lane] = 0.0, 0
            yield Episode(number, 0.0, 0, spoilt=True)
            if begins and self._source.same_step:
                yield from self.begun(result.obs, (lane,))
        self._returns += np.where(played, result.reward, 0.0)
        self._lengths += played
        for lane in np.flatnonzero(ended).tolist():
            number, value, length = self._numbers[lane], float(self._returns[lane]), int(self._lengths[lane])
            self._returns[lane], self._lengths[lane] = 0.0, 0
            self._go_on(lane)
            if number is not None:
                yield Episode(number, value, length)
            if self._source.same_step:
                yield from self.begun(result.obs, (lane,))

    def _go_on(self, lane: int) -> None:
        """The lane's episode has ended: it is in its next one."""
        self._numbers[lane] = self._next.pop(lane) if lane in self._next else self._next_number(lane)

    def _skip(self, lane: int, obs: Arrays, reward: Array, *, ended: bool = False) -> None:
        """Give a lane's episode up and go on with its next one, in ``obs``."""
        if not self._skips:
            self._refuse(lane, obs, reward)
        self._go_on(lane)
        # One that the source has begun already may be as it should.
        if not ended and not self._begin_alone(lane, obs):
            self._refuse(lane, obs, reward)

    def _begin_alone(self, lane: int, obs: Arrays) -> bool:
        """Begin the lane's next episode in ``obs``; false if the source cannot reset one lane."""
        begun = self._source.replay(lane, self.seed(lane), np.empty(0))
        if begun is None:
            return False
        first, _ = next(begun)
        for field, values in obs.items():
            values[lane] = first[field][lane]
        return True

    def _refuse(self, lane: int, obs: Arrays, reward: Array) -> None:
        """Greedy actions hide a NaN that they come of: a policy always finds a largest logit."""
        for field, values in (*obs.items(), ("reward", reward)):
            for at in not_finite(values[lane : lane + 1]):
                value, step = values[lane][at[1:]], self._lengths[lane]
                raise BadDataError(
                    f"evaluation: {field} of lane {lane} of {self._name} is {value} at step {step} of its episode"
                )
