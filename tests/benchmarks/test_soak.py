"""The faults that a soak chooses, its figures and report, and its smallest sitting. No time is judged here."""

import json
import math
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.soak import faults, on_policy, report, sitting
from benchmarks.soak.environment import ATTENDANT, attended
from benchmarks.soak.faults import Draw, Fault, match, uncaused
from benchmarks.soak.log import Follower, Reported, Told, reports_of, told_in
from benchmarks.soak.measures import Sample, Span, cycles, lives, rate, recovery_s, throughput_ratio, varied
from benchmarks.soak.on_policy import MEMBERS, SETTING, SPARED, STOPPED, missed
from benchmarks.soak.processes import LAUNCHER, MARK, Held, Process, held, processes
from benchmarks.soak.report import Asked, find, save
from benchmarks.soak.sitting import Ended, Sitting, Watched
from benchmarks.soak.timetable import Part, timetable
from penstock.metrics.jsonl import JsonLines
from penstock.metrics.report import STEPS_PER_SECOND, Report

KILL, STOP = int(signal.SIGKILL), int(signal.SIGSTOP)


def fault(at: float, process: str, number: int = KILL, age_s: float = 10.0) -> Fault:
    return Fault(at, 1, 1, process, number, age_s)


def told(at: float, node: str, number: int, *, status: int = -KILL, uptime_s: float = 10.0) -> Told:
    note = f"{node} was ended by SIGKILL after {uptime_s:.1f} s and was started again (restart {number})"
    return Told(at, node, number, status, uptime_s, note)


def reported(*rows: tuple[float, int, float]) -> list[Reported]:
    return [Reported(at, update, steps, time_s, 0) for update, (at, steps, time_s) in enumerate(rows)]


def looks(name: str, pid: int, values: list[tuple[float, int | None, Held]]) -> dict[Process, list[Sample]]:
    return {Process(pid, 0, name): [Sample(*value) for value in values]}


# ---- the timetable, and the choice of faults


def test_thirty_minutes_with_faults_and_ten_without_in_turns() -> None:
    first, second = timetable(30.0, SPARED, lives=2)
    parts = first + second
    assert [part.number for part in parts] == list(range(60))
    assert [part.faults for part in parts] == [False, True] * 30
    assert sum(part.seconds for part in parts if part.faults) == pytest.approx(30 * 60)
    assert sum(part.seconds for part in parts if not part.faults) == pytest.approx(10 * 60)
    assert [part.spared for part in first[::10]] == ["env.0", "learner", "evaluator"]
    assert [part.spared for part in second[::10]] == ["env.1", "monitor", None]
    assert {part.cycle for part in parts[:10]} == set(range(5))


def test_the_quiet_of_a_short_form_is_long_enough_to_settle() -> None:
    first, second = timetable(1.0, SPARED, lives=2)
    assert [(part.faults, part.seconds) for part in first] == [(False, 10.0), (True, 10.0)] * 3
    assert len(second) == 6


def test_a_draw_repeats_itself_and_spares_whom_it_is_told() -> None:
    draws = [Draw(tuple(MEMBERS), STOPPED, seed=5) for _ in range(2)]
    drawn = [[(draw.pause_s(), *draw.next("env.0")) for _ in range(500)] for draw in draws]
    assert drawn[0] == drawn[1]
    assert {who for _, who, how in drawn[0] if how == KILL} == set(MEMBERS) - {"env.0"}
    assert {who for _, who, how in drawn[0] if how == STOP} == {"env.1"}
    assert all(4.0 <= pause <= 6.0 for pause, *_ in drawn[0])
    assert 20 < sum(how == STOP for *_, how in drawn[0]) < 80


# ---- whether the run has reported each fault


