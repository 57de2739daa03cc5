import contextlib
import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from penstock.metrics.figures import Figures, clock, idle_shares
from penstock.metrics.live import LiveDisplay, Terminal, sparkline
from penstock.metrics.progress import Lines, PlainLines, progress_sink
from penstock.metrics.report import STEPS_PER_SECOND, Report


def report(update, rate=1000.0):
    values = {
        "rollout/return_mean": -1000.0 + update,
        "rollout/length_mean": 200.0,
        "loss/policy": -0.0123,
        "loss/value": 10.5,
        "throughput/steps_per_second": rate,
        "idle/env.0": 0.25,
        "idle/env.1": 0.75,
        "idle/learner": 0.1,
        "idle/monitor": 1.0,
    }
    return Report(update, update * 1000, float(update), values)


EVALUATION = Report(5, 5000, 0.0, {"eval/return_mean": -321.0})


def lines_of(updates, interval=10):
    stream = io.StringIO()
    lines = PlainLines(Lines(100_000, interval), stream)
    for update in updates:
        lines.write(report(update))
    lines.close()
    return stream.getvalue().splitlines()


def test_slow_updates_have_a_line_each(monkeypatch):
    times = iter([0.0, *(6.0 * update for update in range(1, 100))])
    monkeypatch.setattr("penstock.metrics.progress.time.monotonic", lambda: next(times))
    # 0: made. 6, 12: update 1 and 2 are looked at, and 2 is shown at 18. 24: update 3; 30: update 4, shown at 36.
    assert [line.partition(" |")[0] for line in lines_of(range(1, 5))] == ["update 2", "update 4"]


def test_a_plain_line_holds_everything():
    (line,) = lines_of([10])
    for part in ("update 10", "steps 10,000/100,000 (10%)", "1,000 steps/s", "return -990.0", "length 200.0",
                 "policy -0.0123", "value 10.5", "idle env 50%  learner 10%", "ETA 0:01:30"):  # fmt: skip
        assert part in line


def test_a_line_has_how_like_its_demonstrations_a_clone_is():
    figures = Figures(1000)
    figures.add(Report(1, 10, 1.0, {STEPS_PER_SECOND: 10.0, "loss/imitation": 0.5, "loss/held_out": 0.625}))
    assert "imitation 0.5  held out 0.625" in figures.line()


def test_fast_updates_before_slow_ones_do_not_hide_how_long_the_rest_takes():
    # Rows before learning begins come by the ten thousand a second, those after it by 25.
    stream = io.StringIO()
    lines = PlainLines(Lines(100_000, 10), stream)
    for update in range(1, 21):
        lines.write(report(update, 50_000.0 if update <= 10 else 25.0))
    lines.close()
    first, second = stream.getvalue().splitlines()
    assert "50,000 steps/s" in first
    assert "ETA 0:00:02" in first
    # 40 ms a step, less 0.8^10 of what it was below: 35.7 ms.
    assert "28 steps/s" in second
    assert "ETA 0:47:37" in second


def test_plain_lines_come_every_log_interval_and_at_the_end():
    shown = [line.split(" | ")[0] for line in lines_of(range(1, 25))]
    assert shown == ["update 10", "update 20", "update 24"]
    assert len(lines_of(range(1, 21))) == 2


def test_an_evaluation_is_shown_with_the_next_line():
    stream = io.StringIO()
    lines = PlainLines(Lines(100_000, 1), stream)
    lines.write(EVALUATION)
    assert stream.getvalue() == ""
    lines.write(report(6))
    lines.close()
    assert "evaluation -321.0" in stream.getvalue()


class Gone(io.StringIO):
    """A stream whose reader has left."""

    def write(self, _):
        raise BrokenPipeError

    def isatty(self):
        return True


def test_a_reader_that_leaves_does_not_end_the_run():
    lines = PlainLines(Lines(100_000, 1), Gone())
    live = LiveDisplay("run", 100_000, Terminal(file=Gone(), force_terminal=True, width=80))
    for update in range(1, 4):
        lines.write(report(update))
        live.write(report(update))
    lines.close()
    live.close()


@pytest.mark.parametrize(
    "display", ["PlainLines(Lines(9, 1), sys.stdout)", "LiveDisplay('run', 9, Terminal(force_terminal=True))"]
)
def test_a_pipe_that_nobody_reads_is_no_failure_at_exit_either(display):
    program = (
        "import sys; from penstock.metrics.live import *; from penstock.metrics.progress import *\n"
        "from penstock.metrics.report import Report\n"
        f"sink = {display}\n"
        "for update in range(5): sink.write(Report(update, update, 1.0, {'throughput/steps_per_second': 1.0}))\n"
        "sink.close()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "display", ["PlainLines(Lines(9, 1), sys.stdout)", "LiveDisplay('run', 9, Terminal(file=own_stream(sys.stdout)))"]
)
def test_a_pipe_that_nobody_empties_holds_nothing_up(display):
    program = (
        "import sys; from penstock.metrics.live import *; from penstock.metrics.progress import *\n"
        "from penstock.metrics.output import own_stream\n"
        "from penstock.metrics.report import Report\n"
        f"sink = {display}\n"
        "for update in range(500): sink.write(Report(update, update, 1.0, {'throughput/steps_per_second': 1.0}))\n"
        "sink.close(); sink.close()"
    )
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(size))
    os.set_blocking(writer, True)
    # That it ends is what is tested; the limit only ends a test that hangs.
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120
    )
    os.close(reader)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_standard_output_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    sink = progress_sink("run", 100_000, 1, 0.0)
    sink.write(report(1))
    sink.close()


