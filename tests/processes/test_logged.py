"""What a process tells of its warnings, and that they are shown as they were."""

import logging
import warnings
from collections.abc import Iterator

import pytest

from penstock.processes import logged
from penstock.processes.log_lines import LINE_BYTES, as_bytes
from penstock.processes.logged import TEXTS, Teller, listen


class Channel:
    """Takes lines while it has room."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_full = False

    def send(self, line: bytes) -> bool:
        if not self.is_full:
            self.lines.append(line)
        return not self.is_full


@pytest.fixture
def channel() -> Channel:
    return Channel()


def test_a_line_that_comes_a_thousand_times_is_told_with_its_count(channel: Channel) -> None:
    teller = Teller(channel.send)
    for _ in range(1234):
        teller.tell("WARNING", "plant.py:7", "too hot")
    counts = [1, 9, 90, 900]
    assert channel.lines == [as_bytes("WARNING", "too hot", count) for count in counts]
    teller.close()
    assert channel.lines[-1] == as_bytes("WARNING", "too hot", 1234 - sum(counts))
    teller.close()
    assert len(channel.lines) == 5


def test_a_line_that_finds_no_room_is_told_when_it_comes_again_or_at_the_end(channel: Channel) -> None:
    teller = Teller(channel.send)
    channel.is_full = True
    for text in ("too hot", "too hot", "too cold"):
        teller.tell("WARNING", "plant.py:7", text)
    channel.is_full = False
    teller.tell("WARNING", "plant.py:7", "too hot")
    assert channel.lines == [as_bytes("WARNING", "too hot", 3)]
    teller.close()
    assert channel.lines[1:] == [as_bytes("WARNING", "too cold", 1)]


def test_a_place_that_says_something_else_each_time_fills_no_log(channel: Channel) -> None:
    teller = Teller(channel.send)
    for step in range(TEXTS + 20):
        teller.tell("WARNING", "plant.py:7", f"{step} degrees")
    teller.tell("WARNING", "plant.py:9", "\x1b[33malone\x1b[0m")
    rest = f"{TEXTS} degrees (from here on, all other texts of this place count as this one)"
    assert channel.lines == [
        *(as_bytes("WARNING", f"{step} degrees", 1) for step in range(TEXTS)),
        *(as_bytes("WARNING", rest, count) for count in (1, 9)),
        as_bytes("WARNING", "alone", 1),
    ]


def test_of_a_text_that_is_longer_than_a_line_no_more_is_kept(channel: Channel) -> None:
    teller = Teller(channel.send)
    for end in ("a", "b"):
        teller.tell("WARNING", "plant.py:7", "too hot " * LINE_BYTES + end)
    assert len(channel.lines) == 1
    teller.close()
    assert channel.lines[0] == channel.lines[1]
    assert sum(len(text) for _, text in teller._said) == LINE_BYTES


def test_after_many_different_lines_further_ones_are_only_counted(channel: Channel, monkeypatch) -> None:
    monkeypatch.setattr(logged, "MOST", 2)
    teller = Teller(channel.send)
    for line in range(5):
        teller.tell("WARNING", f"plant.py:{line}", "too hot")
    assert len(channel.lines) == 2
    teller.close()
    assert channel.lines[2:] == [as_bytes("WARNING", "a line that is left out, as 2 different ones came before", 3)]


def test_a_child_that_an_environment_forks_tells_its_own_lines_and_none_of_its_parent(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = Teller(channel.send)
    for _ in range(5):
        teller.tell("WARNING", "plant.py:7", "too hot")
    del channel.lines[:]
    monkeypatch.setattr(logged.os, "getpid", lambda: -1)
    for _ in range(10):
        teller.tell("WARNING", "plant.py:7", "too hot")
    assert channel.lines == [as_bytes("WARNING", "too hot", count) for count in (1, 9)]


class Heard(list[tuple[str, str, str]]):
    """Levels, places and texts."""

    def tell(self, level: str, place: str, text: str) -> None:
        self.append((level, place, text))


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What a process hears of itself. Its hooks are gone after the test."""
    factory, show = logging.getLogRecordFactory(), warnings.showwarning
    yield Heard()
    logging.setLogRecordFactory(factory)
    warnings.showwarning = show


def measure() -> None:
    raise ValueError("no sensor")


def warn(heard: Heard) -> None:
    listen(heard.tell)
    warnings.warn("too hot", stacklevel=1)
    with warnings.catch_warnings(record=True):
        warnings.warn("too cold", stacklevel=1)


def test_warnings_and_errors_are_heard_with_logger_and_exception_and_are_shown_as_before(heard: Heard, caplog) -> None:
    handlers = list(logging.root.handlers)
    listen(heard.tell)
    log = logging.getLogger("plant")
    logging.warning("too hot: %d", 90)
    log.info("warm")
    try:
        measure()
    except ValueError:
        log.exception("cannot measure")
    assert [(level, text) for level, _, text in heard] == [
        ("WARNING", "too hot: 90"),
        ("ERROR", "plant: cannot measure (ValueError: no sensor)"),
    ]
    assert all(place.rpartition(":")[0] == __file__ for _, place, _ in heard)
    assert [record.getMessage() for record in caplog.records] == ["too hot: 90", "cannot measure"]
    assert logging.root.handlers == handlers


def test_what_the_warnings_module_shows_is_heard_with_its_place_and_what_is_caught_is_not(heard: Heard) -> None:
    with pytest.warns(UserWarning, match="^too hot$"):
        warn(heard)
    ((level, place, text),) = heard
    name, _, line = place.rpartition(":")
    assert (level, name) == ("WARNING", __file__)
    assert text == f"test_logged.py:{line}: UserWarning: too hot"


def test_warnings_that_logging_captures_keep_the_places_that_they_come_from(heard: Heard) -> None:
    listen(heard.tell)
    logging.captureWarnings(True)
    try:
        for line in (3, 4):
            warnings.warn_explicit("too hot", UserWarning, "plant.py", line)
    finally:
        logging.captureWarnings(False)
    assert [place for _, place, _ in heard] == ["plant.py:3", "plant.py:4"]
    assert [text.rstrip() for *_, text in heard] == [
        "py.warnings: plant.py:3: UserWarning: too hot",
        "py.warnings: plant.py:4: UserWarning: too hot",
    ]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("it has no name")


def test_a_text_that_cannot_be_made_and_a_record_without_a_level_end_nothing(heard: Heard) -> None:
    listen(heard.tell)
    with pytest.raises(RuntimeError, match="it has no name"):
        # As the handlers of pytest raise it. Those of a process show it, and go on.
        logging.getLogger("plant").warning("%s", Unspeakable())
    assert logging.makeLogRecord({"msg": "of another process"}).msg == "of another process"
    assert heard == []
