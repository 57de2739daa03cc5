"""A machine of a run is lost: how soon the run goes on without it, and from which step. Needs Linux and root.

    python -m benchmarks.takeover                     # about 35 minutes; needs penstock[ray], iproute2 and util-linux
    python -m benchmarks.takeover --write FILE
    python -m benchmarks.takeover --cases ppo --lost launcher --rounds 1

Three hosts in network namespaces train in lock step, with environment processes on each: PPO on Pendulum-v1, and Ape-X
on CartPole-v1. Then one host loses its power: its link is cut, and all its processes are ended by SIGKILL. Nobody gets
a sign of that. Ray's head is never lost.

- *launcher*: The launcher is on the second host. The third one has the deputy, which goes on in a folder of its own.
- *link*: The same, but only the link of the second host is cut, for a minute. Behind it the launcher lives on. It must
  end its run before the deputy goes on, and its command must end by itself.
- *learner*: Two learners share each step. The launcher is on the head. The host of the second learner is lost.

What must hold: 30 s after the loss the run has learned its next update. It goes on from the last update that two
machines had; what was learned after that, and is learned again, took 2 s at most. Each round has new hosts and a new
run. A row has the seconds of each round; the steps of the last update that was reported before the loss, and those that
the run went on from; and the learner's seconds between these two.

With a cut link, one run must go on. A run counts if it has learned an update after the deputy's first one: the lost
run at any time until the end, the deputy's run in the last seconds, when the link has been there again for a while.
If none counts, `unlearned_s` tells a run that ended from one that was slow, because the machine had other work.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status, in_json
from benchmarks.hosts import BIN, Host, Hosts, SeparateHost
from benchmarks.record import command_of, destination, write
from benchmarks.runs import begun, flags
from benchmarks.soak.log import Follower, Reported, reports_of
from penstock.metrics.report import RESTARTS
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.run_folder import RunFolder

SHARED = {
    "num_envs": 8,
    "num_workers": 4,
    "sync_mode": "blocking",
    # The run does not end by itself.
    "timesteps": 1_000_000_000_000,
    "runtime": "ray",
    "run_name": "lost",
}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "env": "Pendulum-v1", "num_steps": 256, "mini_batch_size": 256},
    "apex": {"algo": "apex", "env": "CartPole-v1", "capacity": 100_000},
}
RESOURCES = ({"CPU": 1}, {"CPU": 1}, {"CPU": 2})
"""The third host has most cores, so the deputy is there."""
SECOND_LEARNER = "learner.1"
ROUNDS = 3
TRAIN_S = 10.0
"""Seconds of training before the loss."""
LIMIT_S = 30.0
"""The bar."""
AGAIN_S = 2.0
"""The bar of what is learned again."""
WAIT_S = 120.0
"""A run that has not gone on by then does not count as one that does."""
CUT_S, AFTER_S, LAST_S = 60.0, 60.0, 15.0
"""Seconds until a cut link is there again, from then to the end of the round, and the last ones of these."""
START_LIMIT_S = 120.0
LOOK_S = 0.05


class LivedOn(NamedTuple):
    """A launcher lived on behind a cut link."""

    runs: int
    """Number of runs that went on, its own and those of deputies."""
    command_s: float
    """Seconds from the cut until its command had ended; infinite if it did not end."""
    unlearned_s: float
    """Seconds at the end of the round in which no run learned an update; infinite if none learned after the deputy."""


class Loss(NamedTuple):
    """A machine was lost."""

    seconds: float
    """Until the next update was reported; infinite if none was."""
    committed: int
    """Steps of the last update that was reported before."""
    went_on_from: int | None
    """Steps that the run went on from; ``None`` if it did not go on."""
    again_s: float = 0.0
    """How long the run had learned between these two, and learned again."""
    lived_on: LivedOn | None = None
    """What the launcher did behind a cut link; ``None`` if its machine was lost."""


def lose_launcher(settings: dict[str, Any], folder: Path) -> Loss:
    """Train, and lose the launcher's machine.

    Raises:
        RuntimeError: the run does not begin, or no other machine gets a copy of it.
    """
    with Hosts(RESOURCES, folder, kind=SeparateHost) as hosts:
        run = _train(hosts, hosts.all[1], settings, folder / "logs")
        _wait_for_copy(folder / "logs")
        time.sleep(TRAIN_S)
        return _taken_over(run, _lose(hosts.all[1]))


def cut_launcher(settings: dict[str, Any], folder: Path) -> Loss:
    """Train, and cut the link of the launcher's machine for a minute.

    Raises:
        RuntimeError: the run does not begin, or no other machine gets a copy of it.
    """
    logs = folder / "logs"
    with Hosts(RESOURCES, folder, kind=SeparateHost) as hosts:
        host = hosts.all[1]
        command = _launched(hosts, host, settings, logs)
        run = begun(command, logs, START_LIMIT_S)
        _wait_for_copy(logs)
        time.sleep(TRAIN_S)
        struck = time.monotonic()
        host.cut(off=True)
        back = threading.Timer(CUT_S, host.cut, kwargs={"off": False})
        back.start()
        try:
            return _watched(_taken_over(run, struck), run, command, struck)
        finally:
            back.cancel()
            back.join()


def lose_learner(settings: dict[str, Any], folder: Path) -> Loss:
    """Train with two learners, and lose the machine of the second one.

    Raises:
        RuntimeError: the run does not begin, or its second learner is on no other machine.
    """
    with Hosts(RESOURCES, folder, kind=SeparateHost) as hosts:
        run = _train(hosts, hosts.all[0], {**settings, "learners": 2}, folder / "logs")
        time.sleep(TRAIN_S)
        host = next((host for host in hosts.all[1:] if SECOND_LEARNER in host.groups()), None)
        if host is None:
            raise RuntimeError(f"no host but the launcher's runs {SECOND_LEARNER}; see {folder}")
        follower = Follower(run / "metrics.jsonl")
        earlier = reports_of(follower.poll(), 0.0)
        struck = _lose(host)
        lines: list[dict[str, Any]] = []
        while (now := time.monotonic()) < struck + WAIT_S:
            lines += follower.poll()
            late, after = around_restart(lines, SECOND_LEARNER)
            before = [*earlier, *late]
            if after:
                return gone_on(now - struck, before, after[0].update - 1)
            time.sleep(LOOK_S)
    return Loss(math.inf, before[-1].steps, None)


LOST: dict[str, Callable[[dict[str, Any], Path], Loss]] = {
    "launcher": lose_launcher,
    "link": cut_launcher,
    "learner": lose_learner,
}
"""What is lost -> what loses it."""


def new_reports(before: Sequence[Reported], found: Iterable[Reported]) -> list[Reported]:
    """The reports that the lost run did not write itself. A log that was taken over begins with those of the lost run.

    The same update may be learned again, but by the learner's clock at another time.
    """
    known = {(one.update, one.time_s) for one in before}
    return [one for one in found if (one.update, one.time_s) not in known]


def update_resumed(launches: str) -> int:
    """The update that a run was resumed at, from the lines of its launches."""
    checkpoint: str = json.loads(launches.splitlines()[-1])["checkpoint"]
    return int(checkpoint.rpartition("-")[2])


def around_restart(lines: list[dict[str, Any]], node: str) -> tuple[list[Reported], list[Reported]]:
    """The updates that were reported before a node was started again, and those after it. None after, if it was not."""
    restart = next((place for place, line in enumerate(lines) if f"{RESTARTS}{node}" in line), len(lines))
    return reports_of(lines[:restart], 0.0), reports_of(lines[restart:], 0.0)


def gone_on(seconds: float, before: Sequence[Reported], update: int) -> Loss:
    """The loss of a machine after which the run went on.

    A line of the log may stand for several updates. Then that of an earlier one counts.

    Args:
        seconds: until the next update was reported.
        before: what was reported before the loss.
        update: that the run went on from.
    """
    last = before[-1]
    known = [one for one in before if one.update <= update]
    steps, time_s = (known[-1].steps, known[-1].time_s) if known else (0, 0.0)
    return Loss(seconds, last.steps, steps, last.time_s - time_s)


def runs_that_learn(last: Mapping[Path, float], lost: Path, end: float) -> int:
    """The number of runs that have gone on, from when each was last seen to learn after the deputy's first update.

    The lost run must not have learned at all since then. The others must have learned in the last seconds.
    """
    return sum(folder == lost or seen > end - LAST_S for folder, seen in last.items())


def row_of(case: str, lost: str, losses: Sequence[Loss]) -> dict[str, Any]:
    """What the rounds of a case have shown. Seconds of a run that did not go on are ``None``."""
    seconds = [one.seconds for one in losses]
    lived_on = [one.lived_on for one in losses if one.lived_on is not None]
    behind_a_link = {
        "runs": [one.runs for one in lived_on],
        "command_s": [in_json(one.command_s, 1) for one in lived_on],
        "unlearned_s": [in_json(one.unlearned_s, 1) for one in lived_on],
    }
    return {
        "case": case,
        "lost": lost,
        "median_s": in_json(statistics.median(seconds), 1),
        "largest_s": in_json(max(seconds), 1),
        "seconds": [in_json(one, 1) for one in seconds],
        "committed_steps": [one.committed for one in losses],
        "went_on_from_steps": [one.went_on_from for one in losses],
        "learned_again_s": [round(one.again_s, 2) for one in losses],
        **(behind_a_link if lived_on else {}),
    }


def bars_of(case: str, lost: str, losses: Sequence[Loss]) -> list[Bar]:
    """The longest round beside what is promised. Where only a link was cut, one run goes on, and its command ends."""
    what = f"{case}, {lost} is lost"
    longest = max(one.seconds for one in losses)
    again = max(one.again_s for one in losses)
    bars = [
        Bar(f"{what}: longest until the run goes on, s", longest, LIMIT_S, at_most=True),
        Bar(f"{what}: longest that is learned again, s", again, AGAIN_S, at_most=True),
    ]
    lived_on = [one.lived_on for one in losses if one.lived_on is not None]
    if lived_on:
        apart, last = max(abs(one.runs - 1) for one in lived_on), max(one.command_s for one in lived_on)
        bars.append(Bar(f"{what}: runs that go on, apart from one", apart, 0, at_most=True))
        bars.append(Bar(f"{what}: longest until the command has ended, s", last, CUT_S + AFTER_S, at_most=True))
    return bars


def _train(hosts: Hosts, launcher: Host, settings: dict[str, Any], logs: Path) -> Path:
    """Start a run on a host, and wait for its first report. Returns its folder."""
    return begun(_launched(hosts, launcher, settings, logs), logs, START_LIMIT_S)


def _launched(hosts: Hosts, launcher: Host, settings: dict[str, Any], logs: Path) -> "subprocess.Popen[bytes]":
    words = flags({**SHARED, **settings, "address": hosts.address, "log_dir": logs})
    return launcher.popen([str(BIN / "penstock"), "train", *words])


def _taken_over(run: Path, struck: float) -> Loss:
    """Wait until the deputy of a lost run has learned its next update."""
    taken_over = run.with_name(f"{run.name}-2")
    follower = Follower(taken_over / "metrics.jsonl")
    before = _reports(run)
    while (now := time.monotonic()) < struck + WAIT_S:
        if new_reports(before, reports_of(follower.poll(), now)):
            update = update_resumed(RunFolder(taken_over).launches_path.read_text(encoding="utf-8"))
            return gone_on(now - struck, before, update)
        time.sleep(LOOK_S)
    return Loss(math.inf, before[-1].steps, None)


def _watched(loss: Loss, run: Path, command: "subprocess.Popen[bytes]", struck: float) -> Loss:
    """Watch all runs from the deputy's first update until the link has been there again for a while."""
    followers = {run: Follower(run / "metrics.jsonl")}
    # What the lost run had learned by then.
    followers[run].poll()
    last: dict[Path, float] = {}
    ended = math.inf
    while (now := time.monotonic()) < struck + CUT_S + AFTER_S:
        for folder in run.parent.glob("[!.]*"):
            follower = followers.setdefault(folder, Follower(folder / "metrics.jsonl"))
            if reports_of(follower.poll(), now):
                last[folder] = now
        if math.isinf(ended) and command.poll() is not None:
            ended = now - struck
        time.sleep(LOOK_S)
    unlearned = now - max(last.values(), default=-math.inf)
    return loss._replace(lived_on=LivedOn(runs_that_learn(last, run, now), ended, unlearned))


