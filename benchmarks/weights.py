"""Weights of 10 MB to three hosts: bytes on each host's link beside versions times weights. Needs Linux and root.

    python -m benchmarks.weights                     # about 3 minutes; needs penstock[ray] and iproute2
    python -m benchmarks.weights --write FILE

PPO on Pendulum-v1 in lock step, with networks so large that one version has about 10 MB. The launcher's host only
learns. Three hosts have two environment processes each, and each process needs every version. A fifth host has most
cores and no environments: it gets the deputy, so that copies of checkpoints travel over no other link.

Ray and penstock send each version to each host once if a host receives as many bytes as all versions have; once for
each process would be twice as many. What comes on top is Ray's own traffic, acknowledgements, and headers of packets.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import penstock
from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.hosts import BIN, Hosts
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, flags
from penstock.metrics.report import STEPS_PER_SECOND
from penstock.planning import plan, prepare
from penstock.processes.starts import Processes
from penstock.program.graph import Board
from penstock.topologies.on_policy import build

HOSTS = 3
PROCESSES = 2
"""Environment processes of each host."""
WORKERS = HOSTS * PROCESSES
STEPS = 8
HIDDEN_SIZES = (1100, 1100)
SETTINGS = {
    "env": "Pendulum-v1",
    "num_envs": WORKERS,
    "num_workers": WORKERS,
    "num_steps": STEPS,
    "mini_batch_size": WORKERS * STEPS,
    "epochs": 1,
    "sync_mode": "blocking",
    "eval_episodes": 1,
    "save_interval": 1_000_000,
}
RESOURCES = ({"CPU": 2}, *({"CPU": 2, "acts": PROCESSES} for _ in range(HOSTS)), {"CPU": 64})
LIMIT_S = 600.0
AT_MOST = 1.05
"""Bytes on a link beside those of all versions."""
AT_LEAST = 0.95
"""With fewer, versions would have been left out, and nothing would be shown."""


def weights_bytes() -> int:
    """Bytes of one version of the policy, as hosts get it."""
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        settings = {**SETTINGS, "hidden_sizes": HIDDEN_SIZES, "timesteps": 1000, "log_dir": folder}
        program = build(plan(prepare(penstock.from_mapping(settings), processes), Path(folder), quiet=True))
    board = program.edge("policy")
    if not isinstance(board, Board):
        raise TypeError("the policy is published on no board")
    return sum(spec.nbytes for spec in board.arrays)


def received(updates: int, folder: Path) -> tuple[int, list[int]]:
    """Train in namespaces. Returns the versions that every acting host got, and the bytes that each received.

    Raises:
        RuntimeError: the training did not end as it should.
    """
    with Hosts(RESOURCES, folder) as hosts:
        before = [host.traffic() for host in hosts.all]
        words = flags({**SETTINGS, "timesteps": updates * WORKERS * STEPS, "log_dir": folder / "logs"})
        words += ["--hidden_sizes", ",".join(map(str, HIDDEN_SIZES))]
        where = ["--runtime", "ray", "--address", hosts.address, "--resources", "env: {acts: 1}"]
        status = hosts.all[0].popen([str(BIN / "penstock"), "train", *words, *where]).wait(LIMIT_S)
        if status != 0:
            raise RuntimeError(f"the training ended with {status}: {(folder / 'hosts.txt').read_text()[-2000:]}")
        after = [host.traffic() for host in hosts.all]
    (run,) = (folder / "logs").glob("[!.]*")
    # Rollout r is acted with version r, from 0 on. The version behind the last update is of no use to anybody.
    versions = len(curve(run, STEPS_PER_SECOND).steps)
    return versions, [new.received - old.received for new, old in zip(after, before, strict=True)]


def judged(versions: int, weights: int, links: list[int]) -> list[Bar]:
    """The bytes on the links of the acting hosts beside those of all versions."""
    ratios = [link / (versions * weights) for link in links[1 : 1 + HOSTS]]
    return [
        Bar("most bytes on a host's link / versions x weights", max(ratios), AT_MOST, at_most=True),
        Bar("fewest bytes on a host's link / versions x weights", min(ratios), AT_LEAST),
    ]


def main() -> int:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=positive_int, default=100)
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    weights = weights_bytes()
    with tempfile.TemporaryDirectory(prefix="penstock-weights-") as folder:
        versions, links = received(args.updates, Path(folder))
    bars = judged(versions, weights, links)
    expected = versions * HOSTS * weights
    print(f"{versions} versions of {weights:,} bytes to {HOSTS} hosts: {expected:,} bytes expected")
    told = ", ".join(f"{link:,}" for link in links[1 : 1 + HOSTS])
    print(f"received by them: {told}; by the deputy's host: {links[-1]:,}")
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        result: dict[str, Any] = {
            "command": command_of("python -m benchmarks.weights"),
            "bars": [bar.entry() for bar in bars],
            "versions": versions,
            "weights_bytes": weights,
            "received_bytes": links,
        }
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
