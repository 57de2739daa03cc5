"""Writes a bundle whole or not at all, and replaces nothing but another bundle."""

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import BundleError
from penstock.saved_runs.durable import replace_folder, write_folder
from penstock.saved_runs.manifest import MANIFEST, SIZE_LIMIT, seal
from penstock.serving.bundle.contents import FORMAT, GRAPHS, MOBILE, PARAMETERS, PROGRAM, SAMPLE, Facts

__all__ = ["check_place", "write_bundle"]

_OWN = {MANIFEST, SAMPLE, MOBILE, PARAMETERS, PROGRAM, *GRAPHS.values()}
"""All files that a bundle may hold."""


def check_place(folder: Path) -> None:
    """Check that a bundle may be written here: the folder is not there, is empty, or holds a bundle and nothing else.

    Other folders have a manifest, too: those of checkpoints, and of many programs.

    Raises:
        BundleError: it is something else.
    """
    try:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        is_ours = names <= _OWN and bool(names & {SAMPLE, *GRAPHS.values()})
        taken = folder.exists() and not (folder.is_dir() and (not names or is_ours))
    except OSError as error:
        raise BundleError(f"cannot write {folder}: {error.strerror or error}") from error
    if taken:
        raise BundleError(f"{folder} is there already and is no bundle; give another --out, or remove it")


def write_bundle(folder: Path, facts: Facts, files: Mapping[str, bytes]) -> None:
    """Write a bundle.

    Args:
        folder: see `check_place`.
        facts: for its manifest.
        files: name -> content.

    Raises:
        BundleError: it cannot be written; what was there before is unchanged.
    """
    check_place(folder)
    # The path may end in a slash or a dot, or be a link, and the partial folder must lie beside the bundle itself.
    folder = folder.resolve()
    manifest = seal(FORMAT, facts.to_json(), files)
    if len(manifest) > SIZE_LIMIT:
        raise BundleError(f"cannot write {folder}: the bounds of its spaces take more than {SIZE_LIMIT:,} bytes")
    whole = {**files, MANIFEST: manifest}
    try:
        if folder.exists():
            replace_folder(folder, whole)
        else:
            write_folder(folder, whole)
    except OSError as error:
        raise BundleError(f"cannot write {folder}: {error.strerror or error}") from error
