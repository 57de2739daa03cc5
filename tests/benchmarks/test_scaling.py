"""The physical limit of scaling, where its processes do not answer."""

import pytest

from benchmarks import scaling


def test_a_bare_environment_that_ends_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(scaling, "START_LIMIT_S", 0.2)
    monkeypatch.setattr(scaling, "_step_alone", print)  # it ends without an answer
    with pytest.raises(RuntimeError, match="a bare environment has ended"):
        scaling.limit(2, steps=1)
