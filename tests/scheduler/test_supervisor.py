"""The supervisor's decisions, with a fake clock, a fake process table and fake signs."""

from collections.abc import Sequence

from penstock.scheduler.supervisor import Exit, Silence, State, Supervisor, describe


class Table:
    def __init__(self, *groups: str) -> None:
        self.alive = list(groups)
        self.ended: list[Exit] = []
        self.killed: list[str] = []

    def end(self, group: str, status: int = 0, detail: str = "") -> None:
        self.alive.remove(group)
        self.ended.append(Exit(group, status, detail))

    def exits(self) -> Sequence[Exit]:
        ended, self.ended = self.ended, []
        return ended

    def running(self) -> Sequence[str]:
        return tuple(self.alive)

    def stacks(self, group: str) -> str:
        return f"stacks of {group}"

    def kill(self, group: str) -> None:
        self.alive.remove(group)
        self.killed.append(group)


class Signs:
    def __init__(self) -> None:
        self.learner_finished = False
        self.all_drained = False
        self.said: list[str] = []
        self.silence: Silence | None = None
        self.nobody_reads = False

    def silent(self) -> Silence | None:
        return self.silence

    def deserted(self, running) -> bool:
        return self.nobody_reads

    def finished(self) -> bool:
        return self.learner_finished

    def drained(self, running) -> bool:
        return self.all_drained

    def stop(self) -> None:
        self.said.append("stop")

    def end(self) -> None:
        self.said.append("end")


def make() -> tuple[Supervisor, Table, Signs]:
    table, signs = Table("env.0", "learner", "monitor"), Signs()
    return Supervisor(table, signs, last=["learner"], drain_limit_s=10.0, end_limit_s=2.0), table, signs


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
    assert "env.0, learner, monitor had not written down what was learned after 10 s" in supervisor.failure.detail


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


def test_an_end_is_told_by_its_signal() -> None:
    assert describe(Exit("env.0", -9, "")) == "process env.0 was ended by SIGKILL"
    assert describe(Exit("env.0", 3, "")) == "process env.0 ended with status 3"
