"""What batches give ``penstock serve``: ticks a second and latency with and without, 1 to 256 clients over TCP.

    python -m benchmarks.serve_batching                               # about four minutes
    python -m benchmarks.serve_batching --rounds 1 --seconds 0.3      # to see that it runs

Two PPO policies of Pendulum-v1 are served: two layers of 64, whose answer costs less than its request, and two of 512.
Each is served in three ways: every tick alone (``--max_batch 1``), in batches of what has arrived together (the
default), and in batches that wait up to 2 ms for sessions that have not asked (``--max_wait 0.002``).

1. All servers run from the beginning to the end. One after the other is measured, and the others wait.
2. Each client is a Gamecore session that ticks as soon as it is answered. All clients are in this process: on two
   cores the server has the other one.
3. The processor time of the server for each tick, and the mean rows of a batch, stand beside the rates.

A figure is the median over the rounds. Bars: at 64 clients, the ticks a second with batches are no fewer than without
them for the small policy, and 1.5 times as many for the large one.
"""

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_float, positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.record import command_of, destination, write
from benchmarks.served import Served, serving, trained
from penstock.serving.bench.gamecore import Load, measure

POLICIES = {"two layers of 64": (64, 64), "two layers of 512": (512, 512)}
ALONE, TOGETHER = "every tick alone", "what arrived together"
WAYS = {ALONE: ("--max_batch", "1"), TOGETHER: (), "wait up to 2 ms": ("--max_wait", "0.002")}
"""How ticks are answered, and the flags of the server."""
CLIENTS = tuple(2**power for power in range(9))
BARRED = 64
"""Clients at which batches are compared with none."""
BARS = {"two layers of 64": 1.0, "two layers of 512": 1.5}
WARM_UP_S = 0.3


class Case(NamedTuple):
    """One measurement."""

    policy: str
    way: str
    clients: int


class Figures(NamedTuple):
    """What one server did in one round with so many clients."""

    ticks_a_second: float
    p50_ms: float
    p99_ms: float
    failures: float
    server_us_a_tick: float
    """Processor time."""
    rows_a_batch: float


def main() -> int:
    """Measure, print and write. Returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser("python -m benchmarks.serve_batching", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=positive_int, default=3, help="in which the servers take turns")
    parser.add_argument("--seconds", type=positive_float, default=1.3, help="of each measurement")
    parser.add_argument("--clients", type=positive_int, nargs="+", default=list(CLIENTS), help="at once")
    parser.add_argument("--write", type=destination, help="file for the result")
    args = parser.parse_args()
    found: dict[Case, list[Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-batches-") as folder, contextlib.ExitStack() as stack:
        servers = {}
        for policy, hidden_sizes in POLICIES.items():
            run = trained(Path(folder), hidden_sizes)
            for way, flags in WAYS.items():
                server = servers[policy, way] = stack.enter_context(serving(run, *flags))
                _figures(server, 1, WARM_UP_S)
        for _ in range(args.rounds):
            for clients in args.clients:
                for (policy, way), server in servers.items():
                    case = Case(policy, way, clients)
                    found.setdefault(case, []).append(_figures(server, clients, args.seconds))
                    print(_line(case, found[case][-1]), flush=True)
    medians = {case: Figures(*map(statistics.median, zip(*each, strict=True))) for case, each in found.items()}
    bars = bars_of(medians)
    print("\n".join(("", *(bar.line() for bar in bars))))
    if args.write is not None:
        write(args.write, _result(command_of(parser.prog), medians, bars))
    return exit_status(bars)


def gains(medians: Mapping[Case, Figures]) -> dict[str, dict[int, float]]:
    """Ticks a second in batches, divided by those without: policy -> clients -> ratio."""
    found: dict[str, dict[int, float]] = {}
    for case, figures in medians.items():
        if case.way == TOGETHER:
            alone = medians[case._replace(way=ALONE)]
            found.setdefault(case.policy, {})[case.clients] = figures.ticks_a_second / alone.ticks_a_second
    return found


def bars_of(medians: Mapping[Case, Figures]) -> list[Bar]:
    """The bar of each policy, if its clients were measured."""
    return [
        Bar(f"ticks/s in batches, {BARRED} clients, {policy}", ratios[BARRED], BARS[policy])
        for policy, ratios in gains(medians).items()
        if BARRED in ratios
    ]


def _figures(server: Served, clients: int, seconds: float) -> Figures:
    before = _counted(server)
    found = measure(Load(server.url, "policy", clients, seconds, server.tcp_port, "json", ""))
    used, rows, batches = (now - then for now, then in zip(_counted(server), before, strict=True))
    p50, p99 = (1000 * found.percentile(share) for share in (50, 99))
    return Figures(found.rate, p50, p99, found.failures, 1e6 * used / found.ticks, rows / max(1.0, batches))


def _counted(server: Served) -> tuple[float, float, float]:
    """Processor seconds, rows and batches so far."""
    batches = (server.metric(f"penstock_batch_rows_{part}") for part in ("sum", "count"))
    return server.processor_seconds(), *batches


def _line(case: Case, figures: Figures) -> str:
    failed = f", {figures.failures:.0f} failures" * bool(figures.failures)
    return (
        f"{case.policy:<18}{case.way:<22}{case.clients:4} clients  {figures.ticks_a_second:7,.0f} ticks/s  "
        f"p50 {figures.p50_ms:7.3f} ms  p99 {figures.p99_ms:7.3f} ms  {figures.server_us_a_tick:6.1f} us of the server "
        f"each, {figures.rows_a_batch:5.1f} rows a batch{failed}"
    )


def _result(command: str, medians: Mapping[Case, Figures], bars: Sequence[Bar]) -> dict[str, Any]:
    """The result as it is committed."""
    return {
        "command": command,
        "ratios": {
            policy: {f"{clients} clients": round(ratio, 2) for clients, ratio in ratios.items()}
            for policy, ratios in gains(medians).items()
        },
        "bars": [bar.entry() for bar in bars],
        "rows": [
            {**case._asdict(), **{name: round(value, 3) for name, value in figures._asdict().items()}}
            for case, figures in medians.items()
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
