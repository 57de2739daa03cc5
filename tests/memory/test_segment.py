import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.segment import Segment


def test_a_new_segment_is_zero_and_writable() -> None:
    segment = Segment.create(10_000, "test")
    assert segment.bytes.shape == (10_000,)
    assert segment.bytes.dtype == np.uint8
    assert not segment.bytes.any()
    segment.bytes[:] = 1
    segment.close()
    segment.close()


def test_two_processes_see_one_memory(program) -> None:
    segment = Segment.create(4096, "test")
    segment.bytes[0] = 41
    child = program("memory[1] = memory[0] + 1; memory[4095] = 9", segment)
    assert child.wait() == 0
    assert segment.bytes[1] == 42
    assert segment.bytes[4095] == 9
    segment.close()


def test_a_reader_cannot_write() -> None:
    segment = Segment.create(4096, "test")
    reader = Segment.attach(os.dup(segment.fd), 4096, writable=False)
    segment.bytes[5] = 3
    assert reader.bytes[5] == 3
    with pytest.raises(ValueError, match="read-only"):
        reader.bytes[5] = 4
    reader.close()
    segment.close()


def test_no_name_is_left_even_after_a_kill() -> None:
    """A file without a link has no name, and the system frees it with the last process that holds it."""
    segment = Segment.create(4096, "test")
    attached = Segment.attach(os.dup(segment.fd), 4096)
    assert os.fstat(segment.fd).st_nlink == os.fstat(attached.fd).st_nlink == 0
    attached.close()
    segment.close()


def test_close_gives_the_descriptors_back() -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0

    before = open_descriptors()
    segment = Segment.create(4096, "test")
    view = segment.bytes[:8]
    segment.close()
    view[:] = 1  # still mapped while something views it
    assert segment.bytes.size == 0
    del view, segment
    assert open_descriptors() == before


def test_what_this_process_starts_does_not_inherit_a_segment() -> None:
    segment = Segment.create(4096, "test")
    assert not os.get_inheritable(segment.fd)
    segment.close()


def test_a_segment_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table"
    segment = Segment.create(10_000, "table", path)
    segment.bytes[9_999] = 7
    segment.close()
    assert path.stat().st_size == 10_000
    again = Segment.attach(os.open(path, os.O_RDWR), 10_000)
    assert again.bytes[9_999] == 7
    again.close()


@pytest.mark.parametrize("nbytes", [0, -4])
def test_a_segment_has_a_size(nbytes: int) -> None:
    with pytest.raises(ResourceError, match="at least 1 byte; test asks for"):
        Segment.create(nbytes, "test")


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("precious")
    with pytest.raises(ResourceError, match="File exists"):
        Segment.create(100, "table", path)
    assert path.read_text() == "precious"


def test_no_space_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with pytest.raises(ResourceError, match="no space for the segment table"):
        Segment.create(1 << 62, "table", path)
    assert not path.exists()


def test_a_descriptor_that_holds_less_is_refused() -> None:
    segment = Segment.create(4096, "test")
    with pytest.raises(ResourceError, match="cannot map a segment of 5000 bytes"):
        Segment.attach(os.dup(segment.fd), 5000)
    segment.close()
    with pytest.raises(ResourceError, match="at descriptor 999"):
        Segment.attach(999, 10)


def test_whole_pages_that_are_given_back_read_as_zeros() -> None:
    page = mmap.PAGESIZE
    segment = Segment.create(8 * page, "test")
    reader = Segment.attach(os.dup(segment.fd), 8 * page, writable=False)
    segment.bytes[...] = 1
    # From the middle of page 1 to the middle of page 5: pages 2 to 4 lie there as a whole.
    segment.give_back(segment.bytes[page + page // 2 : 5 * page + page // 2].view(np.float32))
    for memory in (segment.bytes, reader.bytes):
        assert [int(memory[number * page]) for number in range(8)] == [1, 1, 0, 0, 0, 1, 1, 1]
        assert memory.sum() == 5 * page
    # Less than a page is nothing.
    segment.give_back(segment.bytes[1 : page + 1])
    assert segment.bytes.sum() == 5 * page
    # It may be written again.
    segment.bytes[3 * page] = 7
    assert reader.bytes[3 * page] == 7
    reader.close()
    segment.close()
