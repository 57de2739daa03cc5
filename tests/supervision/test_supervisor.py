"""The supervisor's decisions, with a fake clock, a fake process table and fake signs."""

import signal
from collections.abc import Sequence

import pytest

from penstock.errors import LostError, ResourceError
from penstock.supervision.contract import Limits, Silence
from penstock.supervision.lives import HOPELESS, KILLS_IN_A_ROW, Exit, Restart, describe
from penstock.supervision.supervisor import State, Supervisor
from penstock.types import Cause


class Table:
    def __init__(self, *groups: str) -> None:
        self.alive = list(groups)
        self.ended: list[Exit] = []
        self.killed: list[str] = []
        self.recovered: list[str] = []
        self.started: list[str] = []
        self.looks: list[Sequence[str]] = []
        """Groups whose stacks were asked for together."""
        self.held: set[str] = set()
        self.full = False
        """The system refuses another open file."""
        self.homeless = False
        """No machine that is left can run a process."""
        self.immortal: set[str] = set()
        """Groups that the system does not end."""

    def recover(self, group: str) -> bool:
        self.recovered.append(group)
        return group not in self.held

    def start(self, group: str) -> None:
        self.started.append(group)
        if self.full:
            raise ResourceError("too many open files")
        if self.homeless:
            raise LostError("b was lost, and no other has {sim: 1}")
        self.alive.append(group)

    def end(self, group: str, status: int = 0, detail: str = "", cause: Cause = Cause.NONE) -> None:
        self.alive.remove(group)
        self.ended.append(Exit(group, status, detail, cause))

    def exits(self) -> Sequence[Exit]:
        ended, self.ended = self.ended, []
        return ended

    def running(self) -> Sequence[str]:
        return tuple(self.alive)

    def stacks(self, groups: Sequence[str]) -> dict[str, str]:
        self.looks.append(groups)
        return {group: f"stacks of {group}" for group in groups}

    def kill(self, group: str) -> None:
        self.killed.append(group)
        if group in self.immortal:
            raise ResourceError("it waits for a disk")
        self.alive.remove(group)


class Signs:
    def __init__(self) -> None:
        self.learner_finished = False
        self.all_drained = False
        self.all_saved = False
        self.said: list[str] = []
        self.silence: Silence | None = None
        self.nobody_reads = False
        self.done = {"env.0": 0, "learner": 0, "monitor": 0}
        self.wanted = {"learner", "monitor"}
        self.come = 0
        self.excused_s = 0.0

    def silent(self, running) -> Silence | None:
        return self.silence if self.silence is not None and self.silence.group in running else None

    def achieved(self, group: str) -> int:
        return self.done[group]

    def needed(self, group: str) -> bool:
        return group in self.wanted

    def progress(self) -> int:
        return self.come

    def waits(self, groups) -> str:
        return "\n".join(f"{group}: waits for better times" for group in sorted(groups))

    def excuse(self, seconds: float) -> None:
        self.excused_s += seconds

    def deserted(self, running) -> bool:
        return self.nobody_reads

    def finished(self) -> bool:
        return self.learner_finished

    def drained(self, running) -> bool:
        return self.all_drained

    def saved(self) -> bool:
        return self.all_saved

    def stop(self) -> None:
        self.said.append("stop")

    def end(self) -> None:
        self.said.append("end")


told: list[Restart] = []
spared: list[Exit] = []


def make(max_restarts: int = 0) -> tuple[Supervisor, Table, Signs]:
    told.clear()
    spared.clear()
    table, signs, limits = Table("env.0", "learner", "monitor"), Signs(), Limits(10.0, 2.0, max_restarts, 300.0)
    ends = ["learner"]
    supervisor = Supervisor(table, signs, ends_with=ends, limits=limits, tell=told.append, spare=spared.append, now=0.0)
    return supervisor, table, signs


def test_a_run_ends_in_order() -> None:
    supervisor, table, signs = make()
    assert supervisor.tick(0.0) is State.RUNNING
    signs.learner_finished = True
    assert supervisor.tick(1.0) is State.STOPPING
    assert signs.said == ["stop"]
    assert supervisor.tick(2.0) is State.STOPPING  # checkpoints are still being written
    signs.all_drained = True
    assert supervisor.tick(3.0) is State.ENDING
    assert signs.said == ["stop", "end"]
    for group in ("env.0", "learner", "monitor"):
        table.end(group)
    assert supervisor.tick(3.1) is State.ENDED
    assert supervisor.failure is None
    assert table.killed == []


