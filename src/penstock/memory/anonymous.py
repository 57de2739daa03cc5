"""Files without a name. The system frees one with the last process that holds it."""

import os
import sys
import tempfile
from pathlib import Path

__all__ = ["anonymous_file"]

_LINUX = sys.platform == "linux"


def anonymous_file(name: str) -> int:
    """The descriptor of a new, empty file without a name.

    Args:
        name: what it is for. The system shows it among the files of a process.

    Raises:
        OSError: the system has no space for it.
    """
    if _LINUX:
        return os.memfd_create(f"penstock-{name}", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix="penstock-")
    Path(path).unlink()
    return descriptor
