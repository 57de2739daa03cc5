"""MonitorNode: its reports of restarts over several lives, and the place where it goes on in the log."""

import json
import signal
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.config.episode_metrics import episode_metrics
from penstock.errors import RunFolderError
from penstock.metrics.first_update import FirstUpdate
from penstock.metrics.histograms import Histograms
from penstock.metrics.jsonl import METRICS
from penstock.metrics.report import STEPS_PER_SECOND, Report, report_specs, write_report
from penstock.metrics.return_range import ReturnRange
from penstock.nodes.contract import Balance
from penstock.nodes.monitor import MonitorNode, MonitorSettings
from penstock.types import Arrays

COUNTS = dict.fromkeys(("skipped", "evaluations_dropped", "reports_dropped", "busy_ns", "idle_ns"), 0)
DEATHS = {**COUNTS, "restarts": 0, "ended_by": 0, "cause": 0, "detail_kept": 0, "uptime_ms": 0, "told_at_start": 0}

NEW = Report(0, 0, 0.0, {})
WAITS = FirstUpdate({}, (), None, "", "it waits")


class Nothing:
    """A stream without reports."""

    def ready(self) -> int:
        return 0

    def take(self) -> None:
        return None


class Ports:
    """The counters of one command, and the monitor's end of nothing else."""

    name = "monitor"

    def __init__(self) -> None:
        self.former: tuple[int, ...] = ()
        self.is_interrupted = False
        self.table = {"env.0": dict(DEATHS), "learner": dict(DEATHS), "monitor": dict(DEATHS)}

    def stream_reader(self, edge: str) -> Nothing:
        return Nothing()

    def counters(self) -> dict[str, dict[str, int]]:
        return {node: dict(counts) for node, counts in self.table.items()}

    def interrupted(self) -> bool:
        return self.is_interrupted

    def balance(self) -> None:
        return None

    def count(self, counter: str, amount: int = 1) -> None:
        self.table[self.name][counter] += amount

    def start_again(self, node: str, **ending: int) -> None:
        counts = self.table[node]
        counts |= {"restarts": counts["restarts"] + 1, "ended_by": -signal.SIGKILL, "uptime_ms": 2500, **ending}


def opened(folder: Path, ports: Ports, *, resumed_update: int = 0) -> MonitorNode:
    resumed = Report(resumed_update, resumed_update * 10, resumed_update * 0.5, {})
    node = MonitorNode(MonitorSettings(folder, "title", 100, 1, True, "steps", resumed, WAITS, ""))
    node.open(ports)
    return node


def killed(ports: Ports) -> None:
    ports.former += (len(ports.former) + 1,)
    ports.start_again("monitor")


def notes(folder: Path) -> list[str]:
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [
        f"{line['update']}: {line['note'].partition(' was')[0]} {line['note'][-2]}" for line in lines if "note" in line
    ]


def tell(node: MonitorNode) -> None:
    while node.ready():
        node.step()


def test_each_restart_is_told_of_once_over_all_lives(tmp_path) -> None:
    ports = Ports()
    first = opened(tmp_path, ports)
    assert not first.ready()
    ports.start_again("env.0")
    tell(first)
    killed(ports)
    ports.start_again("env.0")
    second = opened(tmp_path, ports)
    tell(second)
    assert notes(tmp_path) == ["0: env.0 1", "0: env.0 2", "0: monitor 1"]
    assert not second.ready()


def test_an_interrupt_is_answered_once_with_what_happens_now(tmp_path) -> None:
    ports = Ports()
    node = opened(tmp_path, ports)
    assert not node.ready()
    ports.is_interrupted = True
    tell(node)
    assert not node.ready()
    (line,) = (tmp_path / "run.log").read_text().splitlines()
    assert line.endswith(" stopping: the last checkpoint is being written; Ctrl-C again ends at once")


def test_the_line_of_a_restart_stands_in_the_metrics_with_the_name_of_the_file_of_deaths(tmp_path) -> None:
    ports = Ports()
    node = opened(tmp_path, ports)
    ports.start_again("env.0", ended_by=1, detail_kept=1)
    tell(node)
    line = json.loads((tmp_path / METRICS).read_text())
    assert line["note"].startswith("env.0 ended with status 1 after 2.5 s")
    assert line["note"].endswith("deaths.log")
    assert [line[name] for name in ("restarts/env.0", "death/status", "death/uptime_s")] == [1, 1, 2.5]


