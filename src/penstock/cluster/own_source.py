"""Tells apart machines with the same version of penstock and other code. Leaves out native modules.

Native modules of the same code differ between builds of Python and between instruction sets.
"""

import functools
import hashlib
from pathlib import Path

import penstock

__all__ = ["digest_of", "own_digest"]


@functools.cache
def own_digest() -> str:
    """The digest of this machine's code. Read once: files that change later do not change what this process runs."""
    return digest_of(Path(penstock.__file__).parent)


def digest_of(package: Path) -> str:
    """A digest of the names and contents of all Python files of a package. Compiled files do not count."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