def test_every_fault_is_told_of_once_for_each_node_of_its_process() -> None:
    done = [fault(100, "env.0"), fault(105, "monitor"), fault(110, "env.0")]
    said = [told(100.1, "env.0", 1), told(105.5, "checkpointer", 1), told(105.5, "monitor", 1), told(110, "env.0", 2)]
    found = match(done, said, MEMBERS)
    assert [entry.wrong for entry in found] == [(), (), ()]
    assert [len(entry.told) for entry in found] == [1, 2, 1]
    assert uncaused(found, said) == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ([], "told of 0 times"),
        ([told(100, "env.0", 1), told(101, "env.0", 1)], "told of 2 times"),
        ([told(100, "env.0", 1, status=1)], "status 1"),
        ([told(100, "env.0", 1, uptime_s=3.0)], "uptime 3.0 s, it was 10.0 s"),
        ([told(100, "env.0", 1, uptime_s=13.0)], "uptime 13.0 s"),
        ([told(100, "env.0", 1)._replace(note="env.0 was started again (restart 1)")], "was started again"),
    ],
)
def test_what_is_told_otherwise_than_it_was_is_said(said, wrong) -> None:
    (found,) = match([fault(100, "env.0")], said, MEMBERS)
    assert len(found.wrong) == 1
    assert wrong in found.wrong[0]


def test_what_was_stopped_lives_until_it_is_found() -> None:
    (found,) = match([fault(100, "env.0", STOP)], [told(103.6, "env.0", 1, uptime_s=13.5)], MEMBERS)
    assert found.wrong == ()


def test_a_restart_that_nobody_caused_is_found() -> None:
    said = [told(100, "env.0", 1), told(130, "env.0", 2), told(140, "learner", 1)]
    found = match([fault(100, "env.0")], said, MEMBERS)
    assert uncaused(found, said) == said[1:]


# ---- figures


def test_a_slope_is_megabytes_a_minute_after_the_warm_up() -> None:
    # 50 MB in the first minute, then 2 MB in each minute. The shared part grows by other amounts and does not count.
    values = [(float(s), None, Held(min(s, 60) * 50 / 60 + max(0, s - 60) / 30, float(s), 9, 1)) for s in range(301)]
    (life,) = lives(looks("learner", 7, values), warm_up_s=60.0, at_least=3.0)
    assert life.mb_a_minute == pytest.approx(2.0)
    assert (life.minutes, life.own_mb, life.shared_mb) == (4.0, 58.0, 300.0)
    assert lives(looks("learner", 7, values), warm_up_s=60.0, at_least=4.1) == []
    assert lives(looks("learner", 7, values[:2]), warm_up_s=60.0, at_least=0.0) == []


def test_what_is_held_for_a_moment_is_no_leak() -> None:
    assert varied([(2, 9), (2, 12), (None, 30), (4, 9), (4, 9), (6, 10), (6, 9)]) == 0
    assert varied([(2, 9), (None, 9), (4, 10), (4, 11)]) == 1
    assert varied([(2, 9), (4, 8)]) == 1
    assert varied([(None, 9), (None, 10)]) == 0


def test_a_rate_begins_with_the_second_report_after_the_telling() -> None:
    reports = reported((9, 0, 9.0), (11, 100, 11.0), (12, 200, 12.5), (13, 300, 13.0), (14, 500, 13.5), (15, 900, 14.0))
    span = Span(0, "env.0", begun=10.0, ended=14.0)
    # From 200 steps at 12.5 s to 500 at 13.5 s of the learner's clock.
    assert rate(reports, span) == pytest.approx(300.0)
    assert recovery_s(reports, span, struck=9.5) == 2.5
    assert rate(reports, span._replace(ended=13.0)) is None
    assert recovery_s(reports, span._replace(ended=11.5), struck=9.5) is None


def test_each_cycle_stands_beside_its_own_quiet() -> None:
    # 1,000 steps/s for 20 s, then 800 for 20 s; the next cycle runs at half of both. Two reports a second.
    rows, steps = [], 0.0
    for tick in range(160):
        rows.append((tick / 2, int(steps), tick / 2))
        steps += (500 if tick % 80 < 40 else 400) / (1 if tick < 80 else 2)
    spans = []
    for cycle in (0, 1):
        begun = cycle * 40.0
        spans += [Span(cycle, None, begun + 5 * n + 0.1, begun + 5 * n + 5) for n in range(4)]
        spans += [Span(cycle, "learner", begun + 20 + 5 * n + 0.1, begun + 20 + 5 * n + 5) for n in range(4)]
    found = cycles(reported(*rows), [*spans, Span(2, None, 79.0, 79.5)])
    assert [(cycle.quiet, cycle.faults) for cycle in found] == [(1000.0, 800.0), (500.0, 400.0)]
    assert found[0].struck == pytest.approx(800.0, rel=0.02)
    assert throughput_ratio(found) == pytest.approx(0.8)
    assert math.isnan(throughput_ratio([]))


