"""When throughput is back after a fault, and what is judged. Namespaces are made by the benchmark only."""

import math

import pytest

from benchmarks.soak.churn import INTERRUPTED, Fault, Seen, bars_of, recoveries, recovery_s, usual_rates
from benchmarks.soak.log import Reported
from benchmarks.soak.remains import Remains

NOTHING = Remains(0, 0, 0, 0)


def reports(*rates: tuple[float, float, float]) -> list[Reported]:
    """A report every half second, of so many steps a second from one time to another."""
    found, steps = [], 0.0
    for begun, ended, rate in rates:
        for tick in range(int(2 * begun), int(2 * ended)):
            steps += rate / 2
            found.append(Reported(tick / 2, len(found), round(steps), tick / 2, 0))
    return found


@pytest.mark.parametrize(
    ("rates", "seconds"),
    [
        ([(0, 40, 1000)], 0.0),
        # Nothing for five seconds, then all: three whole seconds of 80 % begin about then.
        ([(0, 20, 1000), (25, 40, 1000)], 5.0),
        ([(0, 20, 1000), (20, 40, 700)], math.inf),
        # It recovers only after the next fault.
        ([(0, 20, 1000), (36, 60, 1000)], math.inf),
    ],
)
def test_throughput_is_back_once_it_is_for_three_seconds(rates, seconds: float) -> None:
    found = recovery_s(reports(*rates), 20.0, 38.0, 1000.0)
    assert found == pytest.approx(seconds, abs=1.0)


def test_the_longest_recovery_of_each_kind_is_judged() -> None:
    log = reports((0, 20, 1000), (25, 40, 1000), (60, 100, 1000))
    seen = Seen(log, [Fault("was killed", 20.0), Fault("joined", 40.0)], INTERRUPTED, NOTHING, -150.0, -210.0)
    assert [what for what, _ in recoveries(seen)] == ["was killed", "joined"]
    held = {bar.name: bar.holds for bar in bars_of(seen)}
    assert held["longest recovery after a host was killed, s"]
    assert not held["longest recovery after a host joined, s"]
    assert sum(not holds for holds in held.values()) == 1


def test_throughput_is_judged_by_what_the_hosts_usually_do_that_are_there() -> None:
    # Two hosts do 2,000 steps a second on these cores, three hosts 1,000.
    log = reports((0, 20, 1000), (20, 40, 2000), (40, 60, 1000), (60, 80, 2000), (80, 100, 1000))
    faults = [Fault(what, at) for what, at in zip(["was killed", "joined"] * 2, [20.0, 40.0, 60.0, 80.0], strict=True)]
    seen = Seen(log, faults, INTERRUPTED, NOTHING, -150.0, -210.0)
    assert usual_rates(seen) == pytest.approx({"was killed": 2000, "joined": 1000}, rel=0.06)
    assert max(seconds for _, seconds in recoveries(seen)) < 2
