"""Hosts that come and go: ten times a host is killed and joins again, while PPO learns on three hosts.

    python -m benchmarks.soak.churn --write FILE       # 8 minutes; needs penstock[ray], root and iproute2

Three hosts in network namespaces train PPO on Pendulum-v1, with 12 lanes in 6 processes. Every 40 seconds all processes
of the third host are ended by SIGKILL, and 20 seconds later Ray is started there again. Then the run is interrupted,
and its best policy and its last one play 100 greedy episodes each.

What must hold: the best policy reaches -200; throughput is back within 15 s of each kill and of each join; the rows of
all reports add up; no process, no shared memory and no object of Ray is left.

- The last policy is told, and has no bar: nothing ends this run, so PPO's learning rate never falls, and after 13
  million steps the policy drifts. Two sittings had the same returns in each update, -123 at update 3,143, and -202 and
  -205 where they were interrupted, at updates 4,646 and 4,814.
- The three hosts share this machine's cores, so a lost host costs no throughput for long. Two hosts even do more than
  three, because each has costs of its own. So two hosts are compared with two, and three with three.
- So the bar for a join hardly tests the join: two hosts are above 80 % of the rate of three already. It shows that a
  join stops nothing for long, and not that the host takes part. `benchmarks.joining` measures that.
- Throughput is back once it was at 80 % of the usual rate for three seconds.
- The usual rate is a median over the last ten seconds: of two hosts before each join, of three before each kill.
"""

import argparse
import itertools
import math
import signal
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.hosts import BIN, Hosts
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import begun, evaluate, flags
from benchmarks.soak.log import Follower, Reported, reports_of
from benchmarks.soak.remains import Remains, bars_of_remains, remains, shared_files

SETTING = {
    "env": "Pendulum-v1",
    "num_envs": 12,
    "num_workers": 6,
    "num_steps": 256,
    # The run ends only when it is told to.
    "timesteps": 1_000_000_000_000,
    "runtime": "ray",
}
RESOURCES = ({"CPU": 2}, {"CPU": 4}, {"CPU": 2})
TIMES, EVERY_S, AWAY_S = 10, 40.0, 20.0
QUIET_S = 30.0
"""Before the first fault."""
BEFORE_S, BACK_S, SHARE = 10.0, 3.0, 0.8
RECOVERY_S, THRESHOLD = 15.0, -200.0
INTERRUPTED = 130
START_LIMIT_S, END_LIMIT_S = 120.0, 60.0


class Fault(NamedTuple):
    """What was done, and when."""

    what: str
    at: float


class Seen(NamedTuple):
    """A sitting."""

    reports: list[Reported]
    faults: list[Fault]
    status: int
    left: Remains
    reached: float
    """Mean return of the best policy: of the checkpoint with the highest return in training."""
    last: float
    """The same of the last one."""


def sitting(times: int, folder: Path) -> Seen:
    """Train while a host comes and goes.

    Raises:
        RuntimeError: the run does not begin, or ends.
    """
    with Hosts(RESOURCES, folder) as hosts:
        words = [*flags(SETTING), "--address", hosts.address, "--log_dir", str(folder / "logs")]
        shared = shared_files()
        command = hosts.all[0].popen([str(BIN / "penstock"), "train", *words])
        run = begun(command, folder / "logs", START_LIMIT_S)
        follower, reports, faults = Follower(run / "metrics.jsonl"), [], []

        def watch(seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if command.poll() is not None:
                    raise RuntimeError(f"the run ended with {command.returncode}; {folder} has what it said")
                reports.extend(reports_of(follower.poll(), time.monotonic()))
                time.sleep(0.1)

        watch(QUIET_S)
        for _ in range(times):
            faults.append(_done("was killed", hosts.all[2].end))
            watch(AWAY_S)
            faults.append(_done("joined", hosts.all[2].begin))
            watch(EVERY_S - AWAY_S)
        command.send_signal(signal.SIGINT)
        status = command.wait(END_LIMIT_S)
        left = remains(hosts, shared)
    best, last = (float(evaluate(run, 100, which)["mean_return"]) for which in ("best", "latest"))
    return Seen(reports, faults, status, left, best, last)


def _done(what: str, act: Callable[[], None]) -> Fault:
    struck = time.monotonic()
    act()
    return Fault(what, struck)


def usual_rates(seen: Seen) -> dict[str, float]:
    """Kind of a fault -> the usual steps a second of the hosts that are there after it.

    The median over the last seconds before each fault of the other kind.
    """
    return {
        what: statistics.median(
            _rate(seen.reports, fault.at - BEFORE_S, fault.at) for fault in seen.faults if fault.what != what
        )
        for what in {fault.what for fault in seen.faults}
    }


def recovery_s(reports: Sequence[Reported], struck: float, until: float, usual: float) -> float:
    """Seconds from a fault until throughput is back; infinite if it is not by ``until``."""
    for report in reports[bisect_left(reports, struck + BACK_S, key=lambda report: report.at) :]:
        if report.at > until:
            break
        if _rate(reports, report.at - BACK_S, report.at) >= SHARE * usual:
            return max(0.0, report.at - BACK_S - struck)
    return math.inf


def _rate(reports: Sequence[Reported], begun: float, ended: float) -> float:
    """Steps a second between two times."""
    inside = [report for report in reports if begun <= report.at <= ended]
    return (inside[-1].steps - inside[0].steps) / (ended - begun) if len(inside) > 1 else 0.0


def recoveries(seen: Seen) -> list[tuple[str, float]]:
    """What was done each time, and how long throughput took to be back."""
    ends, usual = [fault.at for fault in seen.faults[1:]] + [math.inf], usual_rates(seen)
    return [
        (fault.what, recovery_s(seen.reports, fault.at, until, usual[fault.what]))
        for fault, until in zip(seen.faults, ends, strict=True)
    ]


def bars_of(seen: Seen) -> list[Bar]:
    """What must hold."""
    longest = {
        what: max((seconds for _, seconds in found), default=math.inf)
        for what, found in itertools.groupby(sorted(recoveries(seen)), key=lambda one: one[0])
    }
    return [
        Bar("return of the best policy", seen.reached, THRESHOLD),
        *(
            Bar(f"longest recovery after a host {what}, s", seconds, RECOVERY_S, at_most=True)
            for what, seconds in longest.items()
        ),
        Bar("reports whose rows do not add up", sum(bool(one.unbalanced) for one in seen.reports), 0, at_most=True),
        *bars_of_remains(seen.left),
        Bar("exit code, apart from that of an interrupt", abs(seen.status - INTERRUPTED), 0, at_most=True),
    ]


def main() -> int:
    """One sitting, judged."""
    parser = argparse.ArgumentParser("python -m benchmarks.soak.churn", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--times", type=positive_int, default=TIMES)
    place = ROOT / "build/benchmarks/soak_churn.json"
    parser.add_argument("--write", type=destination, default=place, metavar="FILE")
    args = parser.parse_args()
    seen = sitting(args.times, Path(tempfile.mkdtemp(prefix="penstock-churn-")))
    bars = bars_of(seen)
    for what, seconds in recoveries(seen):
        print(f"{what}: throughput was back after {seconds:.1f} s")
    for bar in bars:
        print(bar.line(), flush=True)
    result = {
        "command": command_of(parser.prog),
        "bars": [bar.entry() for bar in bars],
        "usual_steps_per_s": {what: round(rate) for what, rate in usual_rates(seen).items()},
        "recoveries_s": [[what, round(seconds, 1)] for what, seconds in recoveries(seen)],
        "updates": seen.reports[-1].update,
        "return_of_last": round(seen.last, 1),
    }
    write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
