"""The facts in every committed measurement: machine, versions, commit and command. Measures nothing itself.

A result that may be committed is not written from a tree with changes, because no commit names that tree.
`destination` refuses before anything is measured, and `write` at the end. `ALLOW_DIRTY=1` in the environment allows it,
with a `+` behind the commit. Files under `build/` or outside the repository are written from any tree.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNMEASURED = ("benchmarks/results", "benchmarks/learning/results", "docs", "*.md")
"""Files that may have changed: results, and documents that are only read."""
ALLOW = "ALLOW_DIRTY"


class DirtyTreeError(argparse.ArgumentTypeError):
    """A result would name a commit with other code. With `destination` as a type, the argument parser says so."""


def machine() -> dict[str, Any]:
    """The machine that measured: processor, cores this process may use, versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "gymnasium": importlib.metadata.version("gymnasium"),
    }


def command_of(program: str) -> str:
    """The command that repeats what this process measures: all words that it was given, but not where to write.

    Args:
        program: how the benchmark is started, ``python -m benchmarks.NAME``.
    """
    return " ".join([program, *map(shlex.quote, _but_write(sys.argv[1:]))])


def commit() -> str:
    """The commit that was measured; `+` marks a tree with changes."""
    return (_git("rev-parse", "--short=12", "HEAD") or "unknown") + "+" * bool(changed())


def changed() -> list[str]:
    """Files that git knows and that differ from the commit, without those that cannot change a measurement."""
    others = [f":(exclude,top){pattern}" for pattern in UNMEASURED]
    return _git("diff", "--name-only", "HEAD", "--", ":(top)", *others).splitlines()


def destination(path: str | Path) -> Path:
    """The path of a result, as the type of a command's argument. So it is checked before hours of measuring.

    Raises:
        DirtyTreeError: the tree has changes, and the result might be committed.
    """
    path = Path(path)
    inside = path.resolve().is_relative_to(ROOT) and not path.resolve().is_relative_to(ROOT / "build")
    if inside and os.environ.get(ALLOW) != "1" and (files := changed()):
        listed = ", ".join(files)
        raise DirtyTreeError(f"commit what has changed before {path} is written, or set {ALLOW}=1: {listed}")
    return path


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result as JSON, with machine and commit in front.

    Raises:
        DirtyTreeError: the tree has changes by now; the result stands under `build/dirty/`.
    """
    try:
        destination(path)
    except DirtyTreeError as error:
        kept = ROOT / "build/dirty" / path.name
        write(kept, result)
        raise DirtyTreeError(f"{error}; what was measured stands in {kept}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commit": commit(), "machine": machine(), **result}, indent=2) + "\n")


def _but_write(words: Sequence[str]) -> list[str]:
    """The words of a command line without ``--write FILE`` and ``--write=FILE``."""
    kept = [word for word in words if not word.startswith("--write=")]
    if "--write" in kept:
        at = kept.index("--write")
        del kept[at : at + 2]
    return kept


def _git(*words: str) -> str:
    """The output of git; empty if there is no repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
