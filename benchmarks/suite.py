"""Runs the benchmarks of `SUITE` one after the other, each in a process of its own, and keeps what they write.

    python -m benchmarks.suite                # make bench: all of them, into benchmarks/results
    python -m benchmarks.suite --quick        # make bench-quick: less than 5 minutes, into build/benchmarks
    python -m benchmarks.suite slots board    # some of them

If a benchmark fails or misses one of its bars, the others still run, and the suite ends with 1. The short form is too
short for bars: there only a benchmark that writes no result has failed. Measures nothing itself.
"""

import argparse
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.record import ROOT

RESULTS = ROOT / "benchmarks/results"
QUICK_RESULTS = ROOT / "build/benchmarks"


class Entry(NamedTuple):
    """One result of the suite."""

    name: str
    """Name of its file."""
    command: str
    """The benchmark's module and its arguments."""
    quick: str | None
    """Arguments that are added in the short form. ``None``: the short form leaves it out."""


SUITE = (
    Entry("slots", "slots", "--rounds 3 --calls 1000 --messages 300"),
    Entry("board", "board", "--rounds 3 --messages 200"),
    Entry("doorbell", "doorbell", "--rounds 3 --messages 300"),
    Entry("publish", "publish", "--rounds 3 --messages 200"),
    Entry("act", "act", "--rounds 3 --calls 200"),
    Entry(
        "central_inference",
        "central_inference",
        "--rounds 1 --calls 200 --trips 1 8 --hidden 64 512 --lanes 16 --seconds 0.5",
    ),
    Entry("update", "update", "--rounds 3 --minibatches 64"),
    Entry("vtrace_update", "vtrace_update", "--rounds 2"),
    Entry("replay_update", "replay_update", "--rounds 2 --steps 50 --backends fused eager"),
    Entry("env_step", "env_step", "--rounds 2"),
    Entry("replay", "replay", "--rounds 2 --calls 2000"),
    Entry("start", "start", "--rounds 2"),
    Entry("first_steps", "first_steps", "--rounds 2"),
    Entry("end_to_end_fused", "end_to_end --backend fused", "--rounds 1 --updates 8 --peer_updates 1"),
    Entry("end_to_end_compiled", "end_to_end --backend compiled", None),
    Entry("throughput", "throughput", None),
    Entry("appo", "appo", None),
    Entry("leaving", "leaving", "--deaths 1"),
    Entry("time_to_solve", "time_to_solve", "--seeds 0 --cases cartpole pendulum"),
    Entry("scaling", "scaling", "--workers 1 4 --batches 2"),
    Entry("cluster", "cluster", None),
    Entry("non_blocking", "non_blocking", "--parts sleeping --rounds 1 --updates 2"),
    Entry("auto_choice", "auto_choice", None),
    Entry("off_policy", "off_policy", "--rounds 1 --updates 200"),
    Entry("exploration", "exploration", "--cases chain --seeds 0 --timesteps 1024"),
    Entry("recurrent", "recurrent", "--rounds 1 --updates 4 --peer_updates 1"),
    Entry("atari", "atari", None),
    Entry("impala", "impala", None),
    Entry("serve", "serve", "--seconds 2"),
    Entry("serve_batching", "serve_batching", "--rounds 1 --seconds 0.3 --clients 1 16 64"),
    Entry("serve_peers", "serve_peers", None),
    Entry("games", "games", "--rounds 1 --batches 2"),
    Entry("delta", "delta", "--rounds 3 --calls 200"),
)


def words(entry: Entry, quick: bool) -> list[str]:
    """The command of one entry, up to where its result goes."""
    module, *arguments = entry.command.split()
    short = (entry.quick or "").split() if quick else []
    return [sys.executable, "-m", f"benchmarks.{module}", *arguments, *short]


def run(entries: list[Entry], quick: bool) -> list[str]:
    """Run them, and return the names of those that failed."""
    folder = QUICK_RESULTS if quick else RESULTS
    failed = []
    for entry in entries:
        print(f"=== {entry.name}", flush=True)
        begun = time.perf_counter()
        file = folder / f"{entry.name}.json"
        if quick:
            file.unlink(missing_ok=True)
        status = subprocess.run([*words(entry, quick), "--write", str(file)], check=False, cwd=ROOT).returncode
        if quick and file.exists():
            status = 0
        print(
            f"=== {entry.name}: {time.perf_counter() - begun:.0f} s" + f", failed ({status})" * bool(status), flush=True
        )
        if status:
            failed.append(entry.name)
    return failed


def main() -> int:
    """Run what was asked for."""
    names = [entry.name for entry in SUITE]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is named: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="the short form, less than 5 minutes on 2 cores")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(names))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    wanted = [entry for entry in SUITE if not args.names or entry.name in args.names]
    failed = run([entry for entry in wanted if entry.quick is not None or not args.quick], args.quick)
    print(f"failed: {', '.join(failed)}" if failed else "all have ended well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
