"""The results of a benchmark of one mechanism, in the form that all of them print, write and draw. Measures nothing.

Rows of one case did the same work in the same sitting: ours, a peer's, and a physical limit if there is one.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.record import command_of, destination, write

Kind = Literal["penstock", "peer", "limit"]


class Measured(NamedTuple):
    """One row of a case; times in microseconds."""

    case: str
    what: str
    kind: Kind
    us: float
    """Median over the rounds: of one call, or of the median of a round's calls."""
    p99_us: float | None = None
    """Median over the rounds of their 99th percentiles; ``None`` if single calls are too short to be timed."""
    may_be_us: float | None = None
    """The bar of the median."""
    p99_may_be_us: float | None = None
    """The bar of the 99th percentile."""


def ratios(rows: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """For each case, how many times as long each row takes as the case's first row of ours.

    Where no row of a case is ours, its first row takes that place.
    """
    first: dict[str, Measured] = {}
    for row in sorted(rows, key=lambda row: row.kind != "penstock"):
        first.setdefault(row.case, row)
    result: dict[str, dict[str, float]] = {case: {} for case in first}
    for row in rows:
        if row is not first[row.case]:
            result[row.case][row.what] = _short(row.us / first[row.case].us)
    return result


def parser(name: str, description: str | None, rounds: int) -> argparse.ArgumentParser:
    """The arguments that every benchmark of a mechanism takes.

    Args:
        name: the name of the benchmark's module.
        description: its docstring.
        rounds: the default number of rounds, in which the compared things take turns.
    """
    made = argparse.ArgumentParser(
        f"python -m benchmarks.{name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--rounds", type=positive_int, default=rounds, help="how often the compared things take turns")
    made.add_argument("--write", type=destination, help="write the result here as JSON")
    return made


def report(
    arguments: argparse.ArgumentParser, args: argparse.Namespace, rows: Sequence[Measured], setting: Mapping[str, Any]
) -> None:
    """Print the rows, and write them where ``--write`` says.

    Args:
        arguments: the benchmark's parser.
        args: the parsed arguments.
        rows: all measured rows.
        setting: more facts that a reader has to know.
    """
    found = ratios(rows)
    for case, times in found.items():
        print(f"\n{case}")
        for row in rows:
            if row.case == case:
                print(_line(row, times.get(row.what, 1.0)))
    if args.write:
        body = [{name: value for name, value in row._asdict().items() if value is not None} for row in rows]
        write(args.write, {"command": command_of(arguments.prog), "ratios": found, **setting, "rows": body})


def _line(row: Measured, times: float) -> str:
    p99 = "" if row.p99_us is None else f"  p99 {row.p99_us:10.2f}"
    bars = [("median", row.may_be_us), ("p99", row.p99_may_be_us)]
    may_be = ", ".join(f"{name} {bar:g}" for name, bar in bars if bar is not None)
    return f"  {row.what:48} {row.us:10.2f} us  x {times:<8g}{p99}{may_be and f'  (may be {may_be})'}"


def _short(value: float) -> float:
    return float(f"{value:.3g}")
