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
