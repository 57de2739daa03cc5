"""The command line: argv -> config -> call."""

from penstock.cli.commands import COMMANDS
from penstock.cli.entry import main

__all__ = ["COMMANDS", "main"]
