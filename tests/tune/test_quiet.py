"""Ray Tune is quiet for as long as trials go on, and no longer."""

import contextlib
import logging
import os
import warnings

import pytest

from penstock.tune.quiet import quiet_ray_tune


def test_the_program_is_as_it_was_after_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "1")
    monkeypatch.delenv("TUNE_DISABLE_SIGINT_HANDLER", raising=False)
    logger, filters = logging.getLogger("ray.tune"), list(warnings.filters)
    level = logger.level
    with contextlib.suppress(KeyError), quiet_ray_tune():
        assert os.environ["RAY_AIR_NEW_OUTPUT"] == "0"
        assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
        assert logger.level == logging.CRITICAL
        assert warnings.filters != filters
        raise KeyError
    assert os.environ["RAY_AIR_NEW_OUTPUT"] == "1"
    assert "TUNE_DISABLE_SIGINT_HANDLER" not in os.environ
    assert (logger.level, warnings.filters) == (level, filters)
