"""Why the run of a trial failed, by what it printed."""

from pathlib import Path

import pytest

from penstock.tune.output import failure_in, reason_in, without_evaluation

NODE = """ppo on boom:Boom: 8 lanes
Traceback (most recent call last):
  File "cause.py", line 1, in step
KeyError: 'cause'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "boom.py", line 12, in step
    raise ValueError("boom at 50")
ValueError: boom at 50
in lane 0 of boom:Boom
penstock: node env.0 failed; its traceback is above
penstock: it had learned nothing; its folder: logs/boom
"""
STACKS = """Current thread 0x7f (most recent call first):
  File "boom.py", line 12 in step
penstock: node env.0 failed; its stacks are above
penstock: it had learned nothing; its folder: logs/boom
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NODE, "node env.0 failed: ValueError: boom at 50"),
        (STACKS, "node env.0 failed"),
        ("no sign of life from env.0 for 2 s\n" + STACKS, "node env.0 failed: no sign of life from env.0 for 2 s"),
        ("at step 3\npenstock: error: no reward\npenstock: it had learned nothing\n", "no reward"),
        ("penstock: error: first\n" + NODE, "node env.0 failed: ValueError: boom at 50"),
        ("stopped after 512 steps; continue with: penstock resume logs/boom\n", None),
        ("", None),
    ],
)
def test_the_reason_is_the_error_not_what_is_said_of_the_run_behind_it(tmp_path: Path, text: str, why: str | None):
    (tmp_path / "output.txt").write_text(text)
    assert failure_in(tmp_path / "output.txt") == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("the evaluation was given up: env: broken\nrun folder: x\n", "evaluation was given up: env: broken"),
        ("penstock: the evaluation was interrupted; the run in x is complete\n", "evaluation was interrupted"),
        ("mean return 3.0\n", ""),
    ],
)
def test_why_a_run_was_not_evaluated_stands_in_its_output(tmp_path: Path, text: str, why: str):
    (tmp_path / "output.txt").write_text(text)
    assert without_evaluation(tmp_path / "output.txt") == why


def test_a_run_that_failed_without_an_error_of_its_own_has_its_last_line(tmp_path: Path):
    (tmp_path / "output.txt").write_text("first\n\nlast\n\n")
    assert reason_in(tmp_path / "output.txt") == "last"
    assert reason_in(tmp_path / "none.txt") == "it wrote nothing"
    assert failure_in(tmp_path / "none.txt") is None
