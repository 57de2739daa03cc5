"""The physical limit of scaling, where its processes do not answer, and its bar."""

import sys

import pytest

from benchmarks import scaling


def test_a_bare_environment_that_ends_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(scaling, "START_LIMIT_S", 0.2)
    monkeypatch.setattr(scaling, "_step_alone", print)  # it ends without an answer
    with pytest.raises(RuntimeError, match="a bare environment has ended"):
        scaling.limit(2, steps=1)


@pytest.mark.parametrize(("steps_per_s", "status"), [(359, 1), (360, 0)])
def test_a_missed_bar_is_the_exit_status(monkeypatch, steps_per_s: int, status: int) -> None:
    """Nine tenths of four times the 100 steps a second of one worker are 360."""
    rates = {1: 100, 4: steps_per_s}
    monkeypatch.setattr(scaling, "limit", lambda workers, steps: 0.0)
    monkeypatch.setattr(scaling, "penstock", lambda workers, batches: ())
    monkeypatch.setattr(scaling, "row", lambda workers, bare: {"workers": workers, "steps_per_s": rates[workers]})
    monkeypatch.setattr(sys, "argv", ["scaling", "--workers", "1", "4"])
    assert scaling.main() == status
