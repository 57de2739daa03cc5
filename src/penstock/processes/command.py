"""What a process is started with: its command line, its environment, and the file that says what it is to do.

Imports nothing that takes time.
"""

import contextlib
import errno
import os
import sys
from pathlib import Path

from penstock.errors import ResourceError
from penstock.memory.anonymous import anonymous_file

__all__ = ["calling", "environment", "in_a_file", "python"]

SPINS = b"2000"
"""How often a thread of OpenMP looks for work before it sleeps. A number that the user has set wins. With OpenMP's own
default, two threads of a SAC update take the cores from each other while other programs run: 5 updates/s instead of 50.
Alone on the machine, both numbers give 224.
"""


def calling(entry: str) -> str:
    """Code that calls a "module:function" with the numbers on its command line."""
    module, _, function = entry.partition(":")
    return f"import sys; from {module} import {function}; {function}(*map(int, sys.argv[1:]))"


def python(code: str, *arguments: str) -> list[bytes]:
    """The command line of a Python interpreter. It imports from the working directory only if this process does.

    Otherwise a user's file there, ``profile.py`` say, would be imported instead of a library's module of that name.
    """
    safe = () if _imports_from_here() else ("-P",)
    return [os.fsencode(part) for part in (sys.executable, *safe, "-c", code, *arguments)]


def _imports_from_here() -> bool:
    # A working directory that was removed holds nothing.
    with contextlib.suppress(OSError):
        return str(Path.cwd()) in map(os.path.realpath, sys.path)
    return False


def environment(threads: int) -> dict[bytes, bytes]:
    """The environment of this process, with bounds on the threads of numerical libraries and on how long they spin."""
    bound = dict.fromkeys((b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"MKL_NUM_THREADS"), str(threads).encode())
    return {b"GOMP_SPINCOUNT": SPINS, **os.environb, **bound}


def in_a_file(content: bytes) -> int:
    """The descriptor of an unnamed file with this content. A pipe would hold 64 KB at most.

    Raises:
        ResourceError: the machine has no memory or no descriptor for it.
    """
    try:
        descriptor = anonymous_file("spec")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        full = error.errno in {errno.ENOMEM, errno.ENOSPC}
        what = f"no memory for the {len(content)} bytes of a process's spec" if full else "no process can be started"
        raise ResourceError(f"{what}: {error.strerror}") from error
    return descriptor
