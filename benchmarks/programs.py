"""Builds a benchmark's program in C++ from one file. Starts nothing."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import ROOT

__all__ = ["built"]


def built(name: str, flags: Sequence[str]) -> Path:
    """The program of ``benchmarks/<name>.cpp``, built with these flags by `CXX`, or by `c++`.

    Raises:
        OSError: there is no such compiler.
        subprocess.CalledProcessError: it refused the file.
    """
    program = ROOT / "build/benchmarks" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX") or "c++"
    subprocess.run([compiler, *flags, ROOT / f"benchmarks/{name}.cpp", "-o", program], check=True)
    return program