@pytest.mark.parametrize("told_before_the_kill", [True, False])
def test_a_resumed_run_tells_of_restarts_though_they_count_from_one_again(tmp_path, told_before_the_kill) -> None:
    ports = Ports()
    first = opened(tmp_path, ports)
    for node in ("env.0", "env.0", "learner", "monitor"):
        ports.start_again(node)
        tell(first)
    first._write(Report(7, 70, 3.5, {}))
    earlier = notes(tmp_path)
    resumed = Ports()
    life = opened(tmp_path, resumed, resumed_update=7)
    assert not life.ready()
    if told_before_the_kill:
        resumed.start_again("env.0")
        tell(life)
    killed(resumed)
    tell(opened(tmp_path, resumed, resumed_update=7))
    told = ["7: env.0 1", "7: monitor 1"] if told_before_the_kill else ["7: monitor 1"]
    assert notes(tmp_path)[len(earlier) :] == told
    killed(resumed)
    resumed.start_again("learner")
    tell(opened(tmp_path, resumed, resumed_update=7))
    assert notes(tmp_path)[len(earlier) :] == [*told, "7: learner 1", "7: monitor 2"]


def test_a_restart_is_told_of_where_the_log_stands(tmp_path) -> None:
    ports = Ports()
    opened(tmp_path, ports)._write(Report(12, 120, 6.25, {"loss": 1.0}))
    killed(ports)
    tell(opened(tmp_path, ports))
    line = json.loads((tmp_path / METRICS).read_text().splitlines()[-1])
    assert (line["update"], line["steps"], line["time_s"]) == (12, 120, 6.25)
    assert "loss" not in line


def rates(node: MonitorNode, *reports: tuple[int, float]) -> list[float]:
    """The steps per second at reports of so many steps after so many seconds of training."""
    return [node._throughput(Report(0, steps, time_s, {}))[STEPS_PER_SECOND] for steps, time_s in reports]


def test_time_without_new_steps_belongs_to_the_next_ones(tmp_path) -> None:
    node = opened(tmp_path, Ports())
    assert rates(node, (10, 1.0), (10, 2.0), (10, 3.0), (40, 4.0)) == [10.0, 0.0, 0.0, 10.0]


def test_the_speed_is_by_the_time_of_the_reports_whenever_they_are_read(tmp_path) -> None:
    opened(tmp_path, Ports())._write(Report(12, 120, 6.0, {}))
    node = opened(tmp_path, Ports(), resumed_update=12)
    assert rates(node, (160, 8.0), (190, 9.0), (190, 9.0)) == [20.0, 30.0, 0.0]


def test_the_idle_share_of_a_node_is_a_metric(tmp_path) -> None:
    ports = Ports()
    node = opened(tmp_path, ports)
    ports.table["learner"] |= {"busy_ns": 30_000_000, "idle_ns": 90_000_000}
    values = node._throughput(Report(1, 10, 1.0, {}))
    assert values["idle/learner"] == 0.75
    assert "idle/env.0" not in values


def test_a_monitor_that_is_started_again_finds_no_idle_share_over_less_than_a_tenth_of_a_second(tmp_path) -> None:
    ports = Ports()
    opened(tmp_path, ports)
    killed(ports)
    node = opened(tmp_path, ports)
    ports.table["env.0"]["busy_ns"] += 1_000_000
    assert "idle/env.0" not in node._throughput(NEW)


class Board:
    """In place of TensorBoard: remembers what it is told."""

    def __init__(self, *_: object) -> None:
        self.told: list[tuple[object, ...]] = []

    def write_settings(self, *given: object) -> None:
        self.told.append(given)

    def write_histograms(self, histograms: Histograms) -> None:
        self.told.append((histograms,))

    def write(self, report: Report) -> None:
        """Metrics are told of elsewhere."""


