"""A run's trace, from its folder to a file."""

import json
from pathlib import Path

import pytest

from penstock.config.sources import from_mapping
from penstock.errors import RunFolderError
from penstock.memory.spans import SpanRing
from penstock.metrics.trace import STEP, ring_path
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.trace import write_trace


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.fresh(tmp_path, "Pendulum-v1", "ppo")
    folder.make()
    folder.write_config(from_mapping({"env": "Pendulum-v1"}))
    return folder


def add_step(run: RunFolder) -> None:
    ring = SpanRing.at(ring_path(run.trace, "learner"))
    ring.add(0, 2_000_000_000, ring.name("learner"), ring.name(STEP))
    ring.close()


def test_a_run_that_kept_none_says_how_to_get_one(run: RunFolder) -> None:
    with pytest.raises(RunFolderError, match=r"kept no trace; penstock train \.\.\. --trace True keeps one"):
        write_trace(run.path, None)


def test_a_trace_without_a_span_is_said_to_hold_nothing(run: RunFolder) -> None:
    SpanRing.at(ring_path(run.trace, "learner")).close()
    with pytest.raises(RunFolderError, match="is empty: the run ended"):
        write_trace(run.path, None)


def test_it_is_written_into_the_run_folder_or_where_it_is_wanted(run: RunFolder, tmp_path: Path) -> None:
    add_step(run)
    said = write_trace(run.path, None)
    assert said.splitlines() == [
        "learner        idle   0%",
        f"2.0 s, 1 spans: {run.path / 'trace.json'} (https://ui.perfetto.dev opens it)",
    ]
    write_trace(run.path, str(tmp_path / "mine.json"))
    assert json.loads((tmp_path / "mine.json").read_text()) == json.loads((run.path / "trace.json").read_text())


def test_an_output_that_cannot_be_written_is_said_in_one_line(run: RunFolder, tmp_path: Path) -> None:
    add_step(run)
    with pytest.raises(RunFolderError, match=r"cannot write .*give another --out"):
        write_trace(run.path, str(tmp_path / "nowhere" / "trace.json"))


def test_another_life_of_a_run_begins_another_trace(run: RunFolder) -> None:
    run.clear_trace()
    add_step(run)
    run.clear_trace()
    assert not run.trace.exists()
