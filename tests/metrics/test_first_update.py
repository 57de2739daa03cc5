"""What a run without an update says that it waits for."""

import pytest

from penstock.metrics.first_update import FirstUpdate

PLAYED = "each lane plays 64 steps before it (--num_steps; lanes: 4)"
STREAM = FirstUpdate({"env.0": 0, "env.1": 100}, ("learner", "learner.1"), None, PLAYED, "2 learners learn from them")
TABLE = STREAM._replace(least=1000, played="the lanes together play 1,000 steps before it (--min_rows)")

NOW = 100 * 10**9
OPEN = {"begun": 1, "busy_until_ns": 0, "busy_ns": 5, "idle_ns": 5, "collected": 0, "heartbeat_ns": NOW - 5 * 10**9}
STUCK = {**OPEN, "heartbeat_ns": NOW - 30 * 10**9}
ABSENT = dict.fromkeys(OPEN, 0)
OPENING = {**ABSENT, "begun": 1, "busy_until_ns": 10**9}
ALL_OPEN = dict.fromkeys(("env.0", "env.1", "learner", "learner.1", "monitor"), OPEN)


def gave(first: int, second: int) -> dict[str, dict[str, int]]:
    return {**ALL_OPEN, "env.0": {**OPEN, "collected": first}, "env.1": {**OPEN, "collected": second}}


def test_learners_and_environments_that_are_not_there_are_named() -> None:
    # The rollouts are full, so it is not their length that the run waits for.
    assert STREAM.awaited({**gave(128, 228), "learner.1": ABSENT}, NOW) == "not started yet: learner.1"
    said = STREAM.awaited({**ALL_OPEN, "env.0": OPENING, "learner.1": ABSENT}, NOW)
    assert said == "not started yet: learner.1; still starting up, or in a first long step: env.0"


@pytest.mark.parametrize("without_turn", [{**OPEN, "busy_ns": 0, "idle_ns": 0}, {**OPEN, "busy_until_ns": 10**9}])
def test_an_open_node_is_not_said_to_start(without_turn: dict[str, int]) -> None:
    """One process may have nodes that always work and one that waits. And any step may be announced as long."""
    assert STREAM.awaited({**gave(128, 228), "learner": without_turn}, NOW).startswith("its rows are there")


def test_rollouts_that_are_not_full_are_named() -> None:
    assert STREAM.awaited(gave(0, 0), NOW) == f"no full rollout yet of env.0, env.1; {PLAYED}"
    # The rows of before a resume do not count.
    assert STREAM.awaited(gave(128, 100), NOW) == f"no full rollout yet of env.1; {PLAYED}"
    assert STREAM.awaited(gave(128, 228), NOW) == "its rows are there, and 2 learners learn from them"
    many = STREAM._replace(given={f"env.{number}": 0 for number in range(9)})
    counters = {**ALL_OPEN, **dict.fromkeys(many.given, OPEN)}
    assert many.awaited(counters, NOW) == f"no full rollout yet of env.0, env.1, env.2, env.3 and 5 more; {PLAYED}"


def test_rows_of_a_table_are_counted() -> None:
    assert TABLE.awaited(gave(0, 0), NOW) == f"{TABLE.played}; so far 0"
    assert TABLE.awaited(gave(600, 300), NOW) == f"{TABLE.played}; so far 800"
    assert TABLE.awaited(gave(600, 500), NOW) == "its rows are there, and 2 learners learn from them"


def test_environments_whose_step_or_reset_does_not_return_are_told_apart() -> None:
    stuck = "for more than 10 s in one step or reset of all lanes: "
    # A reset is long in the opening of a node, too: it has had no turn yet.
    first = {**STUCK, "busy_ns": 0, "idle_ns": 0}
    assert STREAM.awaited({**gave(0, 0), "env.0": first, "env.1": STUCK}, NOW) == f"{stuck}env.0, env.1; {PLAYED}"
    assert (
        STREAM.awaited({**gave(0, 0), "env.1": STUCK}, NOW) == f"{stuck}env.1; no full rollout yet of env.0; {PLAYED}"
    )
    assert TABLE.awaited({**gave(600, 300), "env.0": STUCK}, NOW) == f"{stuck}env.0; {TABLE.played}; so far 200"
    # Announced work, such as restoring episodes, is no step.
    busy = {**STUCK, "busy_until_ns": NOW + 1}
    assert STREAM.awaited({**gave(0, 200), "env.0": busy}, NOW) == f"no full rollout yet of env.0; {PLAYED}"
    # What the run waits for is the learners.
    assert STREAM.awaited({**gave(128, 228), "env.0": {**STUCK, "collected": 128}}, NOW).startswith(
        "its rows are there"
    )
