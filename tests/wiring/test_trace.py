"""The spans of a process are kept in a ring, or not at all."""

from pathlib import Path

import pytest

from penstock.memory.spans import read_spans
from penstock.metrics.trace import STEP, ring_path
from penstock.wiring import trace
from penstock.wiring.trace import traces


def test_without_a_folder_nothing_is_kept() -> None:
    kept = traces(None, "env.0")
    node = kept.node("env.0")
    node.stepped(1, 2)
    with node.span("rollout"), node.span("rollout"):
        pass
    kept.close()


def test_spans_are_kept_by_node_and_name_also_when_one_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ticks = iter(range(10, 100, 10))
    monkeypatch.setattr(trace, "monotonic_ns", lambda: next(ticks))
    kept = traces(tmp_path, "monitor")
    saver, monitor = kept.node("checkpointer"), kept.node("monitor")
    monitor.stepped(1, 2)

    def fail() -> None:
        with saver.span("write"), saver.span("sync"):  # from 10 and 20, to 40 and 30
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        fail()
    kept.close()
    recorded = read_spans(ring_path(tmp_path, "monitor"))
    assert recorded is not None
    assert [
        (recorded.names[node], recorded.names[name], begin, end) for begin, end, node, name in recorded.spans.tolist()
    ] == [("monitor", STEP, 1, 2), ("checkpointer", "sync", 20, 30), ("checkpointer", "write", 10, 40)]
