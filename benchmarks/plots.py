"""Draws the committed results of benchmarks into docs/images, one picture a result. Measures nothing.

python -m benchmarks.plots                # all of benchmarks/results that there is a drawing for
python -m benchmarks.plots slots board    # some of them
"""

import argparse
import importlib
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.record import ROOT
from benchmarks.suite import RESULTS

IMAGES = ROOT / "docs/images"
COLORS = {"penstock": "#0072B2", "peer": "#E69F00", "limit": "#9A9A9A"}
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "ytick.left": False,
    "legend.frameon": False,
}
ROOM = 0.15
"""Share of an axis that a number takes. A mark inside it would be hidden by the number."""
LOGARITHMIC_FROM = 30
"""Times that differ by more than this factor do not show on a linear axis."""


def mechanism(result: dict[str, Any], title: str) -> Figure:
    """A panel for each case: bars of the medians, lines to the 99th percentiles, marks at their bars."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in result["rows"]:
        cases.setdefault(row["case"], []).append(row)
    columns = 1 if len(cases) <= 4 else 2
    lines = -(-len(cases) // columns)
    most = max(map(len, cases.values()))
    height = 1.0 + lines * (0.62 + 0.27 * most)
    figure = Figure(figsize=(8.5 if columns == 1 else 11.0, height), dpi=120, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    unit, scale = ("ms", 1e3) if min(row["us"] for row in result["rows"]) >= 1e3 else ("\N{MICRO SIGN}s", 1.0)
    for axes, (case, rows) in zip(panels, cases.items(), strict=False):
        panel(axes, case, rows, scale)
    for axes in panels[len(cases) :]:
        axes.set_visible(False)
    for axes in panels[: len(cases)][-columns:]:
        axes.set_xlabel(unit)
    legend(figure, result["rows"], title)
    source(figure, result)
    return figure


def panel(axes: Axes, case: str, rows: Sequence[dict[str, Any]], scale: float) -> None:
    """One case."""
    axes.set_title(case)
    values = [row["us"] / scale for row in rows]
    farthest = max(max(row.get(name, 0.0) for name in ("us", "p99_us", "may_be_us", "p99_may_be_us")) for row in rows)
    right, least = farthest / scale, min(values)
    if least > 0.0 and right / least > LOGARITHMIC_FROM:
        axes.set_xscale("log")
        # The beginning of every bar is visible, and there is space for its number.
        axes.set_xlim(least / 2.0, right * (right / least) ** 0.2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_xlim(min(0.0, least), right * 1.2)
    places = range(len(rows), 0, -1)
    axes.barh(places, values, height=0.62, color=[COLORS[row["kind"]] for row in rows])
    axes.set_yticks(list(places), [row["what"] for row in rows])
    for place, row, value in zip(places, rows, values, strict=True):
        end, text = max(value, 0.0), number(value)
        if "p99_us" in row:
            end = row["p99_us"] / scale
            text += f"  to  {number(end)}"
            axes.plot([value, end], [place, place], color="#333333", linewidth=1.0)
            axes.plot([end], [place], "|", color="#333333", markersize=6)
        for name, style in (("may_be_us", "-"), ("p99_may_be_us", ":")):
            if name in row:
                mark = row[name] / scale
                axes.vlines(mark, place - 0.45, place + 0.45, color="#D55E00", linestyle=style, linewidth=2)
                if 0.0 <= share(axes, mark) - share(axes, end) < ROOM:
                    end = mark
        axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)


def share(axes: Axes, x: float) -> float:
    """The place of a value on its axis, 0 to 1."""
    at = axes.transAxes.inverted().transform(axes.transData.transform((x, 0.0)))
    return float(at[0])


def legend(figure: Figure, rows: Sequence[dict[str, Any]], title: str) -> None:
    """The title, and the meaning of the colours and marks that occur."""
    names = {"penstock": "penstock", "peer": "peer", "limit": "physical limit"}
    shown: list[Any] = [
        Patch(color=color, label=names[kind])
        for kind, color in COLORS.items()
        if any(row["kind"] == kind for row in rows)
    ]
    marks: tuple[tuple[str, str, Literal["-", ":"], str], ...] = (
        ("p99_us", "#333333", "-", "to the 99th percentile"),
        ("may_be_us", "#D55E00", "-", "the median may be"),
        ("p99_may_be_us", "#D55E00", ":", "the 99th percentile may be"),
    )
    for name, color, style, label in marks:
        if any(name in row for row in rows):
            width = 1.0 if name == "p99_us" else 2.0
            shown.append(Line2D([], [], color=color, linestyle=style, linewidth=width, label=label))
    above = figure.legend(handles=shown, loc="outside upper left", ncols=len(shown), fontsize=8, handlelength=1.4)
    above.set_title(title, {"size": 10.5})
    above.set_alignment("left")


def throughput(result: dict[str, Any], title: str) -> Figure:
    """Steps per second of both sides, with a dot for each round, and their ratio."""
    sides = (
        ("penstock", "penstock_steps_per_s", "penstock"),
        ("peer", "stable_baselines3_steps_per_s", "stable-baselines3"),
    )
    figure = Figure(figsize=(8.5, 1.9), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{result['ratio']:.1f} times stable-baselines3")
    for place, (kind, field, _) in zip((2, 1), sides, strict=True):
        median = statistics.median(result[field])
        axes.barh(place, median, height=0.62, color=COLORS[kind])
        axes.plot(result[field], [place] * len(result[field]), "o", color="#333333", markersize=3)
        farthest = max(median, *result[field])
        axes.annotate(f"{median:,.0f}", (farthest, place), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks([2, 1], [label for *_, label in sides])
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("steps per second, everything included; a dot a round")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


def placements(result: dict[str, Any], title: str) -> Figure:
    """A panel for each number of lanes: steps per second beside those in place, by the size of the network."""
    lanes = sorted({entry["lanes"] for entry in result["throughput"]})
    figure = Figure(figsize=(8.5, 3.2), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(lanes), squeeze=False, sharey=True).ravel()
    for axes, count in zip(panels, lanes, strict=True):
        found = [entry for entry in result["throughput"] if entry["lanes"] == count]
        units = [entry["hidden"] for entry in found]
        for name in found[0]["beside_in_place"]:
            shares = [entry["beside_in_place"][name] for entry in found]
            axes.plot(range(len(units)), shares, "o-", markersize=3, linewidth=1.2, label=name)
        axes.set_xticks(range(len(units)), [f"{size}, {size}" for size in units])
        axes.set_ylim(bottom=0.0)
        axes.set_title(f"{count} lanes")
        axes.set_xlabel("units of both networks")
    panels[0].set_ylabel("steps per second, in place = 1")
    panels[0].legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


WAYS = {"every tick alone": "#9A9A9A", "what arrived together": "#0072B2", "wait up to 2 ms": "#E69F00"}
"""How a server answers, and its colour."""


def batches(result: dict[str, Any], title: str) -> Figure:
    """A column for each policy: ticks a second, latency and the server's time by the number of clients."""
    policies = list(result["ratios"])
    figure = Figure(figsize=(8.5, 6.6), dpi=120, layout="constrained")
    panels = figure.subplots(3, len(policies), squeeze=False, sharex=True, sharey="row")
    shown = (("ticks_a_second", 0, "o-"), ("p50_ms", 1, "o-"), ("p99_ms", 1, "o:"), ("server_us_a_tick", 2, "o-"))
    for column, policy in zip(panels.T, policies, strict=True):
        for way, color in WAYS.items():
            rows = [row for row in result["rows"] if (row["policy"], row["way"]) == (policy, way)]
            clients = [row["clients"] for row in rows]
            for field, line, style in shown:
                values = [row[field] for row in rows]
                column[line].plot(clients, values, style, color=color, markersize=3, linewidth=1.2, label=way)
        *_, (most, gain) = result["ratios"][policy].items()
        column[0].set_title(f"{policy}, {most}: {gain:.1f} times")
        column[1].set_yscale("log")
        column[2].set_xscale("log", base=2)
        column[2].set_xticks(clients, [str(count) for count in clients])
        column[2].minorticks_off()
        column[2].set_xlabel("clients")
        for axes in column:
            axes.grid(axis="both")
            axes.yaxis.set_major_formatter("{x:,g}")
    names = ("ticks a second", "ms a tick; dotted: p99", "\N{MICRO SIGN}s of the server a tick")
    for line, (axes, name) in enumerate(zip(panels[:, 0], names, strict=True)):
        axes.set_ylabel(name)
        if line != 1:
            axes.set_ylim(bottom=0.0)
    panels[0, 0].legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


