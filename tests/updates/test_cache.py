"""The compiled update is built once and found again."""

import numpy as np
import pytest
import torch

from penstock.updates import compiled
from tests.updates import counting


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "penstock" / "updates"


def make():
    torch.set_num_threads(1)
    return compiled.CompiledUpdater(counting.build(), counting.spec(4), counting.stream(), torch.device("cpu"))


def test_a_second_start_finds_the_library(home, monkeypatch):
    make()
    (library,) = home.iterdir()
    assert library.suffix == ".so"

    def refuse(*arguments):
        pytest.fail("compiled again")

    monkeypatch.setattr(compiled, "_compile", refuse)
    updater = make()
    updater.begin([0, 1], 0.0)
    updater.minibatches(np.array([[0, 1, 2, 3]]), np.ones((1, 4), np.float32))
    assert updater.state()["seen"][:5].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