def _wait_for_copy(logs: Path) -> None:
    """Wait until a deputy has a checkpoint. All hosts have one disk, so its copy is seen from here."""
    until = time.monotonic() + START_LIMIT_S
    while not any(list_checkpoints(copy) for copy in (logs / ".copies").glob("*")):
        if time.monotonic() > until:
            raise RuntimeError(f"no deputy has a checkpoint; see {logs.parent}")
        time.sleep(LOOK_S)


def _lose(host: Host) -> float:
    """Cut the power of a host. Returns when."""
    struck = time.monotonic()
    # First the link: the ends of its processes must not be told over it.
    host.cut(off=True)
    host.end()
    return struck


def _reports(run: Path) -> list[Reported]:
    return reports_of(Follower(run / "metrics.jsonl").poll(), 0.0)


def main() -> int:
    """Lose machines, print, and write the result."""
    parser = argparse.ArgumentParser("python -m benchmarks.takeover", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--lost", nargs="+", choices=LOST, default=list(LOST))
    parser.add_argument("--rounds", type=positive_int, default=ROUNDS)
    parser.add_argument("--write", type=destination, metavar="FILE")
    args = parser.parse_args()
    rows, bars = [], []
    for case in args.cases:
        for lost in args.lost:
            folders = [Path(tempfile.mkdtemp(prefix="penstock-takeover-")) for _ in range(args.rounds)]
            losses = [LOST[lost](CASES[case], folder) for folder in folders]
            rows.append(row_of(case, lost, losses))
            judged = bars_of(case, lost, losses)
            bars += judged
            print("; ".join(bar.line() for bar in judged), rows[-1], flush=True)
    if args.write:
        result = {"command": command_of(parser.prog), "bars": [bar.entry() for bar in bars], "rows": rows}
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