CORRECTIONS = {True: ("with V-trace", "#0072B2"), False: ("without", "#D55E00")}
"""Whether a run corrects for the age of its policy: its name, and its colour."""


def ages(result: dict[str, Any], title: str) -> Figure:
    """A panel for each age of the acting policy: the return over the run, a line a seed."""
    lags = sorted({row["lag"] for row in result["rows"]})
    figure = Figure(figsize=(8.5, 3.0), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(lags), squeeze=False, sharey=True).ravel()
    for axes, lag in zip(panels, lags, strict=True):
        axes.set_title(f"{lag} updates old")
        axes.set_xlabel("percent of the run")
        for row in result["rows"]:
            if row["lag"] != lag:
                continue
            name, color = CORRECTIONS[row["corrects"]]
            for number_of_seed, returns in enumerate(row["curves"]):
                percent = [100 * (place + 1) / len(returns) for place in range(len(returns))]
                label = None if number_of_seed else name
                axes.plot(percent, returns, "o-", color=color, markersize=2.5, linewidth=1.2, alpha=0.8, label=label)
        axes.set_ylim(bottom=0.0)
    panels[0].set_ylabel("return")
    panels[-1].legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


LINKS = {
    ("none", False): ("none, without the link", "#9A9A9A"),
    ("none", True): ("none", "#333333"),
    ("int8", True): ("int8", "#0072B2"),
    ("topk:0.1", True): ("topk:0.1", "#009E73"),
    ("topk:0.01", True): ("topk:0.01", "#D55E00"),
}
"""Compression, and whether there is a link: the name of the runs, and their colour."""