def test_a_closed_standard_output(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    sink = progress_sink("run", 100_000, 1, 0.0)
    sink.write(report(1))
    sink.close()


@pytest.mark.parametrize(
    ("tty", "term", "kind"), [(True, "xterm", LiveDisplay), (False, "xterm", PlainLines), (True, "dumb", PlainLines)]
)
def test_the_display_suits_where_it_goes(monkeypatch, tty, term, kind):
    stream = io.StringIO()
    stream.isatty = lambda: tty
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", term)
    sink = progress_sink("run", 100_000, 1, 0.0)
    assert isinstance(sink, kind)
    sink.close()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_display_fits_its_terminal(width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    live = LiveDisplay("Pendulum-v1-ppo-20260102-120000-a-long-name", 100_000, console)
    for update in range(1, 40):
        live.write(report(update))
    live.write(EVALUATION)
    text = "\n".join("".join(part.text for part in line) for line in console.render_lines(live._view(), pad=False))
    live.close()
    assert max(map(len, text.splitlines())) <= width
    for part in ("39,000 of 100,000", "1,000 steps/s", "-961.0", "200.0", "-321.0", "policy", "env 50%"):
        assert part in text


def test_the_live_display_in_a_locale_without_blocks():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    live = LiveDisplay("run", 100_000, Console(file=stream, force_terminal=True, width=80))
    for update in range(1, 10):
        live.write(report(update))
    live.close()


def test_a_sparkline_shows_a_rise():
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.0, 0.0, 7.0, 7.0], 2) == "▁█"
    assert sparkline([5.0, 5.0], 8) == "▁▁"
    assert sparkline([], 8) == ""


def test_the_first_rate_counts_the_start_up_and_is_forgotten():
    figures = Figures(100_000)
    figures.add(report(1, rate=10.0))
    figures.add(report(2, rate=1000.0))
    assert figures.rate == "1,000"
    figures.add(report(3, rate=2000.0))
    assert figures.rate == "1,111"  # a step takes 1 ms + 0.2 * (0.5 ms - 1 ms)


def test_idle_shares_are_means_by_kind():
    assert idle_shares(report(1).values) == {"env": 0.5, "learner": 0.1, "monitor": 1.0}


def test_a_clock_reads_hours_minutes_seconds():
    assert [clock(value) for value in (0.4, 61, 3_725.2)] == ["0:00:00", "0:01:01", "1:02:05"]


def test_episode_metrics_are_shown_with_the_returns():
    stream = io.StringIO()
    told = report(1)._replace(values={**report(1).values, "episode/won": 0.8349, "episode/laps": 1200.0})
    lines = PlainLines(Lines(100_000, 1), stream)
    lines.write(told)
    lines.close()
    assert " | won 0.835  laps 1.2e+03 | " in stream.getvalue()
    shown = io.StringIO()
    display = LiveDisplay("run", 100_000, Terminal(file=shown, force_terminal=True, width=80))
    display.write(told)
    display.close()
    assert "won 0.835  laps 1.2e+03" in shown.getvalue()


def test_the_live_display_shows_brackets_in_names_and_notes_as_they_are():
    shown = io.StringIO()
    display = LiveDisplay("run", 100_000, Terminal(file=shown, force_terminal=True, width=80))
    values = {**report(1).values, "episode/speed[m/s]": 2.5, "episode/x[/dim]": 1.0}
    display.write(report(1)._replace(values=values, note="no [red]won"))
    display.close()
    assert "speed[m/s] 2.5  x[/dim] 1" in shown.getvalue()
    assert "no [red]won" in shown.getvalue()


def test_lines_of_fast_updates_are_at_least_so_many_seconds_of_training_apart():
    # All reports are read at once. The time in them counts, so that the log and the display have the same lines.
    stream = io.StringIO()
    lines = PlainLines(Lines(100_000, 10, least_s=1.0), stream)
    for update in range(1, 58):
        lines.write(report(update)._replace(time_s=0.05 * update))
    lines.close()
    # 20 updates a second: the first line at 0.5 s, then 1.5 s and 2.5 s, and the last update.
    shown = [line.split(" | ")[0] for line in stream.getvalue().splitlines()]
    assert shown == ["update 10", "update 30", "update 50", "update 57"]
