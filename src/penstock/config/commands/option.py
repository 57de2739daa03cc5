"""An option of a command as a field of its dataclass: default, help text and bounds; and options that several have.

Names no command: those stand in the other files here.
"""

from dataclasses import field
from typing import Any

from penstock.config.fields import Value
from penstock.config.schema import RunConfig
from penstock.config.settings.group import setting

__all__ = ["checkpoint_option", "log_dir_option", "option", "run_option", "setting_option"]


def option(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    """A field with a default and a help text. ``bounds`` say what it takes: ``min``, ``pattern``, ``form``, ..."""
    return setting(default, text, **bounds)


def setting_option(name: str) -> Any:  # noqa: ANN401
    """An option that a run has as a setting, in the same words and with the same bounds and default."""
    return field(default=getattr(RunConfig, name), metadata=RunConfig.__dataclass_fields__[name].metadata)


def checkpoint_option() -> Any:  # noqa: ANN401
    """The checkpoint of a run that a command uses."""
    text = (
        "checkpoint to use: its name, its update number, best or latest; left out: the latest. best has the highest "
        "return in evaluations during the run (--eval_interval), or without these in training episodes"
    )
    return field(default=None, metadata={"help": text, "form": "the name or number of a checkpoint"})


def run_option() -> Any:  # noqa: ANN401
    """The run that a command is about: its first argument, without a flag."""
    text = "run folder: its path, its name under --log_dir, or latest"
    return field(metadata={"help": text, "positional": True, "pattern": r"(?s).+", "form": "the folder of a run"})


def log_dir_option() -> Any:  # noqa: ANN401
    """The folder that the commands of runs look into."""
    return option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")
