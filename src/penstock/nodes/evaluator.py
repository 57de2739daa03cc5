"""EvaluatorNode: plays greedy episodes with the parameters it is sent and reports how good they are.

Its episodes are its own: they touch no lane of the training run. ``play`` serves the final evaluation and
``penstock eval`` as well.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from penstock.envs.finite import not_finite, spoilt_rows
from penstock.envs.sources import display_name, open_source
from penstock.errors import BadDataError
from penstock.kernels.actions import environment_array, to_environment
from penstock.metrics.report import Report, report_sequence, write_report
from penstock.nodes.contract import Ports
from penstock.policies import PolicyGraph
from penstock.registry import load
from penstock.seeding import episode_seed
from penstock.types import Array, Arrays, BackendSpec, EnvReference, EnvSource, NoiseSpec, PolicyBackend, Spaces

__all__ = ["EVALUATION_LANE", "Episode", "EvaluatorNode", "EvaluatorSettings", "play"]

STEP_LIMIT_S = 0.05
FINISH_LIMIT_S = 2.0
"""How long a run that ends waits for an evaluation that is under way."""
EVALUATION_LANE = 1 << 20
"""Evaluation episodes are seeded as lanes from here on, which no training lane reaches."""


class Episode(NamedTuple):
    """One played episode."""

    episode_return: float
    length: int


@dataclass(frozen=True)
class EvaluatorSettings:
    """What is played, and how often."""

    env: EnvReference
    vector: bool
    ignore_obs: tuple[str, ...]
    spaces: Spaces
    policy: PolicyGraph
    backend: BackendSpec
    episodes: int
    lanes: int
    seed: int
    bad_numbers: Literal["stop", "skip"]
    """What becomes of an episode with NaN or infinity: an error, or it does not count."""
    open_limit_s: float


def play(
    source: EnvSource,
    backend: PolicyBackend,
    spaces: Spaces,
    *,
    noise: NoiseSpec,
    name: str,
    episodes: int,
    seed: int,
    bad_numbers: Literal["stop", "skip"],
) -> Iterator[Episode | None]:
    """Play greedy episodes; yields each as it ends, and ``None`` after every other vector step.

    Raises:
        BadDataError: an observation or a reward is NaN or infinite; it names environment, field, lane and step. Where
            episodes with such numbers are skipped: all were, or the source resets no lane alone.

    Lane i plays episodes i, i + lanes, ...: which episodes count is fixed beforehand, so short ones are not favoured.
    Actions are greedy: their noise has the shape that ``noise`` says, and is zero. The source stays the caller's, to be
    closed by it.
    """
    lanes = source.num_lanes
    numbers = list(range(lanes))

    def seed_of(lane: int) -> int:
        return episode_seed(seed, EVALUATION_LANE + numbers[lane], 0)

    def next_seed(lane: int) -> int:
        numbers[lane] += lanes
        return seed_of(lane)

    obs = source.reset([seed_of(lane) for lane in range(lanes)])
    spec = spaces.action_spec()
    action = np.zeros((lanes, *spec.shape), spec.dtype)
    outgoing = environment_array(spaces.action, lanes)
    explore, none = np.zeros(lanes, np.float32), np.zeros((lanes, *noise.shape), np.float32)
    returns, lengths = np.zeros(lanes), np.zeros(lanes, np.int64)
    left = [len(range(lane, episodes, lanes)) for lane in range(lanes)]
    counted = 0
    _refuse_not_finite(name, obs, np.zeros(lanes), lengths)
    while any(left):
        backend.act(obs, none, explore, {"action": action})
        to_environment(action, spaces.action, outgoing)
        result = source.step(outgoing, next_seed)
        spoilt = spoilt_rows(result.obs, result.reward)
        if spoilt and (bad_numbers == "stop" or not _begin_anew(source, result.obs, spoilt, next_seed)):
            _refuse_not_finite(name, result.obs, result.reward, lengths)
        for given_up in spoilt:
            left[given_up] = max(0, left[given_up] - 1)
            returns[given_up], lengths[given_up] = 0.0, 0
        played = ~result.reset
        played[spoilt] = False
        returns += np.where(played, result.reward, 0.0)
        lengths += played
        for lane in np.flatnonzero((result.terminated | result.truncated) & played):
            if left[lane]:
                left[lane] -= 1
                counted += 1
                yield Episode(float(returns[lane]), int(lengths[lane]))
            returns[lane], lengths[lane] = 0.0, 0
        obs = result.obs
        yield None
    if not counted:
        raise BadDataError(f"evaluation: every episode of {name} held NaN or infinity")


def _begin_anew(source: EnvSource, obs: Arrays, lanes: Sequence[int], next_seed: Callable[[int], int]) -> bool:
    """Give the episodes of these lanes up and begin the next ones in ``obs``; false if the source cannot."""
    for lane in lanes:
        begun = source.replay(lane, next_seed(lane), np.empty(0))
        if begun is None:
            return False
        first, _ = next(begun)
        for field, values in obs.items():
            values[lane] = first[field][lane]
    return True


def _refuse_not_finite(name: str, obs: Arrays, reward: Array, steps: Array) -> None:
    """Greedy actions hide a NaN that they come of: a policy always finds a largest logit."""
    for field, values in (*obs.items(), ("reward", reward)):
        for at in not_finite(values):
            raise BadDataError(
                f"evaluation: {field} of lane {at[0]} of {name} is {values[at]} at step {steps[at[0]]} of its episode"
            )


class EvaluatorNode:
    """Serves stream ``evaluations``; tells board ``evaluation`` and stream ``reports``."""

    def __init__(self, settings: EvaluatorSettings) -> None:
        self._settings = settings
        self._play: Iterator[Episode | None] | None = None
        self._source: EnvSource | None = None
        self._request = -1
        self._stopping_since = 0.0

    def open(self, ports: Ports) -> None:
        """Make the policy backend."""
        self._ports = ports
        self._requests = ports.stream_reader("evaluations")
        self._reports = ports.stream_writer("reports")
        self._board = ports.board_writer("evaluation")
        settings = self._settings
        with ports.busy("open the policy", settings.open_limit_s):
            self._backend: PolicyBackend = load(settings.backend.build)(*settings.backend.arguments)

    def ready(self) -> bool:
        """True while episodes are being played, or a request waits."""
        return self._play is not None or self._requests.ready() > 0

    def step(self) -> None:
        """Play on for a while."""
        if self._play is None:
            self._begin()
            return
        if self._ports.stopping() and self._out_of_time():
            self._ports.count("evaluations_dropped")
            self._free()
            return
        deadline = time.monotonic() + STEP_LIMIT_S
        while time.monotonic() < deadline:
            episode = next(self._play, self)
            if episode is self:
                self._end()
                return
            if isinstance(episode, Episode):
                self._episodes.append(episode)

    def close(self) -> None:
        """Close the environments of an evaluation that is under way."""
        if self._source is not None:
            self._source.close()

    def _begin(self) -> None:
        index = self._requests.take()
        if index is None:
            return
        slot = self._requests.slot(index)
        self._backend.load({spec.name: slot[spec.name] for spec in self._settings.policy.published()})
        self._update, self._steps = int(slot["update"]), int(slot["steps"])
        self._elapsed_s = float(slot["elapsed_s"])
        self._request = index
        settings = self._settings
        self._episodes: list[Episode] = []
        with self._ports.busy("open environment", settings.open_limit_s):
            lanes = min(settings.lanes, settings.episodes)
            seed = settings.seed + EVALUATION_LANE
            self._source = open_source(settings.env, settings.vector, lanes, seed=seed, ignore_obs=settings.ignore_obs)
        self._source.watch(self._ports.sign())
        self._play = play(
            self._source,
            self._backend,
            settings.spaces,
            noise=settings.policy.head.noise,
            name=display_name(settings.env),
            episodes=settings.episodes,
            seed=settings.seed,
            bad_numbers=settings.bad_numbers,
        )

    def _out_of_time(self) -> bool:
        """True once the run has been ending for longer than an evaluation may keep it."""
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > FINISH_LIMIT_S

    def _end(self) -> None:
        self._tell()
        self._free()

    def _free(self) -> None:
        """Be done with a request. Not before its report: a run waits at its end for requests that are not released."""
        self.close()
        self._play = self._source = None
        self._requests.release(self._request)

    def _tell(self) -> None:
        values = summary(self._episodes)
        slot, found = self._requests.slot(self._request), values["eval/return_mean"]
        best, since_best = float(slot["best_evaluation"]), int(slot["since_best"])
        verdict = {
            "best_evaluation": np.array(max(best, found)),
            "since_best": np.array(0 if found > best else since_best + 1),
        }
        self._board.publish(verdict, self._update)
        index = self._reports.claim(report_sequence(self._update, evaluation=True))
        if index is None:
            self._ports.count("reports_dropped")
            return
        write_report(Report(self._update, self._steps, self._elapsed_s, values), self._reports.slot(index))
        self._reports.push(index)


def summary(episodes: list[Episode]) -> Mapping[str, float]:
    """Mean and deviation of returns, mean length."""
    returns = np.array([episode.episode_return for episode in episodes])
    return {
        "eval/return_mean": float(returns.mean()),
        "eval/return_std": float(returns.std()),
        "eval/length_mean": float(np.mean([episode.length for episode in episodes])),
        "eval/episodes": float(len(episodes)),
    }
