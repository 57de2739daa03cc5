"""Every benchmark of a mechanism runs in its smallest form and writes what it promises. No time is judged here."""

import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import suite
from benchmarks.record import ROOT

APART = {
    "slots": "--rounds 1 --calls 5 --messages 5",
    "board": "--rounds 1 --messages 5 --sizes 1000 100000",
    "doorbell": "--rounds 1 --messages 5",
    "publish": "--rounds 1 --messages 5",
    "replay": "--rounds 1 --calls 100 --rows 20000 --peers none",
    "start": "--rounds 1",
}
"""Those that fork or start processes: each runs in a process of its own."""
LONG = {
    "central_inference": "--rounds 1 --calls 5 --trips 1 --hidden 8 --lanes 4 --seconds 0.05",
    "first_steps": "--rounds 1",
}
"""They start whole runs, one of them with 64 processes. Shorter: the parsers below, which import both."""
HERE = {
    "act": "--rounds 1 --calls 2",
    "update": "--rounds 1 --minibatches 2 --backends fused eager",
    "replay_update": "--rounds 1 --steps 2 --backends fused eager",
    "env_step": "--rounds 1 --cases Pendulum-v1:1 CartPole-v1:8:vector",
    "delta": "--rounds 1 --calls 5",
}
"""Those of one process: they run in the process of the tests, which has imported torch."""
QUICK = {"slots", "board", "doorbell", "publish", "act", "delta"}
"""The others take three seconds and more. Shorter: the parsers below, which import all."""


def at_night(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in names]


@pytest.mark.parametrize("name", at_night({**APART, **LONG}))
def test_the_smallest_form_writes_what_is_promised(name, tmp_path):
    file = tmp_path / "result.json"
    words = {**APART, **LONG}[name].split()
    command = [sys.executable, "-m", f"benchmarks.{name}", *words, "--write", str(file)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    is_as_promised(json.loads(file.read_text()), name, words)


@pytest.mark.parametrize("name", at_night(HERE))
def test_the_smallest_form_of_one_process_writes_what_is_promised(name, tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    words = HERE[name].split()
    monkeypatch.setattr(sys, "argv", [name, *words, "--write", str(file)])
    importlib.import_module(f"benchmarks.{name}").main()
    is_as_promised(json.loads(file.read_text()), name, words)


def is_as_promised(result, name, words):
    assert list(result)[:4] == ["commit", "machine", "command", "ratios"]
    assert result["command"] == " ".join([f"python -m benchmarks.{name}", *words])
    kinds = {}
    for row in result["rows"]:
        assert set(row) <= {"case", "what", "kind", "us", "p99_us", "may_be_us", "p99_may_be_us"}
        kinds.setdefault(row["case"], []).append(row["kind"])
    assert set(kinds) == set(result["ratios"])
    for case, found in kinds.items():
        assert found[0] == "penstock", case
        assert {"peer", "limit"} & set(found), case
        assert len(result["ratios"][case]) == len(found) - 1, case


@pytest.mark.parametrize("module", sorted({entry.command.split()[0] for entry in suite.SUITE}))
def test_every_entry_has_a_benchmark_whose_parser_works(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{module}", raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__")
    assert end.value.code == 0
    assert "--write" in capsys.readouterr().out


def test_an_unknown_case_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["env_step", "--cases", "Pendulum-v1:3"])
    with pytest.raises(SystemExit):
        importlib.import_module("benchmarks.env_step").main()
    assert "invalid choice: 'Pendulum-v1:3'" in capsys.readouterr().err


def test_one_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    failing = suite.Entry("failing", "doorbell --no_such_flag", None)
    passing = suite.Entry("passing", "doorbell --rounds 1 --messages 2", None)
    assert suite.run([failing, passing], quick=False) == ["failing"]
    assert (tmp_path / "passing.json").exists()
    assert not (tmp_path / "failing.json").exists()


@pytest.mark.parametrize(("quick", "failed"), [(False, ["short", "broken"]), (True, ["broken"])])
def test_one_that_misses_a_bar_does_not_stop_the_others_and_fails_in_the_long_form(
    quick, failed, tmp_path, monkeypatch
):
    """The last argument of each command is the file of its result."""
    ended = {"benchmarks.short": 1, "benchmarks.broken": 1, "benchmarks.good": 0}

    def run(command, **settings):
        if command[2] != "benchmarks.broken":
            Path(command[-1]).write_text("{}")
        return SimpleNamespace(returncode=ended[command[2]])

    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    monkeypatch.setattr(suite, "QUICK_RESULTS", tmp_path)
    monkeypatch.setattr(suite, "subprocess", SimpleNamespace(run=run))
    (tmp_path / "broken.json").write_text("of an earlier sitting")
    assert suite.run([suite.Entry(name, name, "") for name in ("short", "broken", "good")], quick=quick) == failed
    assert (tmp_path / "good.json").exists()


def test_what_is_short_is_only_shorter():
    for entry in suite.SUITE:
        whole, short = suite.words(entry, quick=False), suite.words(entry, quick=True)
        assert short[: len(whole)] == whole