# ---- the log


def write(log: JsonLines, update: int, **values: float) -> None:
    log.write(Report(update, update * 10, update / 2, {STEPS_PER_SECOND: 5.0, **values}))


def test_a_follower_reads_each_line_once_also_where_the_log_is_written_anew(tmp_path) -> None:
    follower = Follower(tmp_path / "metrics.jsonl")
    assert follower.poll() == []
    log = JsonLines(tmp_path)
    write(log, 1)
    write(log, 2)
    write(log, 3)
    assert [line["update"] for line in follower.poll()] == [1, 2, 3]
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 4, "st')
    assert follower.poll() == []
    # The monitor's next life cuts off an incomplete line. A resumed run cuts off lines of updates that were lost.
    write(JsonLines(tmp_path, None), 4)
    assert [line["update"] for line in follower.poll()] == [4]
    again = JsonLines(tmp_path, 2)
    write(again, 3, late=1.0)
    assert [(line["update"], line.get("late")) for line in follower.poll()] == [(3, 1.0)]
    write(again, 4)
    assert [line["update"] for line in follower.poll()] == [4]


def test_updates_and_restarts_are_told_apart(tmp_path) -> None:
    log = JsonLines(tmp_path)
    write(log, 1)
    log.write(Report(1, 10, 0.5, {"eval/return_mean": 3.0}))
    death = {"restarts/env.0": 2.0, "death/status": -9.0, "death/uptime_s": 3.25}
    log.write(Report(1, 10, 0.5, death, "env.0 was started again (restart 2)"))
    lines = Follower(tmp_path / "metrics.jsonl").poll()
    assert reports_of(lines, 7.0) == [Reported(7.0, 1, 10, 0.5)]
    balanced = {"rows/collected": 200, "rows/learned": 100, "rows/in_flight": 64, "rows/stale": 20, "rows/spoilt": 16}
    for rows, unbalanced in ((balanced, 0), (balanced | {"rows/collected": 264}, 64)):
        assert reports_of([lines[0] | rows], 7.0) == [Reported(7.0, 1, 10, 0.5, unbalanced)]
    assert told_in(lines, 7.0) == [Told(7.0, "env.0", 2, -9, 3.25, "env.0 was started again (restart 2)")]


# ---- processes


def test_processes_are_found_wherever_they_went_and_the_dead_among_them() -> None:
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "ended = subprocess.Popen(['true'])\n"
        "sys.stdin.readline()\n"
    )
    mark = f"test-{os.getpid()}"
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, env={**os.environ, MARK: mark})
    found: list[Process] = []
    try:
        # Until each is called by its own name; the second child has then ended, or is about to.
        while len(found) < 3 or not all(name in {LAUNCHER, "sleep", "true"} for _, _, name in found):
            found = processes(mark, parent.pid, ())
        assert sorted(process.name for process in found) == [LAUNCHER, "sleep", "true"]
        holds = held(next(process for process in found if process.name == LAUNCHER))
        assert holds is not None
        assert holds.files >= 3
        assert holds.threads == 1
        assert holds.own_mb > 1
    finally:
        for process in found:
            if process.name == "sleep":
                os.kill(process.pid, signal.SIGKILL)
        parent.communicate()
    assert processes(mark, parent.pid, ()) == []


def test_what_an_environment_has_started_ends_when_it_is_closed() -> None:
    env = attended()
    attendant = env.unwrapped._attendant
    assert attendant.args[0] == ATTENDANT
    assert attendant.poll() is None
    env.reset(seed=1)
    assert len(env.step(env.action_space.sample())) == 5
    env.close()
    assert attendant.poll() == -KILL


