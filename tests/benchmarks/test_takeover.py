"""What is said of a run that lost a machine, from logs by hand. Namespaces are made by the benchmark only."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.runs import flags
from benchmarks.soak.log import reports_of
from benchmarks.takeover import (
    CASES,
    LAST_S,
    RESOURCES,
    SHARED,
    LivedOn,
    Loss,
    around_restart,
    bars_of,
    gone_on,
    new_reports,
    row_of,
    runs_that_learn,
    update_resumed,
)
from penstock.config.flags import train_from_arguments


def line(update: int, time_s: float) -> dict[str, object]:
    """An update of 100 steps, as the log has it."""
    return {"update": update, "steps": 100 * update, "time_s": time_s, "throughput/steps_per_second": 50.0}


BEFORE = [line(update, 2.0 * update) for update in range(1, 6)]


def test_a_run_has_gone_on_once_its_new_log_has_an_update_that_the_lost_one_has_not_learned() -> None:
    lost = reports_of(BEFORE, 0.0)
    copied = reports_of(BEFORE[:4], 1.0)
    assert new_reports(lost, copied) == []
    # The deputy had update 3, and learns update 4 again.
    again = reports_of([line(4, 8.75)], 2.0)
    assert new_reports(lost, [*copied, *again]) == again


def test_the_update_that_a_run_was_resumed_at_is_that_of_its_last_launch() -> None:
    launches = [{"checkpoint": None}, {"checkpoint": "update-00000120"}]
    assert update_resumed("".join(json.dumps(one) + "\n" for one in launches)) == 120


def test_updates_after_a_restart_are_told_from_those_before() -> None:
    restart = {"update": 5, "steps": 500, "time_s": 10.0, "restarts/learner.1": 1, "note": "learner.1 was lost"}
    another = {**restart, "restarts/env.2": 1}
    del another["restarts/learner.1"]
    before, after = around_restart([*BEFORE, another, restart], "learner.1")
    assert ([one.update for one in before], after) == ([1, 2, 3, 4, 5], [])
    before, after = around_restart([*BEFORE, another, restart, line(6, 31.0)], "learner.1")
    assert [one.update for one in after] == [6]
    assert around_restart(BEFORE, "learner.1") == (reports_of(BEFORE, 0.0), [])


def test_a_run_went_on_from_the_last_line_up_to_an_update() -> None:
    reports = reports_of([line(2, 1.0), line(5, 2.5)], 0.0)
    losses = [gone_on(20.0, reports, update) for update in (1, 2, 4, 5)]
    assert [one.committed for one in losses] == [500] * 4
    assert [one.went_on_from for one in losses] == [0, 200, 200, 500]
    assert [one.again_s for one in losses] == [2.5, 1.5, 1.5, 0.0]


def test_the_longest_round_is_held_to_the_bar_and_a_run_that_did_not_go_on_falls_short() -> None:
    losses = [Loss(18.04, 500, 400, 0.254), Loss(30.0, 700, 700), Loss(16.0, 300, 300)]
    assert [bar.holds for bar in bars_of("ppo", "launcher", losses)] == [True, True]
    slow = [*losses, Loss(16.0, 500, 100, 2.5)]
    assert [bar.holds for bar in bars_of("ppo", "launcher", slow)] == [True, False]
    assert row_of("ppo", "launcher", losses) == {
        "case": "ppo",
        "lost": "launcher",
        "median_s": 18.0,
        "largest_s": 30.0,
        "seconds": [18.0, 30.0, 16.0],
        "committed_steps": [500, 700, 300],
        "went_on_from_steps": [400, 700, 300],
        "learned_again_s": [0.25, 0.0, 0.0],
    }
    losses.append(Loss(math.inf, 800, None))
    assert [bar.holds for bar in bars_of("ppo", "launcher", losses)] == [False, True]
    row = row_of("ppo", "launcher", losses)
    assert (row["largest_s"], row["seconds"][-1], row["went_on_from_steps"][-1]) == (None, None, None)
    assert math.isfinite(row["median_s"])


@pytest.mark.parametrize(
    ("last", "runs"),
    [
        ({"lost-2": 99.0}, 1),
        # The deputy's run stands still since the link is there again.
        ({"lost-2": 99.0 - LAST_S}, 0),
        # The lost run has learned once more, however long ago; or a second deputy goes on as well.
        ({"lost": 20.0, "lost-2": 99.0}, 2),
        ({"lost-2": 99.0, "lost-3": 98.0}, 2),
        ({}, 0),
    ],
)
def test_a_run_goes_on_that_still_learns_at_the_end_and_the_lost_one_must_not_learn_at_all(last, runs: int) -> None:
    assert runs_that_learn({Path(name): seen for name, seen in last.items()}, Path("lost"), 100.0) == runs


def test_behind_a_cut_link_one_run_goes_on_and_the_command_ends() -> None:
    losses = [Loss(20.0, 500, 400, 0.5, LivedOn(1, 71.25, 0.5)), Loss(21.0, 500, 400, 0.5, LivedOn(1, 90.0, 1.0))]
    assert [bar.holds for bar in bars_of("ppo", "link", losses)] == [True, True, True, True]
    row = row_of("ppo", "link", losses)
    assert (row["runs"], row["command_s"]) == ([1, 1], [71.2, 90.0])
    both = [*losses, Loss(20.0, 500, 400, 0.5, LivedOn(2, 71.0, 0.5))]
    assert [bar.holds for bar in bars_of("ppo", "link", both)] == [True, True, False, True]
    neither = [*losses, Loss(math.inf, 500, None, 0.0, LivedOn(0, math.inf, math.inf))]
    assert [bar.holds for bar in bars_of("ppo", "link", neither)] == [False, True, False, False]
    assert row_of("ppo", "link", neither)["command_s"][-1] is None


def test_each_case_is_a_command_whose_lanes_two_learners_can_share() -> None:
    for case in CASES.values():
        _, config, _ = train_from_arguments(flags({**SHARED, **case, "learners": 2, "address": "auto"}))
        assert config.run.sync_mode == "blocking"
        assert config.run.num_workers % config.run.learners == 0
    assert max(RESOURCES, key=lambda host: host["CPU"]) is RESOURCES[2]
