"""The line that tells of a restarted process."""

import signal

import pytest

from penstock.metrics.restart_note import restart_note
from penstock.types import Cause

KILLED = {"restarts": 1, "ended_by": -signal.SIGKILL, "cause": 0, "detail_kept": 0, "uptime_ms": 2500}


@pytest.mark.parametrize(
    ("ending", "how", "kept"),
    [
        ({}, "was ended by SIGKILL", ""),
        ({"ended_by": 3}, "ended with status 3", ""),
        ({"ended_by": 1, "detail_kept": 1}, "ended with status 1", "; its traceback stands in deaths.log"),
        ({"ended_by": -11, "detail_kept": 1}, "was ended by SIGSEGV", "; its stacks stand in deaths.log"),
        (
            {"cause": Cause.SLOW_STEP, "detail_kept": 1},
            "hung (a step or reset took longer than --env_timeout allows), was ended",
            "; its stacks stand in deaths.log",
        ),
        ({"cause": Cause.SILENT}, "hung (it gave no sign of life), was ended", ""),
        (
            {"cause": Cause.SLOW_START, "detail_kept": 1},
            "did not start in time, was ended",
            "; its stacks stand in deaths.log",
        ),
        ({"cause": Cause.MOVED, "detail_kept": 1}, "moved to a machine that has joined", ""),
        ({"cause": Cause.NEEDED, "detail_kept": 1}, "begins on a machine that is to run environments", ""),
        (
            {"cause": Cause.REFUSED, "detail_kept": 1},
            "could not be started, and was tried again",
            "; deaths.log says why",
        ),
        ({"cause": Cause.LOST, "detail_kept": 1}, "was lost with its machine", "; deaths.log says which machine"),
    ],
)
def test_a_restart_is_told_with_how_the_process_ended_and_what_is_kept_of_it(ending, how, kept) -> None:
    lived = "" if {"moved", "tried", "begins"} & set(how.split()) else " after 2.5 s and was started again"
    assert restart_note("env.0", {**KILLED, **ending}, "deaths.log") == f"env.0 {how}{lived} (restart 1){kept}"