def test_an_interrupt_lets_the_learner_write_down_what_it_has() -> None:
    supervisor, _, signs = make()
    supervisor.stop(0.0)
    assert supervisor.tick(0.1) is State.STOPPING
    signs.learner_finished = signs.all_drained = True
    assert supervisor.tick(0.2) is State.ENDING


def test_a_failed_environment_stops_the_run_and_is_reported() -> None:
    supervisor, table, signs = make()
    table.end("env.0", 1, "its traceback")
    assert supervisor.tick(0.0) is State.STOPPING
    assert supervisor.failure == Exit("env.0", 1, "its traceback")
    assert signs.said == ["stop"]


def test_the_first_failure_is_the_one_that_is_reported() -> None:
    supervisor, table, _ = make()
    table.end("env.0", 1, "first")
    table.end("monitor", 1, "second")
    supervisor.tick(0.0)
    assert supervisor.failure is not None
    assert supervisor.failure.detail == "first"


def test_without_a_learner_nothing_is_waited_for() -> None:
    supervisor, table, signs = make()
    table.end("learner", -9)
    assert supervisor.tick(0.0) is State.ENDING
    assert signs.said == ["end"]


def test_who_does_not_end_in_time_is_killed() -> None:
    supervisor, table, signs = make()
    signs.learner_finished = signs.all_drained = True
    supervisor.tick(0.0)
    assert supervisor.tick(0.1) is State.ENDING
    table.end("learner")
    assert supervisor.tick(2.0) is State.ENDING
    assert supervisor.tick(2.2) is State.ENDED
    assert sorted(table.killed) == ["env.0", "monitor"]


def test_a_learner_that_never_finishes_stopping_is_killed() -> None:
    supervisor, table, _ = make()
    supervisor.stop(0.0)
    assert supervisor.tick(10.1) is State.ENDED
    assert sorted(table.killed) == ["env.0", "learner", "monitor"]
    assert supervisor.failure is not None
    assert "env.0, learner, monitor did not write the last checkpoint within 10 s" in supervisor.failure.detail


def test_who_is_still_busy_once_all_is_saved_fails_nothing() -> None:
    supervisor, table, signs = make()
    signs.learner_finished = signs.all_saved = True
    supervisor.tick(0.0)
    supervisor.tick(10.0)
    assert supervisor.tick(10.2) is State.ENDING
    assert signs.said == ["stop", "end"]
    assert supervisor.tick(12.3) is State.ENDED
    assert supervisor.failure is None
    assert "monitor" in table.killed


def test_a_signal_without_a_name_has_a_number() -> None:
    supervisor, table, _ = make()
    table.end("env.0", -40)
    supervisor.tick(0.0)
    assert supervisor.failure is not None
    assert describe(supervisor.failure) == "process env.0 was ended by signal 40"


def test_a_learner_that_waits_for_a_dead_reader_is_not_waited_for() -> None:
    supervisor, table, signs = make()
    table.end("monitor", 1, "the disk is full")
    assert supervisor.tick(0.0) is State.STOPPING
    signs.nobody_reads = True
    assert supervisor.tick(0.1) is State.ENDING
    assert supervisor.failure == Exit("monitor", 1, "the disk is full")


def test_a_silent_node_is_killed_and_reported_with_its_stacks() -> None:
    supervisor, table, signs = make()
    signs.silence = Silence("env.0", "env.0", 61.0)
    assert supervisor.tick(0.0) is State.STOPPING
    assert table.killed == ["env.0"]
    assert supervisor.failure is not None
    assert "no sign of life from env.0 for 61 s" in supervisor.failure.detail
    assert "stacks of env.0" in supervisor.failure.detail
    assert supervisor.tick(0.1) is State.STOPPING  # the same silence is not reported twice
    assert table.killed == ["env.0"]


def test_a_node_that_falls_silent_while_the_run_stops_fails_nothing_unless_it_is_needed() -> None:
    for group, failed in (("env.0", False), ("learner", True)):
        supervisor, table, signs = make()
        supervisor.stop(0.0)
        signs.silence = Silence(group, group, 6.0)
        supervisor.tick(0.1)
        assert table.killed == [group]
        assert (supervisor.failure is not None) == failed


