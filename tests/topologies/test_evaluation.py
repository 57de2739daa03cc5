"""The program of a final evaluation: how many play, with how many lanes."""

from pathlib import Path

import pytest

from penstock.evaluation import Asked, _plan
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.topologies.evaluation import build
from tests.planned import prepared


def program(episodes: int, **settings: object) -> Program:
    found = prepared(**{"num_envs": 8, **settings})
    return check(build(_plan(found, {}, Asked(episodes, 0, None, quiet=True), Path("deaths.log"))))


def players(found: Program) -> list[tuple[str, int]]:
    return [(node.name, node.settings.play.lanes) for node in found.nodes if node.kind == "player"]


def test_as_many_play_as_training_has_environment_processes() -> None:
    found = program(100, num_workers=4)
    assert players(found) == [(f"player.{index}", 1) for index in range(4)]
    assert found.groups == ("judge", "player.0", "player.1", "player.2", "player.3")


def test_no_more_play_than_there_are_episodes() -> None:
    assert players(program(2, num_workers=4)) == [("player.0", 1), ("player.1", 1)]


@pytest.mark.parametrize(("episodes", "lanes"), [(100, 4), (6, 3), (1, 1)])
def test_lanes_that_one_call_steps_stay_together(episodes: int, lanes: int) -> None:
    found = players(program(episodes, env="tests.environments:make_clocks", num_workers=2))
    assert [count for _, count in found] == [lanes] * len(found)
