"""A host joins a run that goes on: how soon it takes part, and with how many lanes. Needs Linux and root.

    python -m benchmarks.joining                      # about 5 minutes; needs penstock[ray] and iproute2
    python -m benchmarks.joining --write FILE
    python -m benchmarks.joining --rounds 1

Three hosts in network namespaces train PPO on Pendulum-v1 in lock step, with 16 lanes in 8 processes. All processes of
the third host are ended by SIGKILL. 20 seconds later Ray is started there again, and the run moves processes to it.

What must hold: rows of environments of that host are learned from at most 10 s after Ray runs there, and the host then
has its share of the processes by its cores: two of eight. A row also has the seconds from the command that starts Ray.

- The log tells of no single rollout. In lock step each update needs one of each process. When the log tells of a move,
  it may be an update behind, and the process may have filled the rollout of the next update before it moved. So rows of
  the new host count as delivered with the third update after the move. Such a time is too long by up to two updates,
  less than a second here.
- `benchmarks.soak.churn` asks a question of its own: whether throughput suffers.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status, in_json
from benchmarks.hosts import BIN, Host, Hosts
from benchmarks.record import command_of, destination, write
from benchmarks.runs import begun, flags
from benchmarks.soak.log import Follower
from penstock.metrics.report import RESTARTS, STEPS_PER_SECOND

WORKERS = 8
SETTING = {
    "env": "Pendulum-v1",
    "num_envs": 16,
    "num_workers": WORKERS,
    "num_steps": 128,
    "mini_batch_size": 256,
    "sync_mode": "blocking",
    # The run ends only with its hosts.
    "timesteps": 1_000_000_000_000,
    "runtime": "ray",
}
RESOURCES = ({"CPU": 2}, {"CPU": 4}, {"CPU": 2})
"""The second host has most cores, so the deputy is there, and not on the one that is killed."""
SHARE = 2 / 8
"""Of the third host: its cores beside all cores."""
ROUNDS = 5
AWAY_S, CALM_S = 20.0, 10.0
"""Seconds from the loss of the host until it joins, and from its first rows until it is lost again."""
LIMIT_S = 10.0
"""The bar."""
WAIT_S = 60.0
"""A host that has not delivered by then does not count as one that does."""
START_LIMIT_S = 120.0
LOOK_S = 0.1
MOVED = "moved to a machine that has joined"
"""What the log tells of a process that moves."""
LATER = 3
"""That many updates after a move, rows of the new host have been learned from."""


class Joined(NamedTuple):
    """A host joined."""

    seconds: float
    """From when Ray ran there until rows of its environments were learned from; infinite if none were."""
    since_command_s: float
    """The same, from the command that starts Ray."""
    share: float
    """Of all environment processes, and so of all lanes, that were there then."""


def sitting(rounds: int, folder: Path) -> list[Joined]:
    """Train while a host is lost and joins, again and again.

    Raises:
        RuntimeError: the run does not begin, or ends.
    """
    with Hosts(RESOURCES, folder) as hosts:
        words = flags({**SETTING, "address": hosts.address, "log_dir": folder / "logs"})
        command = hosts.all[0].popen([str(BIN / "penstock"), "train", *words])
        run = begun(command, folder / "logs", START_LIMIT_S)
        found = []
        for _ in range(rounds):
            time.sleep(CALM_S)
            hosts.all[2].end()
            time.sleep(AWAY_S)
            if command.poll() is not None:
                raise RuntimeError(f"the run ended with {command.returncode}; {folder} has what it said")
            found.append(join(hosts.all[2], run))
        return found


def join(host: Host, run: Path) -> Joined:
    """Start Ray on a host, and wait until the run has learned from rows of its environments."""
    follower = Follower(run / "metrics.jsonl")
    # What was told before it joined.
    follower.poll()
    begun_at, runs_at = time.monotonic(), math.inf
    host.begin()
    lines: list[dict[str, Any]] = []
    while (now := time.monotonic()) < begun_at + WAIT_S:
        lines += follower.poll()
        if math.isinf(runs_at):
            runs_at = now if host.runs_ray() else math.inf
        elif has_delivered(lines):
            return Joined(now - runs_at, now - begun_at, share_of(host.groups()))
        time.sleep(LOOK_S)
    return Joined(math.inf, math.inf, share_of(host.groups()))


def has_delivered(lines: Sequence[dict[str, Any]]) -> bool:
    """Whether rows of processes that have moved must have been learned from, by the lines of the log since the join."""
    moves = [line["update"] for line in lines if _is_move(line)]
    updates = [line["update"] for line in lines if STEPS_PER_SECOND in line]
    return bool(moves) and max(updates, default=0) >= max(moves) + LATER


def _is_move(line: dict[str, Any]) -> bool:
    return MOVED in line.get("note", "") and any(name.startswith(f"{RESTARTS}env.") for name in line)


def share_of(groups: set[str]) -> float:
    """The share of all environment processes that are among some processes' names."""
    return sum(name.startswith("env.") for name in groups) / WORKERS


def bars_of(found: Sequence[Joined]) -> list[Bar]:
    """What must hold."""
    longest, least = max(one.seconds for one in found), min(one.share for one in found)
    return [
        Bar("longest from a join until rows of the host are learned from, s", longest, LIMIT_S, at_most=True),
        Bar("smallest share of the lanes that the host has then", least, SHARE),
    ]


def row_of(found: Sequence[Joined]) -> dict[str, Any]:
    """What the rounds have shown. Seconds of a host that delivered nothing are ``None``."""
    seconds = [one.seconds for one in found]
    return {
        "median_s": in_json(statistics.median(seconds), 1),
        "largest_s": in_json(max(seconds), 1),
        "seconds": [in_json(one, 1) for one in seconds],
        "since_command_s": [in_json(one.since_command_s, 1) for one in found],
        "shares": [one.share for one in found],
    }


def main() -> int:
    """One sitting, judged."""
    parser = argparse.ArgumentParser("python -m benchmarks.joining", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=positive_int, default=ROUNDS)
    parser.add_argument("--write", type=destination, metavar="FILE")
    args = parser.parse_args()
    found = sitting(args.rounds, Path(tempfile.mkdtemp(prefix="penstock-joining-")))
    bars = bars_of(found)
    print(row_of(found))
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        result = {"command": command_of(parser.prog), "bars": [bar.entry() for bar in bars], **row_of(found)}
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
