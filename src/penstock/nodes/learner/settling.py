"""Settling: applies the gradients that learners hand on, each once, unless it is too old. Commits nothing."""

import numpy as np

from penstock.metrics.report import SENT_BYTES
from penstock.nodes.contract import Ports
from penstock.nodes.learner.gradient_slot import gradients_in, step_metrics_in
from penstock.nodes.learner.losses import lag_values, loss_values, refuse_bad_losses
from penstock.registry import compression_of
from penstock.types import Arrays
from penstock.updates.contract import Applier
from penstock.updates.settings import UpdaterSettings

__all__ = ["Settling"]


class Settling:
    """Counts in the next commit record which gradients are settled.

    Args:
        applier: steps the state.
        updater: settings of the learners' updaters.
        max_lag: a gradient is dropped and counted if its parameters are older than this many gradient steps.
        ports: of the node.
        work_limit_s: longest time of a gradient step.
    """

    def __init__(
        self, applier: Applier, updater: UpdaterSettings, max_lag: float, ports: Ports, work_limit_s: float
    ) -> None:
        self._applier = applier
        self._policy = updater.spec.policy
        self._shared = updater.spec.shared()
        self._compression = compression_of(updater.compress)
        self._max_lag = max_lag
        self._ports = ports
        self._open_limit_s = work_limit_s
        self._lags: list[int] = []
        self._metrics: list[dict[str, float]] = []
        self._sent = 0

    @staticmethod
    def settled(slot: Arrays, record: Arrays) -> bool:
        """True if an earlier life has settled these gradients."""
        return int(slot["step"]) <= int(record["settled"][int(slot["learner"])])

    def settle(self, slot: Arrays, new: Arrays, progress: float) -> bool:
        """Apply one learner's gradients and count that in ``new``, a commit record. False if they are too old.

        Raises:
            BadDataError: a loss is infinite or NaN.
        """
        learner = int(slot["learner"])
        new["settled"][learner] = slot["step"]
        self._sent += int(slot["sent"])
        lag = int(new["applied"] - slot["version"])
        if lag > self._max_lag:
            new["too_old"] += 1
            return False
        metrics = step_metrics_in(slot)
        refuse_bad_losses(metrics, int(new["update"]) + 1, self._policy)
        self._lags.append(lag)
        self._metrics.append(metrics)
        with self._ports.busy("gradient step", self._open_limit_s):
            self._applier.apply(gradients_in(slot, self._shared, self._compression), progress)
        new["applied"] += 1
        return True

    def means(self) -> dict[str, float]:
        """The means of the metrics of all gradients since the last call of `values`."""
        metrics = self._metrics
        names = dict.fromkeys(name for one in metrics for name in one)
        return {name: float(np.mean([one[name] for one in metrics if name in one])) for name in names}

    def values(self, record: Arrays) -> dict[str, float]:
        """The metrics of all gradients since the last call, by their names in a report."""
        lags, means, sent = self._lags, self.means(), self._sent
        self._lags, self._metrics, self._sent = [], [], 0
        counts = {f"gradients/{name}": float(record[name]) for name in ("applied", "too_old")}
        return loss_values(means) | lag_values("gradients", lags) | counts | {SENT_BYTES: float(sent)}
