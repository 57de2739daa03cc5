"""EvaluatorNode: plays greedy episodes with the parameters that the keeper sends, and reports their returns.

It plays the validation episodes, the same for all evaluations of a run. They are neither training episodes
nor episodes of the final evaluation.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.config.episode_metrics import EpisodeMetric
from penstock.errors import BadDataError
from penstock.metrics.episode_metrics import EVAL_EPISODE, reported
from penstock.metrics.report import Report, report_sequence, write_report
from penstock.nodes.contract import STEP_LIMIT_S, Ports
from penstock.nodes.evaluation.episodes import Episode, PlaySettings, play
from penstock.seeding import VALIDATION_LANE, validation_seed
from penstock.types import EnvSource

__all__ = ["EvaluatorNode", "EvaluatorSettings", "summary"]

FINISH_LIMIT_S = 2.0
"""Seconds that an ending run waits for an evaluation that has begun."""
REPORT_LIMIT_S = 60.0
"""Seconds that an ending run waits for the report of an evaluation that has ended, while the disk is slow."""


@dataclass(frozen=True)
class EvaluatorSettings:
    """Which episodes are played, and how."""

    play: PlaySettings
    episodes: int
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    """What is reported of the numbers that are read in the last infos of episodes."""


class EvaluatorNode:
    """Reads stream ``evaluations``; writes board ``evaluation`` and stream ``reports``."""

    def __init__(self, settings: EvaluatorSettings) -> None:
        self._settings = settings
        self._play: Iterator[Episode | None] | None = None
        self._source: EnvSource | None = None
        self._request = -1
        self._unsent: Report | None = None
        """The report of an evaluation that has ended, until a slot is free for it."""
        self._stopping_since = 0.0

    def open(self, ports: Ports) -> None:
        """Make the policy backend."""
        self._ports = ports
        self._requests = ports.stream_reader("evaluations")
        self._reports = ports.stream_writer("reports")
        self._board = ports.board_writer("evaluation")
        played = self._settings.play
        with ports.busy("open the policy", played.work_limit_s):
            self._backend = played.make_backend()

    def ready(self) -> bool:
        """True while episodes are being played, a report can be sent, or a request is waiting."""
        if self._unsent is not None:
            return self._reports.free() > 0 or self._stopping_s() > REPORT_LIMIT_S
        return self._play is not None or self._requests.ready() > 0

    def step(self) -> None:
        """Play for up to ``STEP_LIMIT_S``."""
        if self._unsent is not None:
            self._send(self._unsent)
            return
        if self._play is None:
            self._begin()
            return
        if self._stopping_s() > FINISH_LIMIT_S:
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
                # A learner may wait for the verdict. Then these episodes are the only progress of the run.
                self._ports.count("episodes_evaluated")
                if not episode.spoilt:
                    self._episodes.append(episode)

    def close(self) -> None:
        """Close the environments of an evaluation that has begun."""
        if self._source is not None:
            # The node's work is saved by now. A simulator that cannot close is no failure of the run.
            with contextlib.suppress(Exception):
                self._source.close()

    def _begin(self) -> None:
        index = self._requests.take()
        if index is None:
            return
        slot = self._requests.slot(index)
        self._backend.load({spec.name: slot[spec.name] for spec in self._settings.play.policy.published()})
        self._update, self._steps = int(slot["update"]), int(slot["steps"])
        self._elapsed_s = float(slot["elapsed_s"])
        self._request = index
        played, episodes = self._settings.play, self._settings.episodes
        self._episodes: list[Episode] = []
        with self._ports.busy("open environment", played.work_limit_s):
            self._source = played.open_source(min(played.lanes, episodes), played.seed + VALIDATION_LANE)
        self._source.take_version(self._update)
        lanes = self._source.num_lanes
        self._source.watch(self._ports.sign())
        # The episodes of each lane are fixed beforehand, so that short ones are not favoured.
        numbers = [iter(range(lane, episodes, lanes)) for lane in range(lanes)]
        self._play = play(
            played,
            self._source,
            self._backend,
            seed_of=partial(validation_seed, played.seed),
            next_number=lambda lane: next(numbers[lane], None),
        )

    def _stopping_s(self) -> float:
        """For how many seconds the run has been ending; 0 while it goes on."""
        if not self._ports.stopping():
            return 0.0
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since

    def _end(self) -> None:
        if not self._episodes:
            raise BadDataError(f"evaluation: every episode of {self._settings.play.name} held NaN or infinity")
        values = summary(self._episodes, self._settings.play.episode_metrics, self._settings.episode_metrics)
        self._publish_verdict(values["eval/return_mean"])
        returns = [episode.episode_return for episode in self._episodes]
        self._send(Report(self._update, self._steps, self._elapsed_s, values, returns=returns))

    def _publish_verdict(self, found: float) -> None:
        slot = self._requests.slot(self._request)
        best, since_best = float(slot["best_evaluation"]), int(slot["since_best"])
        verdict = {
            "best_evaluation": np.array(max(best, found)),
            "since_best": np.array(0 if found > best else since_best + 1),
        }
        self._board.publish(verdict, self._update)

    def _send(self, report: Report) -> None:
        """Send the report. If no slot is free, it waits for one: without it the best checkpoint may stay unknown."""
        self._unsent = report
        index = self._reports.claim(report_sequence(report.update, evaluation=True))
        if index is None and self._stopping_s() <= REPORT_LIMIT_S:
            return
        if index is None:
            self._ports.count("reports_dropped")
        else:
            write_report(report, self._reports.slot(index))
            self._reports.push(index)
        self._unsent = None
        self._free()

    def _free(self) -> None:
        """Release the request, after its report is sent: at its end a run waits for requests that are not released."""
        self.close()
        self._play = self._source = None
        self._requests.release(self._request)


def summary(episodes: list[Episode], names: Sequence[str], metrics: Sequence[EpisodeMetric]) -> Mapping[str, float]:
    """Mean and standard deviation of the returns, mean length and number of episodes, and the episode metrics.

    Args:
        episodes: at least one.
        names: of the numbers in their infos, in the order in which an episode has them.
        metrics: what is reported of these.
    """
    returns = np.array([episode.episode_return for episode in episodes])
    numbers = zip(names, zip(*(episode.metrics for episode in episodes), strict=True), strict=True)
    found = reported(metrics, {name: np.array(of_all, np.float64) for name, of_all in numbers})
    return {
        "eval/return_mean": float(returns.mean()),
        "eval/return_std": float(returns.std()),
        "eval/length_mean": float(np.mean([episode.length for episode in episodes])),
        "eval/episodes": float(len(episodes)),
        **{f"{EVAL_EPISODE}{label}": value for label, value in found.items()},
    }
