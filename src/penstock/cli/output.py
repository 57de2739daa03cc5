"""What a command writes: lines on standard output, errors on standard error, the result of a training."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from penstock.errors import LostError, NodeError, PenstockError, StallError
from penstock.metrics.output import abandon
from penstock.registry import load

__all__ = ["INTERRUPTED", "complain", "conclude", "failure", "output_to_error", "program", "say"]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def conclude(result: Any, env: str) -> int:  # noqa: ANN401
    """Print the notes and the result of a finished or interrupted training in ``env``; return the exit code."""
    run = load("shlex:quote")(str(result.run_folder))
    for note in result.notes:
        say(note)
    if result.not_restored:
        most = load("penstock.topologies.training:ACTION_LOG_CAPACITY")
        say(
            f"{result.not_restored} lanes could not be restored and began a new episode: seed and actions do not "
            f"repeat theirs, or it was longer than {most:,} steps and has no snapshot (docs/restoring-episodes.md); "
            "all else continued exactly"
        )
    if result.interrupted and not result.resumable:
        say(f"stopped after {result.steps:,} steps, before the first checkpoint; its policy is in {run}")
        return INTERRUPTED
    if result.interrupted:
        say(f"stopped after {result.steps:,} steps; continue with: {program()} resume {run}")
        return INTERRUPTED
    lines = (
        *(() if result.evaluation is None else (load("penstock.metrics.final:evaluated")(result.evaluation),)),
        f"run folder: {result.run_folder}",
        # Games cannot be asked for episodes.
        *(() if load("penstock.envs.games:is_game")(env) else (f"evaluate:   {program()} eval {run}",)),
        f"curves:     {program()} plot {run}",
    )
    return say("\n".join(lines))


def program() -> str:
    """The command that calls this program: its name if PATH finds it, else the path that it was called by."""
    found = shutil.which("penstock") is not None or not sys.argv[0].endswith("/penstock")
    return "penstock" if found else str(load("shlex:quote")(sys.argv[0]))


def failure(error: PenstockError) -> str:
    """An error in one line, or with the node's traceback if one line does not suffice; then the notes on the run."""
    said = f"penstock: error: {error}"
    if isinstance(error, StallError):
        said = f"{error.detail.rstrip()}\npenstock: error: {error.stood}; what each node waited for stands above"
    elif isinstance(error, NodeError) and isinstance(error.plain, LostError):
        said = f"penstock: error: {error.line}"
    elif isinstance(error, NodeError) and error.line is not None:
        said = f"penstock: error: node {error.node}: {error.line.removeprefix(f'{error.node}: ')}"
    elif isinstance(error, NodeError):
        said = _failed(error)
    return "\n".join((said, *(f"penstock: {note}" for note in getattr(error, "__notes__", ()))))


def _failed(error: NodeError) -> str:
    """How a node failed: with its traceback or stacks if it left any, else in one line."""
    for sign, left in (("(most recent call last)", "traceback is"), ("(most recent call first)", "stacks are")):
        if sign in error.detail:
            return f"{error.detail.rstrip()}\npenstock: node {error.node} failed; its {left} above"
    return f"penstock: error: node {error.node} failed: {' '.join(error.detail.split())}"


def say(text: str) -> int:
    """Write to standard output and return the exit code."""
    if sys.stdout is not None:
        try:
            sys.stdout.write(text.rstrip("\n") + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the pipe has left (`| head`). That is no failure.
            abandon(sys.stdout)
        except (OSError, ValueError) as error:
            abandon(sys.stdout)
            why = getattr(error, "strerror", None) or error
            return complain(f"penstock: error: cannot write to standard output: {why}", 1)
    return 0


def complain(text: str, code: int) -> int:
    """Write to standard error, if it is open, and return ``code``."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            abandon(sys.stderr)
    return code


@contextlib.contextmanager
def output_to_error() -> Iterator[None]:
    """Send standard output to standard error within the ``with`` block, also that of processes started in it.

    The answer of a command may be JSON. What environments print and the progress of an evaluation are no part of it.
    """
    with contextlib.ExitStack() as stack:
        # Standard output or standard error may be closed.
        with contextlib.suppress(OSError):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield
