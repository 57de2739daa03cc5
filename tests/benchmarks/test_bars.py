"""Whether a value reaches its bar, and how that is written."""

import math

from benchmarks.bars import Bar, exit_status
from benchmarks.record import ROOT


def test_at_least() -> None:
    assert Bar("ratio", 4.0, 4).holds
    assert not Bar("ratio", 3.99, 4).holds
    assert Bar("ratio", 3.99, 4).line() == "ratio: 3.99 (at least 4): FALLS SHORT"
    assert Bar("ratio", 4.1234, 4).entry() == {"name": "ratio", "value": 4.123, "at_least": 4, "holds": True}


def test_at_most() -> None:
    assert Bar("seconds", 1.5, 1.5, at_most=True).holds
    assert not Bar("seconds", 1.51, 1.5, at_most=True).holds
    assert Bar("seconds", 1.0, 1.5, at_most=True).line() == "seconds: 1.00 (at most 1.5): holds"


def test_a_benchmark_fails_if_one_of_its_bars_does() -> None:
    holds, falls_short = Bar("ratio", 4.0, 4), Bar("ratio", 3.99, 4)
    assert [exit_status(bars) for bars in ([], [holds], [holds, falls_short])] == [0, 0, 1]


def test_each_benchmark_with_bars_ends_by_them() -> None:
    found = {path.name: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    judged = {name: text for name, text in found.items() if "import Bar" in text and "def main(" in text}
    assert len(judged) > 15
    for name, text in judged.items():
        assert "return exit_status(" in text, name
        assert "exit(main())" in text.lower(), name


def test_what_never_came_falls_short_and_can_be_written() -> None:
    assert Bar("seconds", math.inf, 6, at_most=True).entry() == {
        "name": "seconds",
        "value": None,
        "at_most": 6,
        "holds": False,
    }
