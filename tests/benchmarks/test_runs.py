"""Waiting for a training that was started. Nothing is trained here."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.runs import begun


def test_a_run_that_ends_before_its_first_report_is_not_waited_for(tmp_path: Path) -> None:
    command = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with command, pytest.raises(RuntimeError, match="ended with 3 before its first report"):
        begun(command, tmp_path / "logs", limit_s=60.0)


def test_an_empty_log_is_no_report(tmp_path: Path) -> None:
    run = tmp_path / "logs" / "run"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").touch()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as command:
        with pytest.raises(RuntimeError, match="has reported nothing"):
            begun(command, tmp_path / "logs", limit_s=0.2)
        (run / "metrics.jsonl").write_text("{}\n", encoding="utf-8")
        assert begun(command, tmp_path / "logs", limit_s=60.0) == run
        command.kill()
