"""Reports of a keeper's commits, with the metrics of their updates, sent to the monitor. Commits and writes nothing."""

from collections.abc import Mapping, Sequence

from penstock.config.episode_metrics import EpisodeMetric
from penstock.metrics.episode_metrics import EPISODE, metrics_in, reported
from penstock.metrics.report import (
    EPISODES,
    RETURN,
    RETURN_WINDOW,
    SHAPED_RETURN,
    Report,
    report_sequence,
    write_report,
)
from penstock.metrics.tally import Tally
from penstock.nodes.contract import Ports
from penstock.nodes.learner.row_shares import RowShares
from penstock.nodes.learner.work import Work
from penstock.types import Arrays

__all__ = ["Reports"]


class Reports:
    """Sends a report of each commit. If no slot is free, the report is kept.

    The next report replaces the kept one, and then stands for both of them.

    Args:
        ports: the keeper's.
        metrics: what is reported of the numbers in the infos of episodes.
        shares: finds how evenly environment processes give rows; ``None``: they always do.
    """

    def __init__(self, ports: Ports, metrics: Sequence[EpisodeMetric] = (), shares: RowShares | None = None) -> None:
        self._ports = ports
        self._metrics = metrics
        self._shares = shares
        self._stream = ports.stream_writer("reports")
        self._unsent: Report | None = None
        """The report of the last commit, if no slot was free for it."""
        self._tally = Tally()
        """The metrics of all updates since the last report that was sent."""
        self._episodes_told = 0
        """Training episodes whose returns were reported."""

    def start(self, committed: Arrays) -> None:
        """Begin after this commit: neither the returns of its episodes nor its rows are reported again."""
        self._episodes_told = int(committed["episodes"])
        if self._shares is not None:
            self._shares.start(committed)

    def has(self, update: int) -> bool:
        """True while a report of this update, of this life or an earlier one, is with the monitor.

        False again once the monitor has released it. The monitor drops a second report of the same update.
        """
        return report_sequence(update) in self._stream.written()

    def add(self, committed: Arrays, metrics: Mapping[str, float]) -> None:
        """Report a commit, and the metrics of its update."""
        self._tally.add(metrics)
        values = self._tally.values()
        count = min(int(committed["episodes"]), RETURN_WINDOW)
        if count:
            values[RETURN] = float(committed["returns"][-count:].mean())
            if "shaped_returns" in committed:
                values[SHAPED_RETURN] = float(committed["shaped_returns"][-count:].mean())
            values["rollout/length_mean"] = float(committed["lengths"][-count:].mean())
        found = reported(self._metrics, metrics_in(committed))
        values |= {f"{EPISODE}{label}": value for label, value in found.items()}
        values[EPISODES] = float(committed["episodes"])
        if self._shares is not None:
            values |= self._shares.add(committed)
        self._unsent = Report(
            int(committed["update"]),
            int(committed["steps"]),
            float(committed["elapsed_s"]),
            values,
            returns=self._untold_returns(committed),
        )
        self._send()

    def end(self) -> Work:
        """Wait until there is a slot for the last report, or the run stops."""
        if self._unsent is not None:
            yield lambda: self._stream.free() > 0 or self._ports.stopping()
            self._send()
        if self._unsent is not None:
            self._ports.count("reports_dropped")

    def _send(self) -> None:
        """Send the report that is not sent yet, if a slot is free."""
        report = self._unsent
        index = None if report is None else self._stream.claim(report_sequence(report.update))
        if report is None or index is None:
            return
        write_report(report, self._stream.slot(index))
        self._stream.push(index)
        self._unsent = None
        self._tally.clear()
        self._episodes_told = int(report.values[EPISODES])

    def _untold_returns(self, committed: Arrays) -> list[float]:
        """Returns of the latest training episodes that no report of this life holds yet."""
        count = min(int(committed["episodes"]) - self._episodes_told, RETURN_WINDOW)
        found: list[float] = committed["returns"][RETURN_WINDOW - count :].tolist()
        return found
