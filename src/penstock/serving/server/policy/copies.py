"""BundleCopies: a copy of each version that the folder of a bundle has held.

The folder is replaced whenever somebody exports into it. A worker that is started again must find what it answered
with before.
"""

from pathlib import Path

from penstock.errors import BundleError
from penstock.saved_runs.manifest import MANIFEST
from penstock.serving.bundle import read_bundle, write_bundle
from penstock.serving.server.policy.source import Source

__all__ = ["BundleCopies"]


class BundleCopies:
    """Copies a bundle when its folder holds another one.

    Args:
        loader: as of `Source`.
        folder: of the bundle.
        into: a folder for the copies.
    """

    def __init__(self, loader: str, folder: Path, into: Path) -> None:
        self._loader = loader
        self._folder = folder
        self._into = into
        self._copied = b""
        """The manifest of the bundle that was copied last."""
        self._newest: Source | None = None

    def newest(self) -> Source:
        """The source of the bundle that is in the folder now. If the bundle is new, it is copied first.

        Raises:
            BundleError: the folder holds no bundle, or one that is altered or is just being replaced.
        """
        try:
            manifest = (self._folder / MANIFEST).read_bytes()
        except OSError as error:
            raise BundleError(f"bundle {self._folder} cannot be read: {error.strerror or error}") from None
        if self._newest is None or manifest != self._copied:
            bundle = read_bundle(self._folder)
            version = int(bundle.facts.run["update"])
            place = self._into / f"{self._folder.resolve().name}-{version}"
            if not place.exists():
                write_bundle(place, bundle.facts, bundle.files)
            self._newest = Source(self._loader, str(place), None, version)
            self._copied = manifest
        return self._newest
