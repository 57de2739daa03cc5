"""The final evaluation: the processes that play it, its time limit, and what a run leaves if it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.errors import EnvError, NodeError
from penstock.metrics.jsonl import evaluations
from penstock.processes.starts import Processes
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.episodes import list_episodes, read_episode
from penstock.seeding import final_seed, validation_seed
from tests.children import of_group
from tests.environments import ClockEnv

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"env": "CartPole-v1", "num_steps": 8, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 8}
NUMBER = {final_seed(0, number): number for number in range(100)}
"""Seed -> test episode of a run with seed 0."""


def train(log_dir: Path, env: str, **settings: object) -> penstock.Result:
    values = {**SMALL, "env": f"{__name__}:{env}", "timesteps": 16, "log_dir": str(log_dir), **settings}
    return penstock.train(values, quiet=True)


class NumberedEnv(gymnasium.Env):
    """A test episode is one step, worth its number; an episode in training is worth nothing."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        self.number = NUMBER.get(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.number is not None:
            self.played(self.number)
        return np.zeros(1, np.float32), float(self.number or 0), True, False, {}

    def played(self, number: int) -> None:
        """Called in the step of a test episode."""


class UnclosableEnv(NumberedEnv):
    """Raises where the nodes of a run close it."""

    def close(self):
        if os.environ.get("PENSTOCK_GROUP", "").startswith(("env", "evaluator", "player")):
            raise RuntimeError("the renderer is gone already")


class InterruptingEnv(NumberedEnv):
    """Its launcher gets a Ctrl-C once the final evaluation plays."""

    def played(self, number: int) -> None:
        if number == 0:
            os.kill(int(os.environ["LAUNCHER"]), signal.SIGINT)
        time.sleep(0.05)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_an_interrupted_evaluation_loses_neither_the_policy_nor_the_card(tmp_path, monkeypatch, runtime) -> None:
    monkeypatch.setenv("LAUNCHER", str(os.getpid()))
    with pytest.raises(
        KeyboardInterrupt, match=r"^the evaluation was interrupted; the run in .* is complete: penstock eval"
    ):
        train(tmp_path, "InterruptingEnv", runtime=runtime)
    (folder,) = tmp_path.iterdir()
    assert (folder / "policy.onnx").exists()
    assert "not evaluated" in (folder / "README.md").read_text()
    interrupted, ended = (folder / "run.log").read_text().splitlines()[-2:]
    assert "the evaluation was interrupted; the run in " in interrupted
    assert ended.endswith(" ended after 16 steps, at update 1")


def test_the_card_says_what_the_evaluation_came_to(tmp_path: Path) -> None:
    result = train(tmp_path, "NumberedEnv", runtime="inline", eval_episodes=3)
    assert result.evaluation is not None
    assert result.evaluation.remark == ""
    assert "over 3 greedy episodes |" in (result.run_folder / "README.md").read_text()


class EndlessEnv(ClockEnv):
    """No episode of it ends."""

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


@pytest.mark.parametrize(
    ("runtime", "stall_timeout"),
    # Nine seconds, mostly of waiting. Shorter: two seconds in one process.
    [("inline", 2), pytest.param("local", 6, marks=pytest.mark.nightly)],
)
def test_an_evaluation_whose_episodes_do_not_end_is_given_up_and_said(tmp_path, runtime: str, stall_timeout) -> None:
    result = train(tmp_path, "EndlessEnv", runtime=runtime, stall_timeout=stall_timeout)
    assert result.evaluation is None
    assert not result.interrupted
    (note,) = result.notes
    assert note.startswith("the evaluation was given up: no episode of ")
    assert note.endswith(f"has ended for {stall_timeout} s (--stall_timeout); 0 had before")
    assert (result.run_folder / "policy.onnx").exists()
    if runtime == "inline":
        with pytest.raises(EnvError, match="the evaluation was given up"):
            penstock.evaluate(result.run_folder, episodes=1)


class HangingEnv(NumberedEnv):
    def played(self, number: int) -> None:
        time.sleep(60.0 if number == 3 else 0.0)