def test_tensorboard_gets_the_settings_once_and_the_histograms_of_each_checkpoint(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("penstock.nodes.monitor.TensorBoard", Board)
    settings = MonitorSettings(tmp_path, "title", 100, 10, True, "steps", NEW, WAITS, "lr = 1", histograms=True)
    ports, met = Ports(), deque([Histograms(NEW, {})])
    ports.shared_object = lambda role, _: {"histograms": met}[role]
    first = MonitorNode(settings)
    first.open(ports)
    tell(first)
    assert first._board.told == [("lr = 1", NEW), (Histograms(NEW, {}),)]
    assert not met
    killed(ports)
    second = MonitorNode(settings)
    second.open(ports)
    tell(second)
    assert second._board.told == []


def logged(folder: Path) -> list[str]:
    """The lines of the run's log, without their times."""
    return [line.partition(" ")[2] for line in (folder / "run.log").read_text().splitlines()]


def test_the_log_has_the_first_lines_and_notes_of_a_quiet_run_and_each_life_adds_to_it(tmp_path) -> None:
    settings = MonitorSettings(
        tmp_path, "title", 100, 10, True, "steps", NEW, WAITS, "", first_lines=("a large table",)
    )
    ports = Ports()
    first = MonitorNode(settings)
    first.open(ports)
    first._write(Report(10, 50, 1.0, {STEPS_PER_SECOND: 50.0}))
    killed(ports)
    second = MonitorNode(settings)
    second.open(ports)
    tell(second)
    second.close()
    told, line, note = logged(tmp_path)
    assert (told, line.partition(" | ")[0]) == ("a large table", "update 10")
    assert note == "monitor was ended by SIGKILL after 2.5 s and was started again (restart 1)"


def test_what_was_left_out_or_lost_is_a_metric_from_the_first_time_on(tmp_path) -> None:
    ports = Ports()
    node = opened(tmp_path, ports)
    assert set(node._throughput(Report(1, 10, 1.0, {}))) == {STEPS_PER_SECOND}
    ports.table["evaluator"] = {**DEATHS, "evaluations_dropped": 2, "reports_dropped": 1}
    ports.table["learner"]["reports_dropped"] = 1
    values = node._throughput(Report(2, 20, 2.0, {}))
    assert (values["eval/left_out"], values["reports/dropped"]) == (2.0, 2.0)


def test_a_display_that_stays_silent_says_once_what_the_run_waits_for(tmp_path, capsys, monkeypatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(
        "penstock.nodes.monitor.time", SimpleNamespace(monotonic=lambda: clock[0], monotonic_ns=lambda: 0)
    )
    node = MonitorNode(MonitorSettings(tmp_path, "title", 100, 1, False, "steps", NEW, WAITS, ""))
    node.open(Ports())
    assert not node.ready()
    clock[0] += 30.0
    assert node.ready()
    node.step()
    assert not node.ready()
    node.close()
    said = "no update yet after 30 s: its rows are there, and it waits"
    assert capsys.readouterr().out == f"{said}\n"
    assert logged(tmp_path) == [said]
    assert "it waits" not in (tmp_path / METRICS).read_text()


def test_a_resumed_run_cuts_off_the_lines_before_it_though_its_first_monitor_dies_before(tmp_path) -> None:
    before = opened(tmp_path, Ports())
    for update in (7, 9):
        before._write(Report(update, 10 * update, 0.5 * update, {STEPS_PER_SECOND: 1.0}))
    resumed = Ports()
    killed(resumed)
    life = opened(tmp_path, resumed, resumed_update=7)
    tell(life)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [(line["update"], "note" in line) for line in lines] == [(7, False), (7, True)]
    # The reports of the updates that were cut off are new ones.
    assert life._written[STEPS_PER_SECOND] == 7


def test_a_file_that_cannot_be_closed_leaves_no_other_open(tmp_path) -> None:
    closed = []

    def full(name: str) -> SimpleNamespace:
        def close() -> None:
            closed.append(name)
            raise OSError("the disk is full")

        return SimpleNamespace(close=close)

    node = opened(tmp_path, Ports())
    node.close()
    node._sinks = [full("first"), full("second")]
    with pytest.raises(RunFolderError, match=r"cannot write the metrics in .*: the disk is full$"):
        node.close()
    assert closed == ["first", "second"]


class Reports(Nothing):
    """A stream of one report."""

    def __init__(self) -> None:
        specs = report_specs(0)
        self._slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        self._has = False

    def put(self, update: int, **values: float) -> None:
        named = {name.replace("_", "/", 1): value for name, value in values.items()}
        write_report(Report(update, 10 * update, float(update), named), self._slot)
        self._has = True

    def ready(self) -> int:
        return int(self._has)

    def take(self) -> int | None:
        return 0 if self._has else None

    def slot(self, index: int) -> Arrays:
        return self._slot

    def release(self, index: int) -> None:
        self._has = False


@pytest.mark.parametrize("resumed_update", [0, 7])
def test_metrics_that_the_first_episodes_do_not_have_are_told_of_once(tmp_path, monkeypatch, resumed_update) -> None:
    reports, ports = Reports(), Ports()
    monkeypatch.setattr(ports, "stream_reader", lambda edge: reports)
    resumed = Report(resumed_update, resumed_update * 10, 0.0, {})
    names = episode_metrics(("won:max", "lapz", "wno:p95", "lapz:sum"))
    title, axis = "title", "steps"
    settings = MonitorSettings(tmp_path, title, 100, 100, True, axis, resumed, WAITS, "", episode_metrics=names)
    node = MonitorNode(settings)
    node.open(ports)
    # A resumed run cannot know of how many episodes its checkpoint tells, before the first report.
    before = 50.0 if resumed_update else 0.0
    for update, episodes in enumerate((before, before, before + 2, before + 3), resumed_update + 1):
        won = {"episode_won:max": 0.5} if episodes > before else {}
        reports.put(update, rollout_episodes=episodes, **won)
        tell(node)
    told = [line for line in logged(tmp_path) if "last info" in line]
    assert told == ["no lapz, wno in the last info of 2 episodes so far: check the names of --episode_metrics"]
    assert "lapz" not in (tmp_path / METRICS).read_text()
    # Another life of the monitor does not tell of them again.
    killed(ports)
    again = MonitorNode(settings)
    again.open(ports)
    for update in (20, 21):
        reports.put(update, rollout_episodes=before + update)
        tell(again)
    assert [line for line in logged(tmp_path) if "last info" in line] == told


def test_returns_outside_the_range_that_is_learned_are_told_of_once(tmp_path, monkeypatch) -> None:
    reports, ports = Reports(), Ports()
    monkeypatch.setattr(ports, "stream_reader", lambda edge: reports)
    known = ReturnRange(0.0, 100.0, 1.0)
    settings = MonitorSettings(tmp_path, "title", 100, 100, True, "steps", NEW, WAITS, "", return_range=known)
    node = MonitorNode(settings)
    node.open(ports)
    # Two episodes are too few; 50 is inside; of the user's own rewards 60 is what is learned.
    inside = [(2, {"return": -50.0}), (10, {"return": 50.0}), (11, {"return": -60.0, "shaped_return": 60.0})]
    for update, (episodes, means) in enumerate([*inside, (12, {"return": -60.0}), (13, {"return": -70.0})], 1):
        values = {f"rollout_{name}_mean": mean for name, mean in means.items()}
        reports.put(update, rollout_episodes=float(episodes), rollout_length_mean=20.0, **values)
        tell(node)
    told = [line for line in logged(tmp_path) if "--value_min" in line]
    assert [line.partition(":")[0] for line in told] == ["episodes return -60 in 20 steps, about -60 with --gamma 1"]
    # Another life of the monitor does not tell of it again.
    killed(ports)
    again = MonitorNode(settings)
    again.open(ports)
    reports.put(21, rollout_episodes=31.0, rollout_return_mean=-60.0, rollout_length_mean=20.0)
    tell(again)
    assert [line for line in logged(tmp_path) if "--value_min" in line] == told


def test_an_environment_that_ends_no_episode_is_told_of_once(tmp_path, monkeypatch) -> None:
    reports, ports = Reports(), Ports()
    monkeypatch.setattr(ports, "stream_reader", lambda edge: reports)
    # Reports have 10 steps an update.
    settings = MonitorSettings(tmp_path, "title", 100, 100, True, "steps", Report(1, 10, 0.0, {}), WAITS, "", lanes=2)
    node = MonitorNode(settings)
    node.open(ports)
    for update in (2000, 2001, 2002):
        reports.put(update, rollout_episodes=0.0)
        tell(node)
    told = [line for line in logged(tmp_path) if "no episode" in line]
    assert [line.partition(": ")[0] for line in told] == ["no episode has ended in 10,000 steps of each lane"]


def test_an_environment_whose_episodes_end_is_not_asked_for_shorter_ones(tmp_path, monkeypatch) -> None:
    reports, ports = Reports(), Ports()
    monkeypatch.setattr(ports, "stream_reader", lambda edge: reports)
    node = MonitorNode(MonitorSettings(tmp_path, "title", 100, 100, True, "steps", NEW, WAITS, ""))
    node.open(ports)
    for update, episodes in ((1, 1.0), (5000, 1.0)):
        reports.put(update, rollout_episodes=episodes)
        tell(node)
    assert not [line for line in logged(tmp_path) if "no episode" in line]


def test_rows_that_a_table_has_lost_are_told_of_once_there_are_any(tmp_path, monkeypatch) -> None:
    ports = Ports()
    monkeypatch.setattr(ports, "balance", lambda: Balance(9, 7, 2, 0, 0))
    node = opened(tmp_path, ports)
    counted = {"learner": {"redone": 3, "lost": 0}, "relay": {"redone": 0, "lost": 0}}
    assert "rows/lost" not in node._rows(counted)
    counted["relay"]["lost"] = 64
    found = node._rows(counted)
    assert (found["rows/lost"], found["rows/redone"], found["rows/learned"]) == (64.0, 3.0, 7.0)
