"""PPO, APPO, SAC and Ape-X on three hosts, near and far apart: does each reach its threshold? Needs Linux and root.

    python -m benchmarks.cluster_learning                     # about 20 minutes; needs penstock[ray] and iproute2
    python -m benchmarks.cluster_learning --write FILE
    python -m benchmarks.cluster_learning --cases ppo --links far

Three hosts in network namespaces, with environment processes on each, learn a task once for each kind of link:

- *near*: a bridge. Here Ape-X also learns as it is often drawn (`apex4`): eight environment processes, four learners
  that each have two of these, and a table of 1,000,000 rows with priorities. All learners agree on each gradient step,
  30,000 times, which takes too long where each message takes 20 ms. In `apex4-free` they do not wait for each other,
  and all of them sample from the whole table.
- *far*: 20 ms of delay each way, and 1 % of frames lost.
- *blink*: far, and from the fifth second of the run on the second host is cut off for 5 s. PPO only: nothing may be
  restarted.
- *cut*: far, and from the tenth second of the run on the second host is cut off for a minute. PPO only, for twice as
  many steps, as all algorithms lose and find their environments by the same path.

A return is the mean of the final evaluation, 100 greedy episodes. Rows must add up in every report, and no process of
penstock may be left. Times say how long these runs took here; three hosts share this machine's cores.

All but APPO and `apex4-free` learn in lock step. There a slow link changes no bit: the last checkpoints of the near,
the far and the blinking run must be the same, apart from the time. The rows of the shards of `apex4` must be within 5 %
of each other. Where nothing waits, `share_min` says that the rows of all hosts are learned from: those of the slowest
environment process beside an even share, the median of the reports.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.bars import Bar, exit_status
from benchmarks.far_link import Far
from benchmarks.hosts import BIN, Hosts
from benchmarks.record import command_of, destination, write
from benchmarks.runs import begun, flags
from benchmarks.soak.log import reports_of
from benchmarks.soak.remains import SETTLE_S, processes_left
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import RESTARTS, SHARE_MIN, Report
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.types import Arrays

RESOURCES = ({"CPU": 2}, {"CPU": 1}, {"CPU": 3})
"""The third host has most cores, so the deputy is there, and not on the one that is cut off."""
FAR = Far(delay_s=0.02, loss=0.01)
LINKS = {"near": None, "far": FAR, "blink": FAR, "cut": FAR}
EVERYWHERE = ("near", "far")
CUTS = {"blink": (5.0, 5.0), "cut": (10.0, 60.0)}
"""When the link of the second host is cut, in seconds of the run, and for how long."""
CUT_STEPS = 300_000
"""Of the run whose link is cut for a minute: it goes on once the link is there again."""
SAME_STEPS = ("far", "blink")
"""Slow links on which a case learns as many steps as near."""
BALANCE = 1.05
"""The shard with most rows beside the one with fewest."""
START_LIMIT_S, LIMIT_S = 120.0, 900.0


class Case(NamedTuple):
    """A task, and what is to be reached."""

    settings: dict[str, Any]
    threshold: float
    links: tuple[str, ...] = EVERYWHERE
    lock_step: bool = True

    @property
    def shards(self) -> int:
        """Of the table. Learners that do not wait for each other sample from all of it."""
        return 1 if self.settings.get("exchange") == "parameter_server" else self.settings.get("learners", 1)


FOUR_LEARNERS = {"preset": "apex-cartpole", "num_workers": 8, "learners": 4, "capacity": 1_000_000}
CASES = {
    "ppo": Case({"preset": "cartpole"}, 475.0, tuple(LINKS)),
    "appo": Case({"algo": "appo", "env": "CartPole-v1", "timesteps": 500_000}, 475.0, lock_step=False),
    "sac": Case({"preset": "sac-pendulum"}, -160.0),
    "apex": Case({"preset": "apex-cartpole"}, 475.0),
    "apex4": Case(FOUR_LEARNERS, 475.0, ("near",)),
    "apex4-free": Case({**FOUR_LEARNERS, "exchange": "parameter_server"}, 475.0, ("near",), lock_step=False),
}


def run(case: Case, link: str, folder: Path) -> dict[str, Any]:
    """One run on three hosts.

    Raises:
        RuntimeError: it fails, or does not begin.
        subprocess.TimeoutExpired: it does not end within ``LIMIT_S`` seconds.
    """
    with Hosts(RESOURCES, folder, LINKS[link]) as hosts:
        where = {"runtime": "ray", "address": hosts.address, "log_dir": folder / "logs"}
        began = time.monotonic()
        command = hosts.all[0].popen([str(BIN / "penstock"), "train", *flags({**settings_of(case, link), **where})])
        if link in CUTS:
            begun(command, folder / "logs", START_LIMIT_S)
            _cut(hosts, *CUTS[link])
        status = command.wait(LIMIT_S)
        seconds = time.monotonic() - began
        time.sleep(SETTLE_S)
        left = processes_left(hosts)
    if status:
        raise RuntimeError(f"the run ended with {status}; {folder / 'hosts.txt'} has what it said")
    (made,) = (folder / "logs").glob("[!.]*")
    reports, lines = list(read_reports(made)), [json.loads(line) for line in (made / "metrics.jsonl").open()]
    learned = load_checkpoint(find_checkpoint(made)).arrays
    return {
        "return": round(next(one.values["eval/return_mean"] for one in reports if "eval/final" in one.values), 2),
        "steps": reports[-1].steps,
        "seconds": round(seconds, 1),
        "restarts": sum(name.startswith(RESTARTS) for one in reports for name in one.values),
        "unbalanced": sum(bool(one.unbalanced) for one in reports_of(lines, 0.0)),
        "left": left,
        "learned": fingerprint(learned),
        "shard_rows": shard_rows(learned, case.shards),
        "share_min": None if case.lock_step else share_min(reports),
    }


def share_min(reports: Sequence[Report]) -> float:
    """The rows of the slowest environment process beside an even share: the median of the reports."""
    return median(report.values[SHARE_MIN] for report in reports if SHARE_MIN in report.values)


def fingerprint(arrays: Arrays) -> str:
    """A hash of a checkpoint: parameters, optimizer and counters. Neither the time nor the slots of rollouts count."""
    hashed = hashlib.sha256()
    for name in sorted(arrays):
        if not name.startswith(("consumed", "elapsed")):
            hashed.update(name.encode())
            hashed.update(arrays[name].tobytes())
    return hashed.hexdigest()


def shard_rows(arrays: Arrays, learners: int) -> list[int]:
    """The rows that each shard of the table has got, by a checkpoint: those of consecutive lanes, as many for each."""
    rows = arrays["lane_collected"] - arrays["lane_spoilt"]
    return [int(count) for count in rows.reshape(learners, -1).sum(1)]


def settings_of(case: Case, link: str) -> dict[str, Any]:
    """The settings of a run, without its cluster and its folder."""
    mode = "blocking" if case.lock_step else "non_blocking"
    longer = {"timesteps": CUT_STEPS} if link == "cut" else {}
    return {"num_workers": 4, "sync_mode": mode, **case.settings, **longer}


def bars_of(row: dict[str, Any]) -> list[Bar]:
    """What one run must have reached."""
    what = f"{row['case']}, {row['link']}"
    bars = [
        Bar(f"{what}: return", row["return"], CASES[row["case"]].threshold),
        Bar(f"{what}: unbalanced reports and processes left", row["unbalanced"] + row["left"], 0, at_most=True),
    ]
    if row["link"] == "blink":
        bars.append(Bar(f"{what}: restarts", row["restarts"], 0, at_most=True))
    rows = row["shard_rows"]
    if len(rows) > 1:
        bars.append(Bar(f"{what}: most rows of a shard / fewest", max(rows) / min(rows), BALANCE, at_most=True))
    return bars


def bars_of_links(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of each case in lock step that was learned near: the number of runs on slow links whose bits are others."""
    near = {row["case"]: row["learned"] for row in rows if row["link"] == "near" and CASES[row["case"]].lock_step}
    return [
        Bar(f"{row['case']}: {row['link']} runs with other bits than near", int(differs), 0, at_most=True)
        for row in rows
        if row["link"] in SAME_STEPS and row["case"] in near
        for differs in [row["learned"] != near[row["case"]]]
    ]