@pytest.mark.nightly  # Five seconds of waiting. Shorter: an evaluation whose episodes do not end.
def test_an_environment_that_hangs_in_an_evaluation_is_one_line(tmp_path: Path) -> None:
    (note,) = train(tmp_path, "HangingEnv", env_timeout=3.0).notes
    env = f"{__name__}:HangingEnv"
    assert note == f"the evaluation was given up: a step of environment {env} in its evaluation takes more than 3 s"


class FailingEnv(NumberedEnv):
    def played(self, number: int) -> None:
        if number == 3:
            raise RuntimeError("the simulator is broken")


def test_an_environment_that_fails_in_an_evaluation_is_one_line_and_its_traceback_stands_in_the_log(tmp_path) -> None:
    result = train(tmp_path, "FailingEnv", max_restarts=1)
    (note,) = result.notes
    assert note.startswith("the evaluation was given up: player.0: ")
    assert "\n" not in note
    assert "RuntimeError: the simulator is broken" in (result.run_folder / "deaths.log").read_text()
    with pytest.raises(NodeError, match="RuntimeError: the simulator is broken"):
        penstock.evaluate(result.run_folder, episodes=4)


class TracingEnv(NumberedEnv):
    """Writes down the parent of each process that makes it: the warden."""

    def __init__(self) -> None:
        with Path(os.environ["PARENTS"]).open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {os.getppid()}\n")


