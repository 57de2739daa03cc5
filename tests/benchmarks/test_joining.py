"""When a host that joins has delivered rows, and what is judged. Namespaces are made by the benchmark only."""

import math

import pytest

from benchmarks.joining import RESOURCES, SETTING, SHARE, WORKERS, Joined, bars_of, has_delivered, row_of, share_of


def updated(update: int) -> dict[str, object]:
    return {"update": update, "steps": 100 * update, "time_s": 2.0 * update, "throughput/steps_per_second": 50.0}


def moved(update: int, node: str = "env.3") -> dict[str, object]:
    note = f"{node} moved to a machine that has joined (restart 1)"
    return {"update": update, "steps": 100 * update, "time_s": 2.0 * update, f"restarts/{node}": 1, "note": note}


DIED = {**moved(8), "note": "env.3 was ended by SIGKILL after 3.0 s and was started again (restart 1)"}


@pytest.mark.parametrize(
    ("lines", "delivered"),
    [
        pytest.param([updated(8), updated(12)], False, id="nothing has moved"),
        pytest.param([DIED, updated(12)], False, id="a process died"),
        pytest.param([moved(8)], False, id="no update yet"),
        pytest.param([moved(8), updated(9), updated(10)], False, id="these may hold older rollouts"),
        pytest.param([moved(8), updated(9), updated(11)], True, id="the third update"),
        pytest.param([moved(8), moved(9, "env.4"), updated(11)], False, id="the last move counts"),
        pytest.param([moved(8), moved(9, "env.4"), updated(12)], True, id="the third update after the last move"),
    ],
)
def test_rows_of_a_host_are_learned_from_with_the_third_update_after_the_last_move(lines, delivered: bool) -> None:
    assert has_delivered(lines) is delivered


def test_the_share_of_a_host_is_that_of_its_environment_processes() -> None:
    assert share_of({"env.3", "env.7", "learner", "ray::Host", "raylet"}) == 2 / WORKERS
    assert share_of({"raylet"}) == 0.0
    cores = [host["CPU"] for host in RESOURCES]
    assert cores[2] / sum(cores) == SHARE
    assert SETTING["num_envs"] % WORKERS == 0


def test_the_longest_join_and_the_smallest_share_are_judged() -> None:
    found = [Joined(4.04, 9.0, 0.25), Joined(10.0, 15.5, 0.25)]
    assert [bar.holds for bar in bars_of(found)] == [True, True]
    assert row_of(found) == {
        "median_s": 7.0,
        "largest_s": 10.0,
        "seconds": [4.0, 10.0],
        "since_command_s": [9.0, 15.5],
        "shares": [0.25, 0.25],
    }
    assert [bar.holds for bar in bars_of([*found, Joined(10.1, 15.0, 0.25)])] == [False, True]
    assert [bar.holds for bar in bars_of([*found, Joined(3.0, 8.0, 0.125)])] == [True, False]
    never = [*found, Joined(math.inf, math.inf, 0.0)]
    assert [bar.holds for bar in bars_of(never)] == [False, False]
    assert row_of(never)["seconds"] == [4.0, 10.0, None]