def links(result: dict[str, Any], title: str) -> Figure:
    """The return over steps, and over seconds: a line a seed, coloured by compression."""
    figure = Figure(figsize=(8.5, 3.4), dpi=120, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, over in zip(panels, ("steps", "seconds"), strict=True):
        for row in result["rows"]:
            name, color = LINKS[row["compress"], row["link"]]
            for place, run in enumerate(row["runs"]):
                line = run["curve"]
                label = None if place else name
                axes.plot(line[over], line["values"], color=color, linewidth=1.2, alpha=0.8, label=label)
        axes.grid(axis="both")
        axes.set_ylim(bottom=0.0)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_xlabel(over)
    panels[0].set_ylabel("return")
    panels[1].legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


FOUND = ("#9A9A9A", "#333333", "#56B4E9", "#009E73", "#0072B2", "#E69F00", "#D55E00")
"""The colour of each row of `benchmarks.exploration`."""


def found(result: dict[str, Any], title: str) -> Figure:
    """A line of panels for each task: states visited over steps, and the shares of runs that found and learned."""
    tasks = result["setting"]["tasks"]
    figure = Figure(figsize=(11.0, 0.8 + 2.5 * len(tasks)), dpi=120, layout="constrained")
    panels = figure.subplots(len(tasks), 3, squeeze=False, width_ratios=(1.2, 1.0, 1.0))
    for (visited, goal, learned), (case, task) in zip(panels, tasks.items(), strict=True):
        rows = [row for row in result["rows"] if row["case"] == case]
        for row, color in zip(rows, FOUND, strict=True):
            part = result["setting"]["timesteps"] / len(row["curve"])
            steps = [part * number for number in range(1, len(row["curve"]) + 1)]
            visited.plot(steps, row["curve"], color=color, linewidth=1.4)
        visited.set_title(f"{case}: states visited, of {task['states']}")
        visited.grid(axis="both")
        visited.set_ylim(bottom=0.0)
        visited.locator_params(axis="x", nbins=5)
        visited.xaxis.set_major_formatter("{x:,g}")
        visited.set_xlabel("steps of all lanes")
        shares(goal, rows, "found")
        shares(learned, rows, "learned")
        goal.set_title("runs that found the goal")
        learned.set_title("runs that learned the way")
        for text, color in zip(goal.get_yticklabels(), FOUND, strict=True):
            text.set_color(color)
        learned.set_yticklabels([])
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    source(figure, result)
    return figure


def shares(axes: Axes, rows: Sequence[dict[str, Any]], measure: str) -> None:
    """A point for each row's share, and a line for its interval."""
    places = range(len(rows), 0, -1)
    for place, row, color in zip(places, rows, FOUND, strict=True):
        share_of_runs, low, high = row[measure]
        if low is not None:
            axes.plot([low, high], [place, place], color=color, linewidth=1.6)
        axes.plot([share_of_runs], [place], "o", color=color, markersize=5)
    axes.set_yticks(list(places), [row["what"] for row in rows])
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(0.4, len(rows) + 0.6)
    axes.xaxis.set_major_formatter("{x:.0%}")


LONG_COMMAND = 80
"""A command of more characters takes a line by itself."""


def source(figure: Figure, result: dict[str, Any]) -> None:
    """The line below the picture: command, machine and commit."""
    machine = result["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores   |   {result['commit']}"
    words = f"{result['command']}{'   |   ' if len(result['command']) < LONG_COMMAND else chr(10)}{where}"
    figure.supxlabel(words, x=0.01, ha="left", fontsize=7, color="#777777")


def number(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")


DRAWINGS: dict[str, tuple[Callable[[dict[str, Any], str], Figure], str]] = {
    "end_to_end_fused": (throughput, "PPO on Pendulum-v1 at the published setting, fused update"),
    "end_to_end_compiled": (throughput, "PPO on Pendulum-v1 at the published setting, compiled update"),
    "serve_batching": (batches, "penstock serve with batches and without, over TCP"),
    "vtrace": (ages, "IMPALA with a policy that is old on purpose, CartPole-v1, seeds 0 to 2"),
    "link": (links, "PPO with two learners over a link of 100 Mbit/s, CartPole-v1, by compression; a line a seed"),
    "exploration": (
        found,
        "What actors that explore differently find in equal steps; means over the seeds, 95 % intervals",
    ),
    "central_inference": (placements, "Policy nodes beside inference in place, CartPole-v1"),
}
"""Result -> drawing and title. Results whose rows have a kind are drawn as mechanisms, titled by the benchmark's first
line."""


def draw(path: Path, into: Path) -> Path | None:
    """Draw one result. ``None`` if there is no drawing for it, or if it has no rows."""
    result = json.loads(path.read_text())
    if result.get("rows") == []:
        return None
    if path.stem in DRAWINGS:
        drawing, title = DRAWINGS[path.stem]
    elif "kind" in result.get("rows", [{}])[0]:
        drawing = mechanism
        title = (importlib.import_module(f"benchmarks.{path.stem}").__doc__ or "").splitlines()[0]
    else:
        return None
    into.mkdir(parents=True, exist_ok=True)
    image = into / f"benchmark-{path.stem.replace('_', '-')}.png"
    with mpl.rc_context(STYLE):
        drawing(result, title).savefig(image)
    return image


def main() -> None:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of results; all if none is named")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to read")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder to write to")
    args = parser.parse_args()
    for path in [args.results / f"{name}.json" for name in args.names] or sorted(args.results.glob("*.json")):
        image = draw(path, args.into)
        print(f"{path.stem}: {image or 'there is no drawing for it, or it has no rows'}")


if __name__ == "__main__":
    main()
