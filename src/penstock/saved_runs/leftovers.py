"""What a run that failed, or that was interrupted at once, leaves on the disk, and whether it can go on."""

import contextlib
import shlex

from penstock.config.whole import Config
from penstock.errors import RunFolderError
from penstock.paths import expanded
from penstock.saved_runs.card import write_card
from penstock.saved_runs.checkpoints import last_good, list_checkpoints
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["is_unbegun", "remove_if_unbegun", "run_to_resume", "write_failed_card"]


def is_unbegun(folder: RunFolder) -> bool:
    """True while a run has no checkpoint and an empty log."""
    log = folder.metrics_path
    return not list_checkpoints(folder.path) and not (log.exists() and log.stat().st_size)


def remove_if_unbegun(folder: RunFolder) -> None:
    """Remove the folder of a run that was interrupted or refused before it had a checkpoint or a line in its log."""
    with contextlib.suppress(OSError):
        if is_unbegun(folder):
            remove_folder(folder.path)


def run_to_resume(log_dir: str, name: str) -> RunFolder | None:
    """The run of this name in ``log_dir``, if it can go on. A run without a checkpoint cannot, and is removed.

    Raises:
        RunFolderError: another process writes the run, or it cannot be removed.
    """
    folder = RunFolder(expanded(log_dir) / name)
    if not folder.config_path.is_file():
        return None
    if list_checkpoints(folder.path):
        return folder
    # Claimed, so that no run is removed that has just begun and has no checkpoint yet.
    with folder.claim():
        if list_checkpoints(folder.path):
            return folder
        try:
            remove_folder(folder.path)
        except OSError as error:
            raise RunFolderError(f"cannot remove {folder.path}: {error.strerror or error}") from error
    return None


def write_failed_card(folder: RunFolder, config: Config, failure: str) -> str:
    """Write the card of a run that failed.

    Args:
        folder: of the run.
        config: resolved.
        failure: one line on why the run failed.

    Returns:
        One line for the user: the last good checkpoint and the command that continues from it, or the run folder.
    """
    good = last_good(folder.path)
    steps, update = (good.manifest["steps"], good.manifest["update"]) if good else (0, 0)
    with contextlib.suppress(RunFolderError):
        write_card(folder, config, steps, update, None, failure=failure)
    if good is None:
        return f"it has no checkpoint; its folder: {folder.path}"
    if not update:
        return f"it had learned nothing; its folder: {folder.path}"
    return (
        f"its last checkpoint, update {update}, is good; to continue: penstock resume {shlex.quote(str(folder.path))}"
    )