@pytest.mark.parametrize("status", [1, HOPELESS, -signal.SIGSEGV])
@pytest.mark.parametrize("finished", [True, False])
def test_who_fails_while_the_run_ends_and_is_needed_no_more_fails_nothing(status: int, finished: bool) -> None:
    supervisor, table, signs = make(max_restarts=0)
    if finished:
        # The supervisor sees both at the same look: the learner has finished, and the environment has failed.
        signs.learner_finished = True
    else:
        supervisor.stop(0.0)
    table.end("env.0", status, "its traceback")
    assert supervisor.tick(0.1) is State.STOPPING
    assert (supervisor.failure, spared, table.started) == (None, [Exit("env.0", status, "its traceback")], [])
    signs.learner_finished = signs.all_drained = True
    assert supervisor.tick(0.2) is State.ENDING
    table.end("learner")
    table.end("monitor")
    assert (supervisor.tick(0.3), supervisor.failure) == (State.ENDED, None)


def test_who_fails_as_its_loop_ends_fails_the_run_only_if_it_saved_something() -> None:
    for group, failed in (("env.0", False), ("learner", True), ("monitor", True)):
        supervisor, table, signs = make()
        signs.learner_finished = signs.all_drained = True
        supervisor.tick(0.0)
        assert supervisor.tick(0.1) is State.ENDING
        table.end(group, 1, "it could not close")
        supervisor.tick(0.2)
        assert (supervisor.failure is not None, [ended.group for ended in spared]) == (
            failed,
            [] if failed else [group],
        )


def test_who_is_needed_fails_the_run_while_it_ends() -> None:
    supervisor, table, _ = make(max_restarts=0)
    supervisor.stop(0.0)
    table.end("learner", 1, "its traceback")
    supervisor.tick(0.1)
    assert (supervisor.failure, spared) == (Exit("learner", 1, "its traceback"), [])


def test_an_end_is_told_by_its_signal() -> None:
    assert describe(Exit("env.0", -9, "")) == "process env.0 was ended by SIGKILL"
    assert describe(Exit("env.0", 3, "")) == "process env.0 ended with status 3"


def test_a_process_that_dies_is_recovered_and_started_again() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.end("env.0", -9)
    assert supervisor.tick(5.0) is State.RUNNING
    assert (table.recovered, table.started) == (["env.0"], ["env.0"])
    assert told == [Restart(Exit("env.0", -9, ""), 5.0, 1)]
    table.end("env.0", 1, "its traceback")
    assert supervisor.tick(7.5) is State.RUNNING
    assert told[1:] == [Restart(Exit("env.0", 1, "its traceback"), 2.5, 2)]
    assert supervisor.failure is None


def test_a_process_that_ended_before_the_supervisor_looked_is_started_again() -> None:
    """As a node on a machine that is lost while the run begins: the relay notices it by itself."""
    table = Table("env.0", "learner", "monitor")
    table.end("env.0", -9)
    limits = Limits(10.0, 2.0, 3, 300.0)
    supervisor = Supervisor(
        table, Signs(), ends_with=["learner"], limits=limits, tell=told.append, spare=spared.append, now=0.0
    )
    assert supervisor.tick(1.0) is State.RUNNING
    assert table.started == ["env.0"]


def test_a_run_ends_in_order_if_no_machine_is_left_that_can_run_a_process() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.homeless = True
    table.end("env.0", -9, cause=Cause.LOST)
    assert supervisor.tick(1.0) is State.STOPPING
    assert supervisor.failure is not None
    assert "LostError: b was lost, and no other has {sim: 1}" in supervisor.failure.detail
    # Nothing was started, so nothing is told of a restart. The learner writes its last checkpoint.
    assert told == []
    assert table.killed == []


def test_nobody_is_started_before_all_it_held_is_taken_back() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.held.add("env.0")
    table.end("env.0", -9)
    supervisor.tick(1.0)
    assert (table.recovered, table.started) == (["env.0"], [])
    table.held.clear()
    supervisor.tick(1.1)
    assert (table.recovered, table.started) == (["env.0", "env.0"], ["env.0"])


def die(supervisor: Supervisor, table: Table, times: int, status: int) -> None:
    for _ in range(times):
        table.end("env.0", status, "its traceback")
        supervisor.tick(0.0)


