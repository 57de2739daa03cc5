"""The options of each command besides ``train``, as frozen dataclasses. Flags and help are derived from them."""

from dataclasses import dataclass, field
from typing import Any

from penstock.config.fields import Value

__all__ = ["CompareOptions", "EvalOptions", "PlotOptions", "ResumeOptions", "TraceOptions"]

_LOGS = "./logs"


def _option(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    return field(default=default, metadata={"help": text, **bounds})


def _checkpoint() -> Any:  # noqa: ANN401
    text = (
        "checkpoint to use: its name, its update number, best or latest; left out: the latest. best has the highest "
        "return in evaluations during the run (--eval_interval), or without these in training episodes"
    )
    return field(default=None, metadata={"help": text, "form": "the name or number of a checkpoint"})


def _run() -> Any:  # noqa: ANN401
    text = "run folder: its path, its name under --log_dir, or latest"
    return field(metadata={"help": text, "positional": True, "pattern": r"(?s).+", "form": "the folder of a run"})


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of ``penstock resume``, besides the run's settings that may change."""

    run: str = _run()
    checkpoint: str | None = _checkpoint()
    log_dir: str = _option(_LOGS, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of ``penstock eval``."""

    run: str = _run()
    episodes: int = _option(100, "greedy episodes to play", min=1)
    checkpoint: str | None = _checkpoint()
    seed: int | None = _option(None, "seed of the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    json: bool = _option(False, "print the result as one JSON object")
    log_dir: str = _option(_LOGS, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of ``penstock compare``."""

    sides: tuple[str, ...] = field(
        metadata={
            "help": "two or more; each is a run folder, its name under --log_dir, latest, several of them separated by "
            "commas, or a folder of runs; the runs of one side are one algorithm with several seeds",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "runs",
        }
    )
    json: bool = _option(False, "print the comparison as one JSON object")
    plot: str | None = _option(
        None,
        "also draw the comparison into this file",
        pattern=r"(?s).+\.(png|svg|pdf)",
        form="a file that ends in .png, .svg or .pdf",
    )
    log_dir: str = _option(_LOGS, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options of ``penstock trace``."""

    run: str = _run()
    out: str | None = _option(
        None, "file to write; left out: trace.json in the run folder", pattern=r"(?s).+", form="a file"
    )
    log_dir: str = _option(_LOGS, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Options of ``penstock plot``."""

    log_dir: str = _option(_LOGS, "one run folder, or a folder of runs to compare", form="a folder")
    save_fig: bool = _option(True, "write curves.png into that folder; False opens a window instead")
    smooth: float = _option(
        0.03,
        "width of the moving average of a bold line, as a share of the curve; pale lines show the measured values",
        min=0.0,
        max=0.5,
    )
