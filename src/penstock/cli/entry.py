"""Runs a command line: finds the command, and turns errors into lines and exit codes."""

import atexit
import signal
import sys
from collections.abc import Sequence

from penstock import __version__
from penstock.cli.commands import COMMANDS, PARTS
from penstock.cli.help import command_help, program_help
from penstock.cli.output import INTERRUPTED, complain, failure, say
from penstock.errors import ConfigError, PenstockError, UsageError, nearest

__all__ = ["main"]

_HELP = frozenset({"-h", "--help"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code: 0, 1 for a failure, 2 for a mistake of the user, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A SIGINT that comes while Python shuts down would replace the exit code. So it is ignored from then on.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale cannot show must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        return _dispatch(arguments)
    except UsageError as error:
        return complain(failure(error), 2)
    except PenstockError as error:
        return complain(failure(error), 1)
    except KeyboardInterrupt as interrupt:
        if str(interrupt):
            say(str(interrupt))
        return INTERRUPTED


def _dispatch(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in _HELP:
        return say(program_help(PARTS))
    if name in {"-V", "--version"}:
        return say(f"penstock {__version__}")
    if name not in COMMANDS:
        raise ConfigError(f"unknown command {name!r}{nearest(name, COMMANDS) or '; penstock --help lists them'}")
    rest = arguments[1:]
    if _HELP & set(rest):
        return say(command_help(name, COMMANDS[name], rest))
    return COMMANDS[name].call(rest)
