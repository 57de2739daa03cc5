"""Fixtures of the tests that kill nodes."""

from pathlib import Path

import pytest

from tests.chaos import oracle


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the updater writes down what it learns from."""
    monkeypatch.setattr("penstock.planning.plans.UPDATES", oracle.UPDATES)
    path = tmp_path / "learned"
    monkeypatch.setenv(oracle.LOG, str(path))
    return path