def test_probe_training_and_evaluation_have_one_warden(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("penstock.run.launching.Processes", Processes)  # not those of earlier runs
    monkeypatch.setenv("PARENTS", str(tmp_path / "parents"))
    train(tmp_path / "logs", "TracingEnv", eval_episodes=1)
    pids, parents = zip(*(line.split() for line in (tmp_path / "parents").read_text().splitlines()), strict=True)
    assert len(set(pids)) >= 3
    assert len(set(parents)) == 1


class SlowEnv(NumberedEnv):
    """A test episode takes 0.3 s: the fifth begins when a second is over, or later."""

    def played(self, number: int) -> None:
        time.sleep(0.3)


def test_an_evaluation_plays_five_episodes_and_those_begun_in_its_time_and_says_how_many(tmp_path: Path) -> None:
    result = train(tmp_path, "SlowEnv", eval_seconds=1, eval_episodes=9)
    assert result.evaluation is not None
    assert result.evaluation.episodes == 5
    # The first five, none left out: 0, 1, 2, 3 and 4.
    assert result.evaluation.mean_return == 2.0
    assert result.evaluation.remark == "played 5 of 9, as none begins after --eval_seconds 1"
    assert (
        "over 5 greedy episodes (played 5 of 9, as none begins after --eval_seconds 1)"
        in (result.run_folder / "README.md").read_text()
    )
    # `penstock eval` has no time limit, so it plays all episodes.
    asked = penstock.evaluate(result.run_folder, episodes=7)
    assert (asked.episodes, asked.mean_return, asked.remark) == (7, 3.0, "")


@pytest.mark.parametrize(
    ("settings", "ways"),
    [
        ({"env": "CartPole-v1"}, [(1, "local"), (2, "local"), (4, "local"), (2, "inline")]),
        ({"env": "tests.environments:FilmEnv", "inference": "onnx"}, [(1, "inline"), (2, "inline"), (4, "inline")]),
    ],
)
def test_what_episodes_return_depends_on_no_number_of_processes(tmp_path: Path, settings, ways) -> None:
    settings = {**SMALL, **settings, "num_envs": 4, "mini_batch_size": 32, "timesteps": 64, "eval_episodes": 11}
    found = []
    for num_workers, runtime in ways:
        way = {"num_workers": num_workers, "runtime": runtime, "log_dir": str(tmp_path)}
        found.append(penstock.train({**settings, **way}, quiet=True).evaluation)
    assert found[0] is not None
    assert found[0].episodes == 11
    assert found == [found[0]] * len(ways)


class DyingEnv(NumberedEnv):
    """Its process is killed once in test episode 4, after the episode has begun and before it is reported."""

    def played(self, number: int) -> None:
        if number == 4 and not (mark := Path(os.environ["DIED"])).exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_player_loses_and_doubles_no_episode(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    result = train(tmp_path / "logs", "DyingEnv", num_workers=2, eval_episodes=12)
    assert (tmp_path / "died").exists()
    assert result.evaluation is not None
    assert (result.evaluation.episodes, result.evaluation.mean_return) == (12, 5.5)


class WatchedEnv(NumberedEnv):
    """Writes down which test episodes are played; each takes a moment."""

    def played(self, number: int) -> None:
        time.sleep(0.05)
        with Path(os.environ["PLAYED"]).open("a", encoding="utf-8") as log:
            log.write(f"{number}\n")


def test_a_killed_judge_loses_and_doubles_no_episode(tmp_path: Path, monkeypatch) -> None:
    played = tmp_path / "played"
    monkeypatch.setenv("PLAYED", str(played))

    def kill() -> None:
        while not (played.exists() and len(played.read_text().splitlines()) >= 3):
            time.sleep(0.01)
        process = of_group("judge")
        assert process is not None
        process.kill()

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    result = train(tmp_path / "logs", "WatchedEnv", eval_episodes=30)
    killing.join()
    assert result.evaluation is not None
    assert (result.evaluation.episodes, result.evaluation.mean_return) == (30, 14.5)
    # The players go on while there is no judge. No reported episode is played again.
    assert sorted(map(int, played.read_text().split())) == list(range(30))


class SeedLog(NumberedEnv):
    def reset(self, *, seed=None, options=None):
        with Path(os.environ["SEEDS"]).open("a", encoding="utf-8") as log:
            log.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


def test_evaluations_on_the_way_and_at_the_end_play_different_episodes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SEEDS", str(tmp_path / "seeds"))
    train(tmp_path / "logs", "SeedLog", runtime="inline", eval_interval=1, eval_episodes=6)
    seeds = set(map(int, (tmp_path / "seeds").read_text().split()))
    on_the_way, at_the_end = ({seed_of(0, number) for number in range(6)} for seed_of in (validation_seed, final_seed))
    assert on_the_way < seeds
    assert at_the_end < seeds
    assert not on_the_way & at_the_end


class TalkingEnv(NumberedEnv):
    def __init__(self) -> None:
        print("loading the simulator")


def test_what_an_environment_prints_in_its_own_process_is_no_part_of_the_answer(tmp_path: Path) -> None:
    run = train(tmp_path, "TalkingEnv", eval_episodes=1).run_folder
    argv = [sys.executable, "-m", "penstock", "eval", str(run), "--episodes", "2", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["episodes"] == 2
    assert "loading the simulator" in done.stderr


def test_an_environment_that_cannot_be_closed_fails_no_run_whose_work_is_saved(tmp_path) -> None:
    result = train(tmp_path, "UnclosableEnv", eval_interval=1, eval_episodes=4, max_restarts=0)
    assert result.evaluation is not None
    assert (result.run_folder / "policy.onnx").exists()


def test_in_lock_step_a_seed_stops_early_at_the_same_update_also_when_it_is_resumed(tmp_path: Path) -> None:
    # A learning rate that is too large: returns rise and fall.
    settings = {"env": "CartPole-v1", "timesteps": 4096, "num_steps": 64, "lr": 0.05, "eval_interval": 2}
    ends = {"early_stop": 3, "eval_episodes": 4}
    whole = penstock.train({**SMALL, **settings, **ends, "log_dir": str(tmp_path / "whole")}, quiet=True)
    assert whole.steps < 4096
    until = whole.steps - 3 * 64 * 2
    first = penstock.train(
        {**SMALL, **settings, **ends, "timesteps": until, "log_dir": str(tmp_path / "parts")}, quiet=True
    )
    again = penstock.resume(first.run_folder, timesteps=4096, quiet=True)
    assert (again.steps, again.updates) == (whole.steps, whole.updates)
    policies = [(result.run_folder / "policy.onnx").read_bytes() for result in (whole, again)]
    assert policies[0] == policies[1]


def test_the_best_evaluated_update_has_a_checkpoint_however_rarely_the_run_saves(tmp_path: Path) -> None:
    # A learning rate that is too large: returns rise and fall, so the best update is seldom the last one.
    settings = {"env": "CartPole-v1", "timesteps": 2048, "num_steps": 64, "lr": 0.05, "save_interval": 1000}
    judged = {"eval_interval": 1, "early_stop": 100, "eval_episodes": 4}
    run = penstock.train({**SMALL, **settings, **judged, "log_dir": str(tmp_path)}, quiet=True).run_folder
    found = evaluations(run)
    assert len(found) == 16
    best = max(found, key=lambda update: (found[update], update))
    assert find_checkpoint(run, "best").name == f"update-{best:08d}"
    # All others that were evaluated are gone. The last one has its name from the run's end.
    assert {path.name for path in list_checkpoints(run)} == {f"update-{update:08d}" for update in (best, 16)}


class SlowClock(ClockEnv):
    """An evaluation takes longer than the run may stand still."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


@pytest.mark.nightly  # Ten seconds of waiting. Shorter: an evaluation whose episodes do not end.
def test_a_learner_that_waits_for_a_verdict_does_not_count_as_standing_still(tmp_path: Path) -> None:
    settings = {"num_steps": 8, "eval_interval": 1, "early_stop": 1, "eval_episodes": 8, "stall_timeout": 1.0}
    result = train(tmp_path, "SlowClock", timesteps=64, eval_seconds=1.0, **settings)
    assert "stopped early" in "".join(result.notes)


def test_a_resume_with_nothing_to_do_says_what_else_there_is(tmp_path: Path, monkeypatch) -> None:
    first = train(tmp_path, "NumberedEnv")

    def refused(*_: object, **__: object) -> None:
        raise EnvError("no simulator is here")

    monkeypatch.setattr("penstock.run.result.judge", refused)
    nothing, given_up = penstock.resume(first.run_folder, quiet=True).notes
    assert nothing.startswith("nothing to do: the run has its ")
    assert "no simulator is here" in given_up


def test_kept_episodes_are_those_that_were_played_and_another_run_learns_from_them(tmp_path) -> None:
    settings = {
        "algo": "dqn",
        "env": "CartPole-v1",
        "num_envs": 2,
        "num_workers": 2,
        "min_rows": 20,
        "eval_episodes": 0,
    }
    run = penstock.train({**settings, "timesteps": 200, "log_dir": str(tmp_path)}, quiet=True).run_folder
    found = penstock.evaluate(run, episodes=7, keep=tmp_path / "kept")
    assert found == penstock.evaluate(run, episodes=7)
    files = list_episodes(tmp_path / "kept")
    assert [path.name for path in files] == [f"episode-{number:08d}.npz" for number in range(1, 8)]
    kept = [read_episode(path, penstock.load_policy(run).spaces) for path in files]
    assert [float(one.reward.sum()) for one in kept] == list(found.returns)
    policy = penstock.load_policy(run)
    for one in kept:
        assert [policy(obs) for obs in one.obs["obs"][:-1]] == one.action.tolist()
    more = {"timesteps": 100, "demonstrations": str(tmp_path / "kept"), "log_dir": str(tmp_path / "more")}
    assert penstock.train({**settings, **more}, quiet=True).steps >= 100


def test_episodes_are_not_put_among_others(tmp_path, monkeypatch) -> None:
    run = train(tmp_path, "NumberedEnv", eval_episodes=0).run_folder
    penstock.evaluate(run, episodes=1, keep=tmp_path / "kept")
    with pytest.raises(penstock.UsageError, match=r"--keep .*kept holds episodes already; give a folder for new ones"):
        penstock.evaluate(run, episodes=1, keep=tmp_path / "kept")
    (tmp_path / "file").touch()
    # It is known before anything is played.
    monkeypatch.setattr("penstock.run.evaluating.judge", None)
    with pytest.raises(penstock.UsageError, match=r"--keep .*file cannot be written: File exists; give another folder"):
        penstock.evaluate(run, episodes=1, keep=tmp_path / "file")
