"""The benchmark of a link: its learners are those of a run, and their bytes take their time."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import penstock
from benchmarks import link
from benchmarks.link import SETTINGS, Linked, first_at, linked
from benchmarks.runs import Curve
from penstock.memory.layout import aligned_zeros
from penstock.memory.rounds import Rounds
from penstock.planning import plan, prepare
from penstock.processes.starts import Processes
from penstock.topologies.on_policy import build
from penstock.types import ArraySpec


def test_every_learner_and_no_other_node_gets_the_link(tmp_path: Path) -> None:
    with Processes() as processes:
        config = penstock.from_mapping({**SETTINGS, "log_dir": str(tmp_path)})
        program = build(plan(prepare(config, processes), tmp_path, quiet=True))
    changed = [node.name for node, before in zip(linked(program).nodes, program.nodes, strict=True) if node != before]
    assert changed == ["learner", "learner.1"]


def test_bytes_take_their_time(monkeypatch) -> None:
    """1,000 float32 are 32,000 bits: 0.32 ms at 100 Mbit/s, behind half a millisecond."""
    waits = []
    monkeypatch.setattr(link, "time", SimpleNamespace(perf_counter=lambda: 7.0, sleep=waits.append))
    specs = (ArraySpec("critic", (1000,), "float32"),)
    memory = aligned_zeros(Rounds.required(1, specs))
    team = Linked(Rounds(memory, 1, specs, 0), me=0, alive=lambda: False)
    team.enter({"critic": np.zeros(1000, np.float32)})
    team("actor_critic", {"critic": np.ones(1000, np.float32)}, 1.0)
    assert waits == [pytest.approx(0.00082)]
    assert team.sent() == 4000


def test_a_result_names_the_words_that_it_was_given(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(link, "CASES", ())
    monkeypatch.setattr(
        sys, "argv", ["link", "--seeds", "4", "--write", str(tmp_path / "link.json"), "--timesteps", "9"]
    )
    assert link.main() == 0
    written = json.loads((tmp_path / "link.json").read_text())
    assert written["command"] == "python -m benchmarks.link --seeds 4 --timesteps 9"


def test_the_first_return_at_a_threshold() -> None:
    returns = Curve([10, 20, 30], [1.0, 2.0, 3.0], [5.0, 9.0, 20.0])
    assert (first_at(returns, 9.0), first_at(returns, 21.0)) == (1, None)
