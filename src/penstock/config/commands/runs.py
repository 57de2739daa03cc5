"""Options of the commands that look at runs, and that keep or remove their versions. None of these commands learns."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.config.commands.option import checkpoint_option, log_dir_option, option, run_option, setting_option
from penstock.config.schema import RunConfig
from penstock.registry import RUNTIMES, texts_of

__all__ = [
    "CompareOptions",
    "EvalOptions",
    "MetricsOptions",
    "ModelsOptions",
    "PlotOptions",
    "TraceOptions",
    "WatchOptions",
]


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of ``penstock eval``."""

    run: str = run_option()
    episodes: int = option(RunConfig.eval_episodes, "greedy episodes to play", min=1)
    checkpoint: str | None = checkpoint_option()
    seed: int | None = option(None, "seed of the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    keep: str | None = option(
        None,
        "keep the episodes in this folder, one file for each: for penstock retrain, and for --demonstrations of train",
        form="a folder",
    )
    num_workers: int | None = option(
        None,
        "most processes that play; episodes depend on it only where environments reset themselves (EnvPool, "
        "PettingZoo); left out: as many as the run has environment processes, but no more than one for each core of "
        "this machine, or of the cluster",
        min=1,
    )
    runtime: str | None = option(
        None,
        f"what plays. {texts_of(RUNTIMES)}; left out: ray with --distributed True, else the runtime of "
        "the run, or local if that is ray",
        choices=RUNTIMES.names(),
    )
    distributed: bool = setting_option("distributed")
    address: str | None = setting_option("address")
    json: bool = option(False, "print the result as one JSON object")
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """Options of ``penstock watch``."""

    run: str = run_option()
    out: str | None = option(
        None,
        "animated picture to write; left out: episodes.gif in the run folder",
        pattern=r"(?s).+\.gif",
        form="a file that ends in .gif",
    )
    episodes: int = option(1, "greedy episodes to show, one after the other", min=1, max=1000)
    seconds: float = option(
        30.0, "longest time that the picture lasts; an episode that is longer is cut", min=0.1, max=300.0
    )
    window: bool = option(False, "let the environment open its own window, on this machine, and write no picture")
    checkpoint: str | None = checkpoint_option()
    seed: int | None = option(None, "seed of the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    log_dir: str = log_dir_option()


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
    json: bool = option(False, "print the comparison as one JSON object")
    plot: str | None = option(
        None,
        "also draw the comparison into this file",
        pattern=r"(?s).+\.(png|svg|pdf)",
        form="a file that ends in .png, .svg or .pdf",
    )
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """Options of ``penstock metrics``."""

    run: str = run_option()
    metric: str | None = field(
        default=None,
        metadata={
            "help": "one metric, such as loss/policy; left out: all (docs/metrics.md explains them)",
            "positional": True,
            "pattern": r"\S(.*\S)?",
            "form": "the name of a metric",
        },
    )
    kind: Literal["last", "mean", "sum", "min", "max", "quantile"] | None = option(
        None, "the number to print for all lines of a metric; left out: last, mean, min and max"
    )
    q: float | None = option(
        None, "with --kind quantile: 0.5 for the median, 0.9 for the 90th percentile", min=0, max=1
    )
    last: int | None = option(None, "only this many of the latest lines of each metric; left out: all", min=1)
    level: Literal["framework", "algorithm", "task"] | None = option(
        None,
        "only metrics of this level. framework: what the machine and the nodes do; algorithm: what was learned; task: "
        "how well it goes",
    )
    json: bool = option(False, "print the numbers as one JSON object")
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Options of ``penstock plot``."""

    run: str | None = field(
        default=None,
        metadata={
            "help": "run to draw: its path, its name under --log_dir, or latest; left out: all runs of --log_dir",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "the folder of a run",
        },
    )
    log_dir: str = option(RunConfig.log_dir, "one run folder, or a folder of runs to compare", form="a folder")
    save_fig: bool = option(True, "write curves.png into that folder; False opens a window instead")
    smooth: float = option(
        0.03,
        "width of the moving average of a bold line, as a share of the curve; pale lines show the measured values",
        min=0.0,
        max=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options of ``penstock trace``."""

    run: str = run_option()
    out: str | None = option(
        None, "file to write; left out: trace.json in the run folder", pattern=r"(?s).+", form="a file"
    )
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """Options of ``penstock models``. Without any, it lists the versions."""

    run: str = run_option()
    pin: str | None = option(None, "keep this version, whatever the rules of retention say", form="a version")
    unpin: str | None = option(None, "leave this version to the rules of retention again", form="a version")
    clone: str | None = option(
        None, "make a new run of this version, beside the run; penstock resume continues it", form="a version"
    )
    prune: int | None = option(
        None,
        "remove all versions but the latest ones (this many), the best, pinned ones, and those of --keep_every",
        min=1,
    )
    keep_every: int = option(0, "with --prune: also keep versions whose update is a multiple of this", min=0)
    json: bool = option(False, "print the versions and the lineage as one JSON object")
    log_dir: str = log_dir_option()
