"""A ring of spans keeps the latest spans of all nodes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ResourceError
from penstock.memory import spans
from penstock.memory.segment import Segment
from penstock.memory.spans import RecordedSpans, SpanRing, read_spans


def read(path: Path) -> RecordedSpans:
    recorded = read_spans(path)
    assert recorded is not None
    return recorded


def test_what_is_added_is_read_by_its_names(tmp_path: Path) -> None:
    ring = SpanRing.at(tmp_path / "new" / "a", capacity=4)
    node = ring.name("env.0")
    ring.add(100, 250, node, ring.name("step"))
    ring.add(260, 270, node, ring.name("rollout"))
    recorded = read(tmp_path / "new" / "a")
    assert recorded.names == ("env.0", "step", "rollout")
    assert recorded.spans.tolist() == [(100, 250, 0, 1), (260, 270, 0, 2)]
    assert recorded.overwritten == 0


def test_the_latest_stay_and_the_rest_is_counted(tmp_path: Path) -> None:
    ring = SpanRing.at(tmp_path / "a", capacity=4)
    name = ring.name("step")
    for number in range(10):
        ring.add(number, number + 1, name, name)
    recorded = read(tmp_path / "a")
    # 6, 7, 8 and 9 stand there; the place of the oldest is where the eleventh may be half written.
    assert recorded.spans["begin"].tolist() == [7, 8, 9]
    assert recorded.overwritten == 7
    assert (tmp_path / "a").stat().st_size == 64 + 256 * 64 + 4 * 24


def test_a_process_that_is_killed_leaves_what_it_added_and_its_successor_goes_on(tmp_path: Path) -> None:
    source = (
        "import os, signal, sys; from pathlib import Path; from penstock.memory.spans import SpanRing\n"
        "ring = SpanRing.at(Path(sys.argv[1]), 8); name = ring.name('step'); ring.add(1, 2, name, name)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", source, tmp_path / "a"], check=False, env=os.environ)
    assert died.returncode == -signal.SIGKILL
    ring = SpanRing.at(tmp_path / "a", 8)
    ring.add(3, 4, ring.name("step"), ring.name("close"))
    recorded = read(tmp_path / "a")
    assert recorded.names == ("step", "close")
    assert recorded.spans["begin"].tolist() == [1, 3]


def test_a_process_that_dies_before_its_file_has_a_size_leaves_a_file_for_its_successor(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    ring = SpanRing.at(tmp_path / "a", 4)
    ring.add(1, 2, ring.name("env.0"), ring.name("step"))
    assert read(tmp_path / "a").spans.tolist() == [(1, 2, 0, 1)]


def test_a_full_disk_leaves_an_empty_file_for_a_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def full(descriptor: int, nbytes: int) -> None:
        given.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a").touch()
    with monkeypatch.context() as patch:
        patch.setattr(spans, "reserve", full)
        with pytest.raises(ResourceError, match="a: No space left on device"):
            SpanRing.at(tmp_path / "a", 4)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given[0])
    assert (tmp_path / "a").stat().st_size == 0
    SpanRing.at(tmp_path / "a", 4).close()


def test_a_process_that_dies_before_it_has_counted_a_name_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(BaseException):
        """Ends the writer where it stands."""

    class Count:
        def pack_into(self, *_: object) -> None:
            raise Dead

    ring = SpanRing(Segment.create(64 + 256 * 64 + 4 * 24, "a", tmp_path / "a"))
    with monkeypatch.context() as dying:
        dying.setattr(spans, "_COUNT", Count())
        with pytest.raises(Dead):
            ring.name("restore an episode")
    ring = SpanRing.at(tmp_path / "a", 4)
    ring.name("step")
    assert read(tmp_path / "a").names == ("step",)


def test_names_that_find_no_room_share_one(tmp_path: Path) -> None:
    ring = SpanRing.at(tmp_path / "a", 4)
    numbers = [ring.name(f"name {index}") for index in range(300)]
    assert numbers[:255] == list(range(255))
    assert set(numbers[255:]) == {255}
    names = read(tmp_path / "a").names
    assert (len(names), names[254], names[255]) == (256, "name 254", "other")
    again = SpanRing.at(tmp_path / "a", 4)
    assert [again.name("name 254"), again.name("name 299")] == [254, 255]


def test_a_name_is_cut_where_the_table_ends_it(tmp_path: Path) -> None:
    ring = SpanRing.at(tmp_path / "a", 4)
    assert (ring.name("x" * 100), ring.name("y")) == (0, 1)
    assert read(tmp_path / "a").names == ("x" * 64, "y")


def test_a_span_with_a_name_that_was_not_yet_written_is_left_out(tmp_path: Path) -> None:
    ring = SpanRing.at(tmp_path / "a", 4)
    name = ring.name("step")
    ring.add(1, 2, name, 5)
    ring.add(2, 3, name, name)
    assert read(tmp_path / "a").spans["begin"].tolist() == [2]


def test_what_is_no_ring_is_refused_and_read_as_nothing(tmp_path: Path) -> None:
    SpanRing.at(tmp_path / "a", 4).close()
    path = tmp_path / "a"
    with pytest.raises(ResourceError):
        SpanRing.at(path, 5)
    content = path.read_bytes()
    for wrong in (b"", content[:-1], b"x" * len(content), bytes(len(content)), content[:8] + bytes(len(content) - 8)):
        path.write_bytes(wrong)
        assert read_spans(path) is None
    path.write_bytes(b"x" * len(content))
    with pytest.raises(ResourceError, match="no ring of 4 spans"):
        SpanRing.at(path, 4)
    assert read_spans(tmp_path / "nothing") is None
