"""The texts of ``penstock --help`` and ``penstock COMMAND --help``. ``config/help.py`` lists the flags."""

import shutil
from collections.abc import Mapping, Sequence

from penstock.cli.commands import Command
from penstock.registry import load

__all__ = ["command_help", "program_help"]


_FIRST = {
    "train": "Most runs need --env, and --algo or --preset. Every flag has a default.\n"
    "penstock train --algo NAME --help lists the flags of another algorithm than ppo.\n\n",
}
"""Command -> what to know before its flags."""


def program_help(parts: Mapping[str, Mapping[str, Command]]) -> str:
    """What penstock is, and its commands.

    Args:
        parts: title -> the commands below it, by their names.
    """
    lines = []
    for title, commands in parts.items():
        lines += [title]
        lines += [f"  {name:<13}{command.text}\n               {command.example}" for name, command in commands.items()]
        lines += [""]
    return "\n".join(
        (
            "penstock trains reinforcement-learning policies in parallel, and serves them.",
            "",
            "usage: penstock COMMAND [--name value ...]",
            "",
            *lines,
            "latest stands for the newest run in ./logs. Any other run is named by its folder or the folder's name.",
            "penstock COMMAND --help lists the flags of a command. penstock --version prints the version.",
        )
    )


def command_help(name: str, command: Command, argv: Sequence[str]) -> str:
    """What a command does, and its flags; ``argv`` may name an algorithm, whose settings are listed too."""
    usage = f"usage: penstock {name} {command.takes}".rstrip()
    head = f"{usage}\n\n{command.text}, for example: {command.example}\n\n"
    head += _FIRST.get(name, "")
    width = shutil.get_terminal_size().columns
    body = ""
    if name in {"train", "draw"}:
        body = load(f"penstock.config.help:{name}_help")(argv, width)
    elif name == "resume":
        body = load("penstock.config.help:resume_help")(width)
    elif command.options is not None:
        options = load(f"penstock.config.commands:{command.options}")
        body = load("penstock.config.help:options_help")(options, width)
    return (head + body).rstrip()
