"""The way in to a cluster, which imports Ray only once it is needed."""

import pytest

from penstock.cluster import launch
from penstock.errors import ConfigError


def test_without_ray_both_flags_that_need_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(reference: str) -> None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    monkeypatch.setattr(launch, "load", load)
    with pytest.raises(ConfigError, match=r"^--distributed True and --runtime ray need Ray; type: pip install 'pens"):
        launch.counted(None, ())
