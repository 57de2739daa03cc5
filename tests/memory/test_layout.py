import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.layout import Layout, aligned, aligned_zeros
from penstock.types import ArraySpec

SPECS = [ArraySpec("flag", (3,), "bool"), ArraySpec("obs", (2, 17), "float32"), ArraySpec("count", (), "int64")]


def test_arrays_start_at_cache_lines() -> None:
    layout = Layout(SPECS)
    # flag: 3 bytes -> 64; obs: 2 * 17 * 4 = 136 bytes -> 192; count: 8 bytes -> 64.
    assert layout.offsets == {"flag": 0, "obs": 64, "count": 64 + 192}
    assert layout.nbytes == 64 + 192 + 64
    assert [aligned(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]


def test_zeros_of_a_process_begin_as_a_segment_does() -> None:
    for nbytes in (1, 63, 64, 1000):
        memory = aligned_zeros(nbytes)
        assert (memory.dtype, memory.shape, memory.ctypes.data % 64) == (np.uint8, (nbytes,), 0)
        assert not memory.any()
        memory[...] = 1


def test_views_share_the_memory_and_do_not_overlap() -> None:
    memory = np.zeros(64 + Layout(SPECS).nbytes, np.uint8)
    views = Layout(SPECS).views(memory, offset=64)
    for spec in SPECS:
        assert views[spec.name].shape == spec.shape
        assert views[spec.name].dtype == spec.dtype
        assert np.shares_memory(views[spec.name], memory)
    views["obs"][:] = -1
    assert not memory[:128].any()
    assert not memory[128 + 136 :].any()
    views["count"][...] = 7
    assert Layout(SPECS).views(memory, offset=64)["count"] == 7


def test_an_empty_array_takes_no_room() -> None:
    layout = Layout([ArraySpec("none", (0, 4), "float32"), ArraySpec("some", (1,), "int8")])
    assert layout.nbytes == 64
    assert layout.views(np.zeros(64, np.uint8))["none"].shape == (0, 4)


def test_a_name_stands_once() -> None:
    with pytest.raises(ValueError, match="two arrays are named flag"):
        Layout([SPECS[0], SPECS[0]])


def test_short_memory_is_refused() -> None:
    with pytest.raises(ResourceError, match="320 bytes from byte 1 on; the memory has 320"):
        Layout(SPECS).views(np.zeros(320, np.uint8), offset=1)
