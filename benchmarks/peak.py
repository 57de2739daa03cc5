"""The most that this processor computes: float32 operations per second of fused multiply-adds in registers alone.

python -m benchmarks.peak            # on one core, and on all that this process may use

It reads no memory, so no product of matrices is faster. `peak.cpp` is the loop; it needs a C++ compiler.
"""

import os
import platform
import subprocess

from benchmarks.programs import built

__all__ = ["operations_per_second"]


def operations_per_second(threads: int) -> float:
    """Additions and multiplications per second of so many threads together, in the best of some rounds."""
    own = "-mcpu=native" if platform.machine() in {"aarch64", "arm64"} else "-march=native"
    program = built("peak", ["-O3", "-std=c++17", own, "-ffp-contract=fast", "-pthread"])
    return float(subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print it in GFLOP/s."""
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        print(f"{threads} thread{'s' * (threads > 1)}: {operations_per_second(threads) / 1e9:.1f} GFLOP/s")


if __name__ == "__main__":
    main()
