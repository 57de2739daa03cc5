"""How long a run stands still after a death: from times by hand, and the smallest form."""

import json
import math
import sys

import pytest

from benchmarks import leaving
from benchmarks.leaving import Death, bar_of, longest_gap


def test_the_longest_gap_after_a_death_and_before_the_next_one() -> None:
    times = [0.0, 4.0, 5.0, 7.0, 7.5, 11.5]
    assert longest_gap(times, since=4.5, until=7.2) == 2.0
    # The death is within the first gap; the next one ends the span within the third.
    assert longest_gap(times, since=3.0, until=6.0) == 4.0
    # A run that stands still beyond the next death.
    assert longest_gap(times, since=7.1, until=8.0) == 4.0
    assert longest_gap(times, since=12.0, until=15.0) == math.inf


def test_the_worst_death_is_held_to_the_bar() -> None:
    assert bar_of("table", [Death("learner", 0.2), Death("learner", 5.0)]).holds
    assert not bar_of("table", [Death("learner", 0.2), Death("learner", math.inf)]).holds


@pytest.mark.nightly  # It starts four runs. Shorter: the gaps above.
def test_the_smallest_form_writes_what_is_promised(tmp_path, monkeypatch) -> None:
    file = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["leaving", "--deaths", "1", "--write", str(file)])
    leaving.main()
    result = json.loads(file.read_text())
    assert list(result) == ["commit", "machine", "command", "cases"]
    assert [(case["pattern"], case["dies"], len(case["seconds"])) for case in result["cases"]] == [
        (pattern, group, 1) for pattern in ("stream", "table") for group in ("learner", "learner.1")
    ]