def test_restarts_without_progress_are_counted_and_come_to_an_end() -> None:
    supervisor, table, _ = make(max_restarts=3)
    die(supervisor, table, 3, 1)
    assert (supervisor.state, len(table.started)) == (State.RUNNING, 3)
    die(supervisor, table, 1, 1)
    assert (supervisor.state, len(table.started)) == (State.STOPPING, 3)
    assert supervisor.failure is not None
    assert supervisor.failure.detail == "env.0 was started 3 times more, without any progress; at last:\nits traceback"


def test_progress_begins_the_count_anew() -> None:
    supervisor, table, signs = make(max_restarts=3)
    for _ in range(5):
        die(supervisor, table, 3, 1)
        signs.done["env.0"] += 1
    assert (supervisor.state, len(table.started)) == (State.RUNNING, 15)


def test_a_kill_from_outside_is_told_of_and_not_charged() -> None:
    supervisor, table, _ = make(max_restarts=1)
    die(supervisor, table, 5, -9)
    die(supervisor, table, 5, -15)
    assert supervisor.state is State.RUNNING
    assert [restart.number for restart in told] == list(range(1, 11))


def test_kills_from_outside_that_never_let_it_come_any_further_end_the_run() -> None:
    supervisor, table, signs = make(max_restarts=1)
    die(supervisor, table, KILLS_IN_A_ROW - 1, -9)
    signs.done["env.0"] += 1
    die(supervisor, table, KILLS_IN_A_ROW - 1, -9)
    assert (supervisor.state, supervisor.failure) == (State.RUNNING, None)
    die(supervisor, table, 1, -9)
    assert supervisor.state is State.STOPPING
    assert supervisor.failure is not None
    assert supervisor.failure.detail.startswith(
        "process env.0 was ended by SIGKILL 20 times in a row, each time before"
    )


def test_a_crash_of_its_own_is_charged() -> None:
    supervisor, table, _ = make(max_restarts=1)
    die(supervisor, table, 2, -11)
    assert supervisor.state is State.STOPPING


def test_what_another_life_would_meet_again_ends_the_run_at_once() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.end("env.0", HOPELESS, "the reward is NaN")
    assert supervisor.tick(0.0) is State.STOPPING
    assert supervisor.failure == Exit("env.0", HOPELESS, "the reward is NaN")
    assert table.started == []


def test_a_first_start_that_the_system_refuses_ends_the_run_at_once() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.end("env.0", 1, "no process to spare", Cause.REFUSED)
    with pytest.raises(ResourceError, match="no process to spare"):
        supervisor.tick(0.0)


def test_a_restart_that_the_system_refuses_is_tried_again_a_second_later() -> None:
    supervisor, table, _ = make(max_restarts=3)
    table.end("env.0", -9)
    supervisor.tick(5.0)
    table.end("env.0", 1, "no process to spare", Cause.REFUSED)
    supervisor.tick(5.5)
    supervisor.tick(6.4)
    # To recover it would wake all processes again and again.
    assert (table.started, table.recovered) == (["env.0"], ["env.0"])
    supervisor.tick(6.5)
    assert table.started == ["env.0", "env.0"]
    assert [restart.ended.cause for restart in told] == [Cause.NONE, Cause.REFUSED]
    assert (supervisor.state, supervisor.failure) == (State.RUNNING, None)


def test_a_start_that_is_refused_while_the_run_stops_fails_no_run_that_needs_it_no_more() -> None:
    supervisor, table, signs = make(max_restarts=3)
    table.end("env.0", -9)
    supervisor.tick(5.0)
    supervisor.stop(5.1)
    table.end("env.0", 1, "no process to spare", Cause.REFUSED)
    assert supervisor.tick(5.2) is State.STOPPING
    signs.learner_finished = signs.all_drained = True
    supervisor.tick(5.3)
    table.alive.clear()
    assert (supervisor.tick(5.4), supervisor.failure) == (State.ENDED, None)


def test_a_process_that_the_system_does_not_end_costs_no_last_checkpoint() -> None:
    supervisor, table, signs = make(max_restarts=3)
    table.immortal.add("env.0")
    signs.silence = Silence("env.0", "env.0", 61.0)
    assert supervisor.tick(61.0) is State.STOPPING
    assert supervisor.tick(61.1) is State.STOPPING
    # It may still write into what it holds.
    assert (table.killed, table.recovered) == (["env.0"], [])
    signs.learner_finished = signs.all_drained = True
    assert supervisor.tick(61.2) is State.ENDING
    table.alive = ["env.0"]
    assert supervisor.tick(61.3) is State.ENDED
    assert supervisor.failure is not None
    assert supervisor.failure.detail.startswith("it waits for a disk\n")


