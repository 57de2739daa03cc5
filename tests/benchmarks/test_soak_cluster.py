"""What is judged of a cluster's soak. Namespaces are made by the soak only."""

import math

import pytest

from benchmarks.soak.cluster import INTERRUPTED, Watched, bars_of
from benchmarks.soak.measures import Sample
from benchmarks.soak.processes import Held, Process

MINUTES = 10


def grown(name: str, mb_a_minute: float, minutes: float = MINUTES, pid: int = 1) -> dict[Process, list[Sample]]:
    """One process, sampled every second."""
    looks = [
        Sample(float(second), None, Held(100.0 + mb_a_minute * second / 60.0, 0.0, 10, 5))
        for second in range(int(60 * minutes))
    ]
    return {Process(pid, 0, name): looks}


def values(watched: Watched) -> dict[str, float]:
    return {bar.name: bar.value for bar in bars_of(watched, MINUTES)}


def test_the_steepest_process_of_each_kind_is_judged() -> None:
    samples = grown("raylet on penstock-0", 0.1, pid=1) | grown("raylet on penstock-1", 2.0, pid=2)
    found = values(Watched(samples | grown("launcher on penstock-0", -1.0, pid=3), status=INTERRUPTED))
    assert found["memory of raylet: MB a minute"] == pytest.approx(2.0)
    assert found["memory of launcher: MB a minute"] == pytest.approx(-1.0)
    assert math.isnan(found["memory of deputy: MB a minute"])


def test_a_process_that_lived_for_a_part_of_the_time_is_not_judged() -> None:
    found = values(Watched(grown("raylet on penstock-2", 5.0, minutes=3)))
    assert math.isnan(found["memory of raylet: MB a minute"])


def test_every_bar_has_a_name_of_its_own() -> None:
    names = [bar.name for bar in bars_of(Watched(), MINUTES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("watched", "short"),
    [
        (Watched(status=INTERRUPTED), set()),
        (Watched(status=INTERRUPTED, left=1), {"processes that are left"}),
        (Watched(status=INTERRUPTED, unbalanced=1), {"reports whose rows do not add up"}),
        (Watched(status=1), {"exit code, apart from that of an interrupt"}),
        (Watched(status=139), {"exit code, apart from that of an interrupt"}),
    ],
)
def test_what_is_left_or_does_not_add_up_falls_short(watched: Watched, short: set[str]) -> None:
    assert {bar.name for bar in bars_of(watched, MINUTES) if not bar.holds and math.isfinite(bar.value)} == short
