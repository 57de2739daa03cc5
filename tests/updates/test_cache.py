"""The compiled update is built once and found again."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from penstock.updates import compiled
from penstock.updates.compiled import library
from tests.updates import counting


def make():
    torch.set_num_threads(1)
    return compiled.CompiledUpdater(counting.build(), counting.settings(7), counting.stream())


@pytest.mark.nightly  # A minute if the update was never compiled here. Shorter: the last one of this module.
def test_a_second_start_finds_the_library(monkeypatch):
    make()

    def refuse(*arguments):
        pytest.fail("compiled again")

    monkeypatch.setattr(library, "_compile", refuse)
    updater = make()
    updater.begin([0, 1], 0.0)
    updater.minibatches(np.array([[0, 1, 2, 3, 4, 5, 6]]), np.ones((1, 7), np.float32))
    assert updater.state()["seen"][:8].tolist() == [1.0] * 7 + [0.0]


def test_the_cache_is_where_the_user_keeps_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library._place("a.so") == tmp_path / "penstock" / "updates" / "a.so"
    assert (tmp_path / "penstock" / "updates").is_dir()


def test_without_a_place_to_write_torchs_own_cache_serves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    assert library._place("a.so") == tmp_path / "torch" / "penstock" / "a.so"


def test_a_folder_that_can_only_be_read_is_left_for_torchs_own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    asked = []

    def refuse(path, mode):
        asked.append((path, mode))
        return False

    # The tests may run as root, whom no mode of a folder stops.
    monkeypatch.setattr(library.os, "access", refuse)
    assert library._place("a.so") == tmp_path / "torch" / "penstock" / "a.so"
    assert asked == [(tmp_path / "penstock" / "updates", os.W_OK)]
    # What it holds already is loaded from there.
    (tmp_path / "penstock" / "updates" / "a.so").touch()
    assert library._place("a.so") == tmp_path / "penstock" / "updates" / "a.so"


def test_without_a_home_torchs_own_cache_serves(tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(library.Path, "home", homeless)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    assert library._place("a.so") == tmp_path / "torch" / "penstock" / "a.so"


def test_the_key_names_threads(monkeypatch):
    """The number of threads is compiled in: a library for one thread does not serve two."""
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    torch.set_num_threads(1)
    one = library._key(graph, [torch.zeros(3)])
    torch.set_num_threads(2)
    two = library._key(graph, [torch.zeros(3)])
    torch.set_num_threads(1)
    assert len({one, two, library._key(graph, [torch.zeros(4)])}) == 3
    assert library._key(graph, [torch.zeros(3)]) == one


def test_who_asks_while_another_compiles_waits_and_finds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled_by = []

    def compile_slowly(graph, inputs, path):
        compiled_by.append(threading.get_ident())
        began.set()
        waiting.wait(90)
        path.write_bytes(b"")

    class Found:
        def __init__(self, path, count):
            self.run = path

    began, waiting = threading.Event(), threading.Event()
    monkeypatch.setattr(library, "_compile", compile_slowly)
    monkeypatch.setattr(torch._C._aoti, "AOTIModelContainerRunnerCpu", Found)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(library.library, torch.neg, [torch.zeros(3)], [])
        began.wait(90)
        second = pool.submit(library.library, torch.neg, [torch.zeros(3)], [])
        waiting.set()
        assert first.result()[0] == second.result()[0]
    assert len(compiled_by) == 1
