"""The program of a final evaluation: how many play, with how many lanes."""

from pathlib import Path

import pytest

from penstock.config.schema import RunConfig
from penstock.evaluation import Asked, _plan, players_after, players_here, runtime_here
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies.evaluation import build
from tests.planned import prepared


def program(episodes: int, **settings: object) -> Program:
    found = prepared(**{"num_envs": 8, **settings})
    asked = Asked(episodes, 0, None, quiet=True, players=players_after(found.config.run), runtime="local")
    return check(build(_plan(found, {}, asked, RunFolder(Path("run")))))


def players(found: Program) -> list[tuple[str, int]]:
    return [(node.name, node.settings.play.lanes) for node in found.nodes if node.kind == "player"]


def test_as_many_play_as_training_has_environment_processes() -> None:
    found = program(100, num_workers=4)
    assert players(found) == [(f"player.{index}", 1) for index in range(4)]
    assert found.groups == ("judge", "player.0", "player.1", "player.2", "player.3")


def test_what_players_log_and_how_they_die_is_kept_in_the_folder_of_the_run() -> None:
    found = program(2, num_workers=1)
    assert (found.folder, found.deaths) == (Path("run"), Path("run/deaths.log"))


def test_no_more_play_than_there_are_episodes() -> None:
    assert players(program(2, num_workers=4)) == [("player.0", 1), ("player.1", 1)]


@pytest.mark.parametrize(("runtime", "after"), [("local", 8), ("ray", 3)])
def test_no_more_play_than_this_machine_has_cores_unless_it_ran_as_many_processes(
    monkeypatch: pytest.MonkeyPatch, runtime: str, after: int
) -> None:
    monkeypatch.setattr("penstock.evaluation.available_cores", lambda: 3)
    run = RunConfig(runtime=runtime, num_workers=8)
    # The run has just ended here. Its processes ran on this machine, or on those of a cluster.
    assert players_after(run) == after
    # Later `penstock eval` may be typed anywhere.
    assert players_here(run) == 3
    assert players_here(RunConfig(runtime=runtime, num_workers=2)) == 2
    # On several machines their cores count.
    assert players_here(run, 6) == 6
    # Ray may have been told that its machines have none.
    assert players_here(run, 0) == 1


@pytest.mark.parametrize(("runtime", "here"), [("local", "local"), ("inline", "inline"), ("ray", "local")])
def test_the_machine_that_has_launched_a_run_plays_its_final_evaluation_alone(runtime: str, here: str) -> None:
    assert runtime_here(RunConfig(runtime=runtime)) == here


@pytest.mark.parametrize(("episodes", "lanes"), [(100, 4), (6, 3), (1, 1)])
def test_lanes_that_one_call_steps_stay_together(episodes: int, lanes: int) -> None:
    found = players(program(episodes, env="tests.environments:make_clocks", num_workers=2))
    assert [count for _, count in found] == [lanes] * len(found)
