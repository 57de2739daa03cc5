"""The progress of an evaluation: a line from time to time, or one line that is overwritten."""

import io

from rich.console import Console

from penstock.metrics.evaluation import PlainProgress, Progress, progress_text
from penstock.metrics.live import LiveEvaluation


def test_the_line_says_episodes_mean_and_time() -> None:
    said = "evaluation: 37 of 1,000 episodes, return -153.2, 0:00:12"
    assert progress_text(Progress(37, -153.24, 12.0, None), 1000) == said
    assert progress_text(Progress(37, -153.24, 12.0, 3), 1000) == f"{said}; --eval_seconds are over, 3 still to end"
    assert "3 still to end, none has ended so far" in progress_text(Progress(0, None, 12.0, 3), 1000)
    assert progress_text(Progress(0, None, 0.0, None), 5) == "evaluation: 0 of 5 episodes, 0:00:00"


def test_plain_lines_come_by_the_clock_alone() -> None:
    stream = io.StringIO()
    display = PlainProgress(100, stream, interval_s=3600.0)
    for played in range(100):
        display.show(Progress(played, 1.0, 0.0, None))
    display.close()
    assert stream.getvalue() == ""
    display = PlainProgress(100, stream, interval_s=0.0)
    display.show(Progress(4, 1.0, 2.0, None))
    display.close()
    assert stream.getvalue() == "evaluation: 4 of 100 episodes, return 1.0, 0:00:02\n"


def test_no_standard_output_is_no_failure() -> None:
    display = PlainProgress(100, None, interval_s=0.0)
    display.show(Progress(4, 1.0, 2.0, None))
    display.close()


def test_a_terminal_shows_it_live_and_gets_its_cursor_back() -> None:
    stream = io.StringIO()
    display = LiveEvaluation(100, Console(file=stream, force_terminal=True, width=80))
    display.show(Progress(37, -153.24, 12.0, None))
    display.close()
    assert "37 of 100 episodes, return -153.2, 0:00:12" in stream.getvalue()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")