# ---- the report


ASKED = Asked("command", "run", 30.0, MEMBERS, threshold=-200.0, warm_up_s=60.0)


def watched() -> Watched:
    """Ten minutes in which nothing was wrong."""
    calm = [(float(s), s // 100, Held(20.0, 5.0, 9, 1)) for s in range(0, 601, 5)]
    seen = Watched(faults=[[fault(500, "env.0")]], told=[[told(500, "env.0", 1)]], counts=[[(0, 20), (1, 20)]])
    for pid, name in enumerate((*report.ALWAYS, *MEMBERS)):
        seen.samples |= looks(name, pid, calm)
    seen.reports = reported(*((s / 10, s * 100, s / 10) for s in range(100)))
    seen.spans = [Span(0, None, 1.05, 3.95), Span(0, "env.0", 5.05, 8.95)]
    seen.ended = [
        Ended("Ctrl-C", 130, 0, (40, 4000), (1, 100), ""),
        Ended("by itself", 0, 0, (80, 8000), (41, 4100), ""),
    ]
    return seen


def test_a_sitting_in_which_nothing_was_wrong_holds_every_bar() -> None:
    found = find(ASKED, watched(), -150.0)
    assert [bar.name for bar in found.bars if not bar.holds] == []


def broken(what: str) -> Watched:
    seen = watched()
    learner = next(process for process in seen.samples if process.name == "learner")
    launcher = next(process for process in seen.samples if process.name == LAUNCHER)
    match what:
        case "memory":
            seen.samples[learner] = [
                look._replace(held=look.held._replace(own_mb=look.at / 50)) for look in seen.samples[learner]
            ]
        case "short":
            seen.samples[learner] = seen.samples[learner][:40]
        case "descriptors":
            seen.samples[launcher] = [
                look._replace(held=look.held._replace(files=9 + (look.part == 4))) for look in seen.samples[launcher]
            ]
        case "processes":
            seen.counts.append([(5, 21), (6, 22)])
        case "slow":
            seen.spans[0] = Span(0, None, 1.05, 3.95)
            seen.reports = reported(*((s / 10, s * (100 if s < 45 else 85), s / 10) for s in range(100)))
        case "lost":
            seen.reports[50] = seen.reports[50]._replace(unbalanced=64)
        case "untold":
            seen.told = [[]]
        case "left":
            seen.ended[0] = seen.ended[0]._replace(left=1)
        case "torn":
            seen.ended[1] = seen.ended[1]._replace(checkpoint=None)
        case "seam":
            seen.ended[1] = seen.ended[1]._replace(first=(41, 4200))
    return seen


@pytest.mark.parametrize(
    ("what", "bar"),
    [
        ("memory", "learner: MB a minute"),
        ("short", "learner: MB a minute"),
        ("descriptors", "launcher: change of descriptors"),
        ("processes", "change of the number of processes"),
        ("slow", "steps/s between faults, beside those without"),
        ("lost", "updates at which rows were lost or doubled"),
        ("untold", "restarts told of otherwise than they were, or that nobody caused"),
        ("left", "processes left 2 s after an end"),
        ("torn", "ends after which the last checkpoint was not whole"),
        ("seam", "resumes that did not go on behind the last checkpoint"),
    ],
)
def test_each_bar_is_missed_by_what_it_is_for(what: str, bar: str) -> None:
    found = find(ASKED, broken(what), -150.0)
    assert [each.name for each in found.bars if not each.holds] == [bar]
    assert len(missed(found, 30.0)) == 1
    # In a short form, figures that were too short to judge are no failures.
    assert len(missed(found, 1.0)) == (what != "short")


def test_a_policy_that_is_not_good_enough_is_a_miss() -> None:
    assert [bar.name for bar in find(ASKED, watched(), -201.0).bars if not bar.holds] == ["return at the end"]


def test_the_report_is_written_while_it_is_under_way_and_when_it_broke_off(tmp_path) -> None:
    path = tmp_path / "soak.json"
    save(path, ASKED, Watched(), None, "")
    assert json.loads(path.read_text())["state"] == "under way"
    save(path, ASKED, watched(), -150.0, "broken off: why\nand more")
    result = json.loads(path.read_text())
    assert list(result)[:3] == ["commit", "machine", "command"]
    assert result["state"] == "broken off: why\nand more"
    assert result["faults"] == {"env.0": {"SIGKILL": 1, "SIGSTOP": 0, "told": 1}}
    assert len(result["lives"]) == 8
    table = path.with_suffix(".md").read_text()
    assert "broken off: why." in table
    assert "| learner: MB a minute | 0.00 | at most 1 | holds |" in table


def test_a_run_goes_on_behind_its_checkpoint() -> None:
    assert report.follows((41, 4100), (40, 4000))
    assert report.follows((45, 4500), (40, 4000))
    assert not report.follows((40, 4000), (40, 4000))
    assert not report.follows((1, 100), (40, 4000))
    assert not report.follows((41, 4200), (40, 4000))


# ---- the smallest sitting


@pytest.mark.nightly  # Ten seconds of faults and pauses. Shorter: each part of a sitting above, and its end below.
def test_a_sitting_at_its_smallest(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(faults, "EVERY_S", (0.4, 0.6))
    monkeypatch.setattr(faults, "STOPS", 0.0)
    monkeypatch.setattr(faults, "UPTIME_S", 60.0)
    monkeypatch.setattr(sitting, "LEFT_AFTER_S", 60.0)
    for module, name, value in ((sitting, "SETTLE_S", 0.2), (sitting, "SPAN_S", 0.5), (sitting, "SAMPLE_S", 0.1)):
        monkeypatch.setattr(module, name, value)
    small = {**SETTING, "num_steps": 64, "eval_interval": 0, "num_envs": 2}
    members = {"learner": ("learner",), "monitor": ("checkpointer", "monitor")}
    saved: list[int] = []
    sat = Sitting(tmp_path, members, Draw(tuple(members), tuple(members), 1), lambda seen: saved.append(len(seen.told)))
    try:
        words = [word for name, value in small.items() for word in (f"--{name}", str(value))]
        sat.begin("train", *words, "--log_dir", str(tmp_path))
        sat.go_through([Part(0, 0, 1.0, faults=False, spared=None), Part(1, 0, 2.5, faults=True, spared="monitor")])
        sat.interrupt()
        seen = sat.watched
        sat.begin("resume", str(seen.run))
        sat.go_through([Part(2, 1, 1.5, faults=True, spared="learner")])
        sat.kill()
        sat.begin("resume", str(seen.run), "--timesteps", str(seen.reports[-1].steps + 2000))
        sat.wait(120.0)
    finally:
        sat.give_up()
    assert [end.status for end in seen.ended] == [130, -KILL, 0]
    found = find(ASKED._replace(members=members), seen, -150.0)
    assert found.wrong == []
    assert {entry.fault.process for entry in found.matched} == {"learner", "monitor"}
    verdicts = {bar.name: bar.holds for bar in found.bars}
    assert verdicts["processes left 2 s after an end"]
    assert verdicts["ends after which the last checkpoint was not whole"]
    assert verdicts["resumes that did not go on behind the last checkpoint"]
    assert {process.name for process in seen.samples} >= {*report.ALWAYS, *members}


def test_a_command_that_ends_before_its_time_breaks_the_sitting(tmp_path) -> None:
    sat = Sitting(tmp_path, MEMBERS, Draw(tuple(MEMBERS), STOPPED, 0), lambda seen: None)
    with pytest.raises(sitting.BrokenError, match="unknown environment"):
        sat.begin("train", "--env", "NoSuch-v0", "--log_dir", str(tmp_path))
    sat.give_up()


def test_every_process_may_be_struck_and_is_spared_once() -> None:
    assert sorted(who for who in SPARED if who) == sorted(MEMBERS)
    assert set(on_policy.STOPPED) <= set(MEMBERS)
