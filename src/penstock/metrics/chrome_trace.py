"""Writes a timeline as Chrome trace JSON for Perfetto and chrome://tracing, and sums it up in a few lines of text.

In the file, a process is a placement group, a thread is a track of a node, and every span is a complete event (``X``)
with ``ts`` and ``dur`` in microseconds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.metrics.trace import IDLE_SPAN, OPEN, STEP, NodeTimeline, Timeline

__all__ = ["describe", "write_chrome_trace"]


def write_chrome_trace(timeline: Timeline, path: Path) -> int:
    """Write a timeline. Returns the number of its spans.

    Raises:
        OSError: ``path`` cannot be written.
    """
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(_events(timeline)):
            file.write((",\n" if number else "") + json.dumps(event))
            count += event["ph"] == "X"
        file.write("\n]}\n")
    return count


def describe(timeline: Timeline) -> str:
    """One line for each node: the share of its time that it was idle, and the shares of its work."""
    lines = [
        f"{node.name:<14} idle {shares.pop(IDLE_SPAN, 0.0):4.0%}" + _others(shares)
        for node in timeline.nodes
        for shares in (node.shares(timeline.end),)
    ]
    lines += [f"{process}: {count:,} older spans were overwritten" for process, count in timeline.overwritten.items()]
    return "\n".join(lines)


def _others(shares: dict[str, float]) -> str:
    """Shares of at least half a percent. Leaves out `STEP` and `OPEN`, which contain all others."""
    shown = [f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005 and name not in {STEP, OPEN}]
    return "".join(f"  {text}" for text in shown)


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    processes = list(dict.fromkeys(node.process for node in timeline.nodes))
    for pid, process in enumerate(processes, start=1):
        yield _metadata("process_name", pid, 0, {"name": process})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        own = [node for node in timeline.nodes if node.process == process]
        tid = 0
        for node in own:
            for index in range(len(node.tracks)):
                tid += 1
                yield from _track(node, index, pid, tid)


def _track(node: NodeTimeline, index: int, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    label = node.name if index == 0 else f"{node.name}, over turns" + (f" {index}" if index > 1 else "")
    yield _metadata("thread_name", pid, tid, {"name": label})
    yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
    for span in node.tracks[index]:
        yield {
            "name": span.name,
            "cat": IDLE_SPAN if span.name == IDLE_SPAN else node.name.partition(".")[0],
            "ph": "X",
            "ts": span.begin / 1e3,
            "dur": (span.end - span.begin) / 1e3,
            "pid": pid,
            "tid": tid,
        }


def _metadata(name: str, pid: int, tid: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": arguments}
