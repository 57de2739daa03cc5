"""What a keeper reports to a slow monitor."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock.config.episode_metrics import episode_metrics
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.metrics.report import Report, read_report, report_specs
from penstock.nodes.learner.reports import Reports
from penstock.types import Array
from tests.nodes.test_keeper import EVALUATOR, Requests


class Reporting:
    """Reports of a keeper whose monitor has one slot for them.

    Args:
        metrics: as ``--episode_metrics`` names them.
    """

    def __init__(self, *metrics: str) -> None:
        specs = report_specs(10)
        self._stream = Stream(Segment.create(Stream.required(specs, 1), "test").bytes, specs, 1)
        ports: Any = SimpleNamespace(stream_writer=lambda _: Requests(self._stream))
        self._reports = Reports(ports, episode_metrics(metrics))
        self._update = 0
        self.beside: dict[str, Array] = {}
        """Further arrays of the committed record."""

    def report(self, **values: float) -> None:
        """Report the commit of one update."""
        self._update += 1
        counts = {"update": self._update, "steps": 10 * self._update, "elapsed_s": 1.0, "episodes": 0}
        arrays = {name: np.array(count) for name, count in counts.items()}
        committed = {"returns": np.zeros(100), **arrays, **self.beside}
        self._reports.add(committed, {name.replace("_", "/", 1): value for name, value in values.items()})

    def take(self) -> Report:
        """What the monitor takes next."""
        index = self._stream.take(EVALUATOR)
        assert index is not None
        report = read_report(self._stream.slot(index))
        self._stream.release(index, EVALUATOR)
        return report


def test_reports_that_found_no_slot_are_part_of_the_next_one() -> None:
    """Bytes of gradients are counted once and for all: what one report leaves out would be lost."""
    reporting = Reporting()
    reporting.report(loss_policy=1.0, exchange_bytes=100.0, replay_ratio=1.0)
    for loss, sent, ratio in ((2.0, 10.0, 2.0), (4.0, 20.0, 3.0)):
        reporting.report(loss_policy=loss, exchange_bytes=sent, replay_ratio=ratio)
    first = reporting.take()
    assert (first.update, first.values["exchange/bytes"], first.values["loss/policy"]) == (1, 100.0, 1.0)
    reporting.report(loss_policy=9.0, exchange_bytes=5.0, replay_ratio=4.0)
    second = reporting.take()
    assert (second.update, second.steps) == (4, 40)
    assert second.values == {"loss/policy": 5.0, "exchange/bytes": 35.0, "replay/ratio": 4.0, "rollout/episodes": 0.0}
    reporting.report(loss_policy=7.0, exchange_bytes=1.0)
    third = reporting.take()
    assert third.values == {"loss/policy": 7.0, "exchange/bytes": 1.0, "rollout/episodes": 0.0}


def test_a_report_has_the_episode_metrics_of_each_kind() -> None:
    reporting = Reporting("won", "unheard:max", "won:sum")
    window = {"won": np.full(100, np.nan), "unheard": np.full(100, np.nan)}
    window["won"][-4:] = [1.0, 0.0, np.nan, 1.0]
    reporting.beside = {f"episode_metric.{name}": values for name, values in window.items()}
    reporting.report(loss_policy=1.0)
    assert reporting.take().values == {
        "loss/policy": 1.0,
        "episode/won": 2 / 3,
        "episode/won:sum": 2.0,
        "rollout/episodes": 0.0,
    }
