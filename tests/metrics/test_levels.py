"""Levels of metrics, in the code and on the page that explains every metric."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

from penstock.config.commands import MetricsOptions
from penstock.metrics.levels import LEVELS, level_of
from penstock.metrics.report import EVAL_RETURN, IDLE, POLICY_LOSS, RETURN, STEPS_PER_SECOND

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
NO_METRICS = {"returns", "note"}


def test_a_level_is_told_by_the_name() -> None:
    assert {level_of(name) for name in (STEPS_PER_SECOND, f"{IDLE}env.0", "rows/stale")} == {"framework"}
    assert {level_of(name) for name in (POLICY_LOSS, "loss/my_own")} == {"algorithm"}
    assert {level_of(name) for name in (RETURN, EVAL_RETURN, "episode/won", "eval/episode/won")} == {"task"}
    assert level_of("unheard/of") is None


def test_the_page_gives_each_metric_its_level() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `") and "/" in line]
    told = {name: level for names, level, *_ in rows for name in re.findall(r"`([^`]+/[^`]+)`", names)}
    assert len(told) > 40
    assert {name: level_of(name) for name in told} == told


def test_the_command_line_knows_every_level() -> None:
    words = [word for member in get_args(get_type_hints(MetricsOptions)["level"]) for word in get_args(member)]
    assert tuple(words) == tuple(LEVELS)
