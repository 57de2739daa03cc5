"""The working directory of a process, which somebody may have removed.

In a removed one, MKL ends the process with status 2 at torch's first product of matrices, and the launcher is told no
reason. Imports nothing that takes time.
"""

import os
import sys

__all__ = ["leave_removed_directory"]

_REMOVED = " (deleted)"
"""What Linux adds to the path of a removed directory."""


def leave_removed_directory() -> None:
    """If the working directory was removed, go to the one that has its path now, else to the root.

    Ray removes a directory of code that it has brought, and brings it again, if a second node of the cluster starts on
    a machine.
    """
    try:
        os.getcwd()  # noqa: PTH109 - pathlib takes time to import
    except FileNotFoundError:
        path = os.readlink("/proc/self/cwd").removesuffix(_REMOVED) if sys.platform == "linux" else "/"  # noqa: PTH115
        os.chdir(path if os.path.isdir(path) else "/")  # noqa: PTH112
