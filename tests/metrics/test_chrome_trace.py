"""Chrome trace JSON: every event has what the format asks for, and every thread's events nest."""

import json
from pathlib import Path

from penstock.metrics.chrome_trace import describe, write_chrome_trace
from penstock.metrics.trace import IDLE_SPAN, OPEN, STEP, NodeTimeline, Span, Timeline

ENV = NodeTimeline(
    "env.0",
    "env.0",
    (
        (
            Span(0, 1_000, OPEN),
            Span(1_000, 4_000, IDLE_SPAN),
            Span(4_000, 9_000, STEP),
            Span(9_000, 9_500, STEP),
            Span(9_500, 10_000, IDLE_SPAN),
        ),
        (Span(4_500, 9_400, "rollout"),),
    ),
)
MONITOR = NodeTimeline("monitor", "monitor", ((Span(2_000, 10_000, STEP),),))
SAVER = NodeTimeline("checkpointer", "monitor", ((Span(2_000, 10_000, IDLE_SPAN),),))
TIMELINE = Timeline((ENV, SAVER, MONITOR), 10_000, {"env.0": 1_234})


def test_every_span_is_a_complete_event_in_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert write_chrome_trace(TIMELINE, path) == 8
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    for event in spans:
        assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid"}
    assert spans[1] == {"name": "idle", "cat": "idle", "ph": "X", "ts": 1.0, "dur": 3.0, "pid": 1, "tid": 1}
    assert spans[5] == {"name": "rollout", "cat": "env", "ph": "X", "ts": 4.5, "dur": 4.9, "pid": 1, "tid": 2}


def test_processes_and_threads_have_names(tmp_path: Path) -> None:
    write_chrome_trace(TIMELINE, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert processes == {1: "env.0", 2: "monitor"}
    assert threads == {
        (1, 1): "env.0",
        (1, 2): "env.0, over turns",
        (2, 1): "checkpointer",
        (2, 2): "monitor",
    }


def test_the_text_says_where_the_idle_time_is() -> None:
    assert describe(TIMELINE).splitlines() == [
        "env.0          idle  35%  rollout 49%",
        "checkpointer   idle 100%",
        "monitor        idle   0%",
        "env.0: 1,234 older spans were overwritten",
    ]
