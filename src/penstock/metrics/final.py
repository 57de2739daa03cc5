"""Writes the final evaluation into a run's metrics, behind the reports of its updates, and puts it into words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from penstock.errors import RunFolderError
from penstock.metrics.episode_metrics import EVAL_EPISODE, metrics_text
from penstock.metrics.jsonl import JsonLines, read_reports
from penstock.metrics.report import EVAL_RETURN, FINAL, Report
from penstock.metrics.run_log import add_to_log
from penstock.metrics.tensorboard import TensorBoard

__all__ = ["Evaluated", "evaluated", "log_final"]


class Evaluated(Protocol):
    """Result of the greedy episodes of the final policy."""

    @property
    def mean_return(self) -> float:
        """Mean of the episodes' undiscounted returns."""
        ...

    @property
    def std_return(self) -> float:
        """Their standard deviation."""
        ...

    @property
    def mean_length(self) -> float:
        """Mean number of steps an episode."""
        ...

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        ...

    @property
    def returns(self) -> Sequence[float]:
        """Return of each episode, in the order of their seeds."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Label of each episode metric -> its mean, sum, ..."""
        ...

    @property
    def remark(self) -> str:
        """Why fewer episodes were played than asked for, in a few words; mostly empty."""
        ...


def evaluated(evaluation: Evaluated) -> str:
    """The line on an evaluation: return, number of episodes, steps, episode metrics."""
    spread = f"{evaluation.mean_return:,.1f} ± {evaluation.std_return:,.1f}"
    remark = f" ({evaluation.remark})" if evaluation.remark else ""
    steps = f"{evaluation.mean_length:,.1f} steps each"
    metrics = f", {metrics_text(evaluation.metrics, ', ')}" if evaluation.metrics else ""
    return f"return {spread} over {evaluation.episodes} greedy episodes, {steps}{metrics}{remark}"


def log_final(folder: Path, evaluation: Evaluated, update: int, steps: int, time_s: float, *, axis: str) -> None:
    """Add the final evaluation to the metrics, TensorBoard and the log, unless the same values are there already.

    Args:
        folder: the run folder.
        evaluation: of the final policy.
        update: of the run, so far.
        steps: of the run, so far.
        time_s: of the run, so far.
        axis: one of `penstock.metrics.tensorboard.AXES`.

    Raises:
        RunFolderError: the metrics cannot be written.
    """
    values = {
        EVAL_RETURN: evaluation.mean_return,
        "eval/return_std": evaluation.std_return,
        "eval/length_mean": evaluation.mean_length,
        "eval/episodes": float(evaluation.episodes),
        FINAL: 1.0,
        **{f"{EVAL_EPISODE}{label}": value for label, value in evaluation.metrics.items()},
    }
    try:
        if any(report.update == update and values.items() <= report.values.items() for report in read_reports(folder)):
            return
        sinks = (JsonLines(folder, update), TensorBoard(folder, axis))
        for sink in sinks:
            sink.write(Report(update, steps, time_s, values, returns=evaluation.returns))
            sink.close()
        add_to_log(folder, evaluated(evaluation))
    except OSError as error:
        raise RunFolderError(f"cannot write the metrics in {folder}: {error.strerror or error}") from error
