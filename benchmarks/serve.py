"""How many ticks a second ``penstock serve`` answers, and how long one takes: over TCP and HTTP, 1 and 64 clients.

    python -m benchmarks.serve                  # about a minute
    python -m benchmarks.serve --write FILE     # and keep the result

The server runs as a process of its own with a PPO policy of Pendulum-v1 (two layers of 64), and the clients run in this
one. So on two cores each has one. The processor time of the server for each tick stands beside the rates, because other
work of the machine changes it less. Bars: 20,000 ticks/s and a p99 of 10 ms for 64 clients over TCP, 4,000 a second
over HTTP; alone, a p50 of 0.3 ms over TCP and 1 ms over HTTP.
"""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.arguments import positive_float
from benchmarks.record import command_of, destination, write
from benchmarks.served import Served, serving, trained
from penstock.serving.bench.gamecore import Load, measure


class Case(NamedTuple):
    """One way of asking, with its bars."""

    over: str
    clients: int
    ticks_a_second: float
    """At least; 0: no bar."""
    p50_ms: float
    p99_ms: float
    """At most."""


CASES = (
    Case("tcp", 1, 0, 0.3, float("inf")),
    Case("tcp", 64, 20_000, float("inf"), 10.0),
    Case("http", 1, 0, 1.0, float("inf")),
    Case("http", 64, 4_000, float("inf"), float("inf")),
)


def main() -> int:
    """Measure, print and write. Returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser("benchmarks.serve", description=__doc__)
    parser.add_argument("--seconds", type=positive_float, default=10.0, help="of each case")
    parser.add_argument("--workers", type=int, default=0, help="worker processes of the server")
    parser.add_argument("--write", type=destination, help="file for the result")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = trained(Path(folder))
        with serving(run, "--workers", str(arguments.workers)) as server:
            rows = [_row(case, server, arguments.seconds) for case in CASES]
    if arguments.write is not None:
        command = command_of("python -m benchmarks.serve")
        write(arguments.write, {"command": command, "rows": rows})
    return int(not all(row["good"] for row in rows))


def _row(case: Case, server: Served, seconds: float) -> dict[str, object]:
    port = server.tcp_port if case.over == "tcp" else None
    load = Load(server.url, "policy", case.clients, seconds, port, "json", "")
    before = server.processor_seconds()
    found = measure(load)
    used = server.processor_seconds() - before
    p50, p99 = (1000 * found.percentile(share) for share in (50, 99))
    good = found.rate >= case.ticks_a_second and p50 <= case.p50_ms and p99 <= case.p99_ms and not found.failures
    each = 1e6 * used / max(1, found.ticks)
    name = f"{case.over}, {case.clients} clients"
    print(f"{name:<18}{found.line()}; {each:.1f} us of the server each{'' if good else '; MISSED'}", flush=True)
    return {
        "case": name,
        "ticks_a_second": round(found.rate),
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99, 3),
        "failures": found.failures,
        "server_us_a_tick": round(each, 1),
        "good": good,
    }


if __name__ == "__main__":
    raise SystemExit(main())