def chosen(cases: Sequence[str], links: Sequence[str]) -> list[tuple[str, str]]:
    """The cases that run on these links, link by link: link and name."""
    return [(link, name) for link in links for name in cases if link in CASES[name].links]


def _cut(hosts: Hosts, after_s: float, for_s: float) -> None:
    """Cut the second host off for a while, some time after the run has begun."""
    time.sleep(after_s)
    hosts.all[1].cut(off=True)
    time.sleep(for_s)
    hosts.all[1].cut(off=False)


def main() -> int:
    """Run what was asked for, and judge it."""
    parser = argparse.ArgumentParser("python -m benchmarks.cluster_learning", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--write", type=destination, metavar="FILE")
    args = parser.parse_args()
    wanted = chosen(args.cases, args.links)
    if not wanted:
        parser.error(f"no case of {', '.join(args.cases)} runs on --links {' '.join(args.links)}; leave out --links")
    rows, bars = [], []
    for link, name in wanted:
        found = run(CASES[name], link, Path(tempfile.mkdtemp(prefix="penstock-hosts-")))
        rows.append({"case": name, "link": link, **found})
        judged = bars_of(rows[-1])
        print("\n".join(bar.line() for bar in judged))
        print({key: found[key] for key in ("seconds", "steps", "restarts")}, flush=True)
        bars += judged
    same = bars_of_links(rows)
    print("\n".join(bar.line() for bar in same))
    bars += same
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.cluster_learning"),
            "rows": rows,
            "bars": [bar.entry() for bar in bars],
        }
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
