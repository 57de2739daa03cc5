"""Reads a bundle. Every file is verified before anything in it is used, and nothing is unpickled."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BundleError
from penstock.saved_runs.manifest import MANIFEST, Damage, content_of, unseal, verified
from penstock.saved_runs.run_folder import CONFIG
from penstock.serving.bundle.contents import FORMAT, GRAPHS, MOBILE, PARAMETERS, PROGRAM, SAMPLE, Facts
from penstock.serving.bundle.sample import Sample, unpack_sample

__all__ = ["Bundle", "DamagedBundleError", "is_bundle", "read_bundle"]


@dataclass(frozen=True)
class Bundle:
    """A verified bundle."""

    path: Path
    facts: Facts
    files: dict[str, bytes]
    """Name -> content."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions in which it has a graph."""
        return tuple(name for name, file in GRAPHS.items() if file in self.files)

    def graph(self, precision: str | None = None) -> bytes:
        """The graph in a precision; ``None``: the one that acts.

        Raises:
            BundleError: it has none.
        """
        wanted = self.facts.precision if precision is None else precision
        if wanted not in self.precisions:
            have = ", ".join(self.precisions)
            raise BundleError(f"bundle {self.path} has no graph in {wanted}, only in {have}")
        return self.files[GRAPHS[wanted]]

    def sample(self) -> Sample:
        """Its sample.

        Raises:
            BundleError: the file is none.
        """
        try:
            return unpack_sample(self.files[SAMPLE])
        except ValueError:
            raise BundleError(f"bundle {self.path} cannot be used: {SAMPLE} holds no sample") from None


def is_bundle(folder: Path) -> bool:
    """True for a folder with a bundle's files, damaged or not."""
    return not _is_run(folder) and any((folder / name).is_file() for name in (MANIFEST, *GRAPHS.values()))


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).exists()


class DamagedBundleError(BundleError):
    """A file of a bundle is missing, altered, or none of a bundle."""


def read_bundle(folder: Path) -> Bundle:
    """Verify and read a bundle.

    Raises:
        DamagedBundleError: a file is missing or altered, or the format is newer; the text names the file.
        BundleError: the folder is a run, or does not exist.
    """
    if _is_run(folder):
        run = shlex.quote(str(folder))
        raise BundleError(f"{folder} is a run, not a bundle; make one: penstock export {run} --out policy")
    if not folder.is_dir():
        raise BundleError(f"there is no folder {folder}")
    manifest = b""
    seen: bytes | None = None
    while True:
        try:
            manifest = content_of(folder / MANIFEST)
            return _read(folder, manifest)
        except Damage as damage:
            # Race: 1. The manifest is read. 2. Somebody exports into the folder. 3. The other files are read.
            if manifest == seen:
                raise DamagedBundleError(f"bundle {folder} cannot be used: {damage}") from None
            seen = manifest


def _read(folder: Path, manifest: bytes) -> Bundle:
    found = unseal(manifest, FORMAT)
    try:
        facts = Facts.from_json(found)
        listed = {name: {"sha256": str(of["sha256"]), "bytes": int(of["bytes"])} for name, of in found["files"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Damage(f"{MANIFEST} is not that of a policy") from None
    for name in (GRAPHS["fp32"], SAMPLE):
        if name not in listed:
            raise Damage(f"{MANIFEST} does not list {name}")
    # A name may not lead out of the folder.
    for name in listed.keys() - {*GRAPHS.values(), MOBILE, SAMPLE, PARAMETERS, PROGRAM}:
        raise Damage(f"{MANIFEST} lists {name[:80]}, which is no file of a bundle")
    return Bundle(folder, facts, {name: verified(folder, name, listed[name]) for name in listed})
