"""Options of the commands that learn: train, resume, retrain and tune. Settings of a run are not among them."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.config.commands.option import checkpoint_option, log_dir_option, option, run_option

__all__ = ["ResumeOptions", "RetrainOptions", "TrainOptions", "TuneOptions"]

RUN_NAME_PATTERN = r"(?!latest$)(?!.*\.partial$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
"""Names that a user gives to runs. ``latest`` stands for any run, and ``.partial`` ends what is not finished. A name
that begins with ``-`` would be a flag of the next command."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``penstock train``, besides the settings of the run."""

    run_name: str | None = option(
        None,
        "name of the run, and of its folder in --log_dir; refused if there is such a run; left out: environment, "
        "algorithm and time",
        pattern=RUN_NAME_PATTERN,
        form="letters, digits, _, . and -, such as pendulum-1",
    )
    resume_if_exists: bool = option(
        False,
        "if there is a run of this --run_name, go on with it, as penstock resume does with the same settings; a run "
        "without a checkpoint is removed and begins anew. So one command starts a run, and goes on with it",
    )


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of ``penstock resume``, besides the run's settings that may change."""

    run: str = run_option()
    checkpoint: str | None = checkpoint_option()
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class RetrainOptions:
    """Options of ``penstock retrain``."""

    run: str = run_option()
    experience: str = field(
        metadata={
            "help": "folder of kept episodes: that of a policy below the folder of penstock serve --collect, or the "
            "folder episodes of a run (--keep_episodes)",
            "pattern": r"(?s).+",
            "form": "a folder",
        }
    )
    every: str | None = option(
        None,
        "look for new episodes again after this time, such as 90s, 30m, 1h or 1d; left out: look once",
        pattern=r"(?!0+(\.0+)?[smhd])[0-9]+(\.[0-9]+)?[smhd]",
        form="a time such as 90s, 30m, 1h or 1d",
    )
    drift: float = option(
        0.0,
        "learn only if new episodes differ at least this much from those already learned from: the largest "
        "Kolmogorov-Smirnov distance of the reward or of a number of the observation, such as 0.1; 0: whenever there "
        "is a new episode",
        min=0.0,
        max=1.0,
    )
    held_out: float = option(
        0.2,
        "share of the episodes that nothing is learned from, and that a new version is judged by",
        min=0.01,
        max=0.5,
    )
    epochs: float = option(10.0, "how often each step is learned from, on average", min=0.01)
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of ``penstock tune``, besides the settings of every run."""

    search: tuple[str, ...] | None = option(
        None,
        "what to search, such as lr=loguniform:1e-5:1e-2 or mini_batch_size=choice:64,128,256; also uniform:LOW:HIGH "
        "and int:LOW:HIGH; for several settings, repeat the flag",
        form="NAME=KIND:VALUES",
        adds=True,
    )
    samples: int = option(10, "number of trials", min=1)
    scheduler: Literal["random", "asha", "pbt"] = option(
        "asha",
        "random: every trial goes on to its end; asha: weak trials are stopped early; pbt: weak trials go on as "
        "changed copies of strong ones",
    )
    searcher: Literal["random", "optuna"] = option(
        "random",
        "how the settings of the next trial are chosen. random: at random; optuna: by Optuna, from the returns of the "
        "trials before (pip install 'penstock[optuna]')",
    )
    at_once: int | None = option(None, "most trials that run at once; left out: as many as there are cores", min=1)
    name: str = option("tune", "folder of the trials, in --log_dir", pattern=r"[\w.-]+", form="a name")
    address: str | None = option(
        None, "the Ray cluster that runs the trials", pattern=r"\S+", form="auto, local or host:port"
    )
