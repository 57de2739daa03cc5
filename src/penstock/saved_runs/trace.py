"""Writes the trace of a run as a file for a trace viewer. The run may still be going on."""

from pathlib import Path

from penstock.errors import RunFolderError
from penstock.metrics.chrome_trace import describe, write_chrome_trace
from penstock.metrics.trace import read_timeline
from penstock.paths import expanded
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["write_trace"]


def write_trace(run: Path, out: str | None) -> str:
    """Write a run's trace as Chrome trace JSON.

    Args:
        run: the run folder.
        out: path of the file; ``None``: ``trace.json`` in the run folder.

    Returns:
        A summary of the trace in a few lines.

    Raises:
        RunFolderError: the run kept no trace, the trace is empty, or ``out`` cannot be written.
    """
    folder = RunFolder.open(run)
    if not folder.trace.is_dir():
        raise RunFolderError(f"run {folder.name} kept no trace; penstock train ... --trace True keeps one")
    timeline = read_timeline(folder.trace)
    if timeline is None:
        raise RunFolderError(f"the trace of run {folder.name} is empty: the run ended before any node did something")
    path = folder.path / "trace.json" if out is None else expanded(out)
    try:
        count = write_chrome_trace(timeline, path)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}; give another --out") from error
    seconds = f"{timeline.end / 1e9:,.1f} s, {count:,} spans"
    return f"{describe(timeline)}\n{seconds}: {path} (https://ui.perfetto.dev opens it)"
