"""What each command besides ``train`` takes, as frozen dataclasses; flags and help are derived from them."""

from dataclasses import dataclass, field
from typing import Any

from penstock.config.fields import Value

__all__ = ["EvalOptions", "PlotOptions", "ResumeOptions", "TraceOptions"]

_LOGS = "./logs"


def _option(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    return field(default=default, metadata={"help": text, **bounds})


def _checkpoint() -> Any:  # noqa: ANN401
    text = (
        "name or update number of a checkpoint, best or latest; left out: the latest. best: by its evaluation, where "
        "checkpoints were evaluated on the way, else by the training episodes before it"
    )
    return field(default=None, metadata={"help": text})


def _run() -> Any:  # noqa: ANN401
    text = "folder of a run, its name under --log_dir, or latest"
    return field(metadata={"help": text, "positional": True, "pattern": r"(?s).+", "form": "the folder of a run"})


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """``penstock resume``, beside the run's settings that may change."""

    run: str = _run()
    checkpoint: str | None = _checkpoint()
    log_dir: str = _option(_LOGS, "where run folders are")


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """``penstock eval``."""

    run: str = _run()
    episodes: int = _option(100, "greedy episodes to play", min=1)
    checkpoint: str | None = _checkpoint()
    seed: int | None = _option(None, "seeds the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    json: bool = _option(False, "print one JSON object")
    log_dir: str = _option(_LOGS, "where run folders are")


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """``penstock trace``."""

    run: str = _run()
    out: str | None = _option(None, "file to write; left out: trace.json in the run folder", pattern=r"(?s).+")
    log_dir: str = _option(_LOGS, "where run folders are")


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """``penstock plot``."""

    log_dir: str = _option(_LOGS, "one run folder, or a folder of runs, which are compared")
    save_fig: bool = _option(True, "write a PNG beside what it shows; False opens a window instead")
    smooth: float = _option(
        0.03,
        "share of a curve that each point of a bold line averages over; pale lines are as measured",
        min=0.0,
        max=0.5,
    )