def test_restarts_that_the_system_refuses_again_and_again_end_the_run_in_order() -> None:
    supervisor, table, signs = make(max_restarts=2)
    table.full = True
    table.end("env.0", -9)
    for second in range(4):
        supervisor.tick(float(second))
    assert table.started == ["env.0"] * 3
    assert (supervisor.state, signs.said) == (State.STOPPING, ["stop"])
    assert supervisor.failure == Exit("env.0", 1, "too many open files", Cause.REFUSED)


def test_a_step_that_takes_too_long_is_told_with_the_setting_that_limits_it() -> None:
    supervisor, _, signs = make(max_restarts=1)
    signs.silence = Silence("env.0", "env.0", 61.0, Cause.SLOW_STEP)
    supervisor.tick(0.0)
    (restart,) = told
    assert restart.ended.cause is Cause.SLOW_STEP
    assert restart.ended.detail.startswith("no sign of life from env.0 for 61 s, longer than --env_timeout allows;")


def test_a_process_that_does_not_start_is_not_said_to_hang() -> None:
    supervisor, _, signs = make(max_restarts=1)
    signs.silence = Silence("env.0", "env.0", 121.0, Cause.SLOW_START)
    supervisor.tick(0.0)
    (restart,) = told
    assert restart.ended.detail.startswith("env.0 did not start within 121 s; its process was ended.\n")


def test_a_hung_process_is_killed_started_again_and_charged() -> None:
    supervisor, table, signs = make(max_restarts=1)
    signs.silence = Silence("env.0", "env.0", 61.0)
    assert supervisor.tick(0.0) is State.RUNNING
    assert (table.killed, table.started) == (["env.0"], ["env.0"])
    assert supervisor.tick(61.0) is State.STOPPING
    assert table.killed == ["env.0", "env.0"]
    assert supervisor.failure is not None
    assert "stacks of env.0" in supervisor.failure.detail


def test_a_run_that_is_stopping_starts_only_whom_it_needs() -> None:
    supervisor, table, signs = make(max_restarts=3)
    supervisor.stop(0.0)
    table.end("env.0", -9)
    table.end("learner", -9)
    assert supervisor.tick(0.1) is State.STOPPING
    assert table.started == ["learner"]
    # The slots that it held are recovered anyway, because other nodes may wait for them.
    assert sorted(table.recovered) == ["env.0", "learner"]
    signs.learner_finished = signs.all_drained = True
    assert supervisor.tick(0.2) is State.ENDING
    table.end("monitor", -9)
    assert supervisor.tick(0.3) is State.ENDING
    assert (table.started, supervisor.failure) == (["learner"], None)


def test_a_run_that_comes_no_further_ends_and_says_who_waits_for_what() -> None:
    supervisor, table, signs = make(max_restarts=3)
    for now in range(0, 1000, 100):
        signs.come += 1
        assert supervisor.tick(float(now)) is State.RUNNING
    assert supervisor.tick(1199.0) is State.RUNNING
    assert supervisor.tick(1201.0) is State.STOPPING
    assert supervisor.failure is not None
    # No node is named as the one that failed.
    assert supervisor.failure.group == ""
    assert "the run came no further for 301 s, longer than --stall_timeout allows" in supervisor.failure.detail
    assert "env.0: waits for better times\nlearner: waits for better times" in supervisor.failure.detail
    assert "env.0:\nstacks of env.0\nlearner:\nstacks of learner" in supervisor.failure.detail
    # Half a second each would take the time in which the last checkpoint is written.
    assert table.looks == [("env.0", "learner", "monitor")]


def test_time_in_which_the_machine_stood_still_counts_for_no_limit() -> None:
    supervisor, _, signs = make()
    assert supervisor.tick(0.0) is State.RUNNING
    supervisor.excuse(50.0)
    assert signs.excused_s == 50.0
    assert supervisor.tick(349.0) is State.RUNNING
    supervisor.stop(349.0)
    supervisor.excuse(5.0)
    assert supervisor.tick(363.0) is State.STOPPING
    assert supervisor.tick(364.1) is State.ENDED
