"""What a run that failed, or that was interrupted at once, leaves on the disk, and whether it can go on."""

import contextlib
import shlex
from pathlib import Path

from penstock.config.whole import Config
from penstock.errors import RunFolderError
from penstock.paths import expanded
from penstock.registry import RUNTIMES
from penstock.saved_runs.card import write_card
from penstock.saved_runs.checkpoints import last_good, list_checkpoints
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.run_folder import RunFolder

__all__ = [
    "check_goes_on_nowhere",
    "is_unbegun",
    "remove_if_unbegun",
    "run_to_resume",
    "take_back_where_it_goes_on",
    "tell_where_it_goes_on",
    "write_failed_card",
]

GOES_ON_IN = "goes_on_in"
"""File of a run folder with which another machine goes on elsewhere: the new folder, then the machine."""


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
        RunFolderError: another process writes the run, another machine goes on with it in another folder, or it cannot
            be read or removed.
    """
    folder = RunFolder(expanded(log_dir) / name)
    try:
        if not _is_begun(folder):
            return None
        check_goes_on_nowhere(folder)
        if list_checkpoints(folder.path):
            return folder
        # Claimed, so that no run is removed that has just begun and has no checkpoint yet.
        with folder.claim():
            if list_checkpoints(folder.path):
                return folder
            if _is_begun(folder):
                _remove(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunFolderError(f"cannot read {folder.path}: {why}; give another --log_dir") from error
    return None


def tell_where_it_goes_on(old: RunFolder, new: RunFolder, machine: str) -> None:
    """Mark the old folder of a run: another machine continues the run in the new folder.

    The mark keeps a second command from continuing the run in the old folder; see `check_goes_on_nowhere`. No mark is
    written if the old folder is not there, because the machines share no disk, or if it belongs to another run.
    """
    with contextlib.suppress(OSError):
        begun = new.launches_path.read_bytes()
        if old != new and begun and old.launches_path.read_bytes().startswith(begun):
            (old.path / GOES_ON_IN).write_text(_where(new, machine), encoding="utf-8")


def take_back_where_it_goes_on(old: RunFolder, new: RunFolder, machine: str) -> None:
    """Undo `tell_where_it_goes_on`: nobody goes on in the new folder."""
    with contextlib.suppress(OSError):
        if (old.path / GOES_ON_IN).read_text(encoding="utf-8") == _where(new, machine):
            (old.path / GOES_ON_IN).unlink()


def _where(new: RunFolder, machine: str) -> str:
    return f"{new.path}\n{machine}\n"


def check_goes_on_nowhere(folder: RunFolder) -> None:
    """Check that no other machine has gone on with this run in another folder.

    Raises:
        RunFolderError: one has, or what says so cannot be read. The line says where the run is now, also if the
            machine that went on with it was lost in turn.
    """
    followed, found = {folder.path}, ""
    while (mark := (Path(found) if found else folder.path) / GOES_ON_IN).is_file():
        try:
            found, _, machine = mark.read_text(encoding="utf-8").strip().partition("\n")
        except (OSError, ValueError) as error:
            raise RunFolderError(f"cannot read {mark}: {error}; to go on with {folder.name}, remove it") from error
        if Path(found) in followed:
            break
        followed.add(Path(found))
    if found:
        raise RunFolderError(
            f"run {folder.name} goes on in {found}, on {machine}, because its launcher's machine was lost; name "
            f"{shlex.quote(Path(found).name)}, or to go on with {folder.name} all the same remove "
            f"{folder.path / GOES_ON_IN}"
        )


def _is_begun(folder: RunFolder) -> bool:
    """Whether there is a run, or what is left of one whose process was killed before it had written its config."""
    return folder.config_path.is_file() or folder.is_half_made()


def _remove(folder: RunFolder) -> None:
    try:
        remove_folder(folder.path)
    except OSError as error:
        raise RunFolderError(f"cannot remove {folder.path}: {error.strerror or error}") from error


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
    elsewhere = ", with --address local if its cluster is gone" if RUNTIMES[config.run.runtime].machines else ""
    command = f"penstock resume {shlex.quote(str(folder.path))}"
    return f"its last checkpoint, update {update}, is good; to continue: {command}{elsewhere}"
