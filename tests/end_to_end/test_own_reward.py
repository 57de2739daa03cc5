"""Whole runs with the user's own wrappers, arguments and reward, in every process of the run and after a resume."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.errors import BadDataError, CheckpointError, ConfigError, EnvError
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import EVAL_RETURN, RETURN
from tests.end_to_end.test_resume_is_exact import BATCH, fingerprint, train

pytestmark = pytest.mark.usefixtures("shared_templates")

PENDULUM = {"env": "Pendulum-v1", "num_steps": 48, "epochs": 1}


class Halved(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return observation / np.float32(2)


class Fivefold(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 5 * reward


def fixed(obs, reward):
    """Pays half a step, whatever the environment pays."""
    return 0.5


class Whole:
    """The reward of a step depends on the episode so far; the reward at the end depends on the whole episode."""

    def __init__(self) -> None:
        self.sum, self.steps = 0.0, 0

    def step(self, next_obs, action, reward):
        self.steps += 1
        self.sum += float(next_obs[0]) * self.steps
        return reward + 0.01 * self.sum

    def end(self):
        return self.sum / self.steps


class Deadly(Whole):
    """Like `Whole`, but the first process that takes 30 steps of an episode is killed there."""

    def step(self, next_obs, action, reward):
        if self.steps == 29:
            try:
                Path(os.environ["KILLED"]).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(next_obs, action, reward)


class Ending:
    """Half a step, and 3 for the end."""

    def step(self):
        return 0.5

    def end(self):
        return 3


def last(result: penstock.Result) -> dict[str, float]:
    """The last line of training."""
    return dict([report.values for report in read_reports(result.run_folder) if "rows/collected" in report.values][-1])


@pytest.mark.parametrize(
    ("reward", "shaped"), [(f"{__name__}:fixed", 10.0), (f"{__name__}:Ending", 13.0), (Ending, 13.0)]
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"env": "tests.environments:make_clocks", "num_envs": 1, "num_workers": 1},
        {"algo": "dqn", "min_rows": 48, "mini_batch_size": 16, "capacity": 1000, "updates_per_step": 0.1},
    ],
    ids=["scalar", "vector", "table"],
)
def test_reported_returns_stay_the_environments(tmp_path, settings, reward, shaped) -> None:
    values = {"env": "tests.environments:ClockEnv", "reward": reward, **settings}
    if "algo" in settings:
        values |= {"num_envs": 4, "num_steps": 24, "num_workers": 2, "eval_episodes": 2}
        result = penstock.train(
            {**values, "timesteps": 4 * BATCH, "runtime": "inline", "log_dir": str(tmp_path)}, quiet=True
        )
    else:
        result = train(tmp_path, 4, **values)
    # ClockEnv pays 1 in each of 20 steps; the own rewards 0.5, and 3 in the last row.
    assert (last(result)["rollout/return_mean"], last(result)["rollout/shaped_return_mean"]) == (20.0, shaped)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == 20.0


def test_without_a_reward_there_is_one_return(tmp_path) -> None:
    assert "rollout/shaped_return_mean" not in last(train(tmp_path, 2, env="tests.environments:ClockEnv"))


def test_learners_are_given_the_own_reward() -> None:
    with penstock.ParallelEnvironmentCollector(
        "tests.environments:ClockEnv", num_workers=2, rollout_steps=10, reward=Ending
    ) as collector:
        reward = collector.collect(40)["reward"]
    assert reward[:, 0].tolist() == ([0.5] * 19 + [3.5]) * 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Episodes of 200 steps that end within a rollout, wrapped, with a reward that depends on all steps."""
    settings = {**PENDULUM, "wrap": [Halved], "env_args": {"g": 9.0}, "reward": Whole}
    return settings, fingerprint(train(tmp_path_factory.mktemp("whole"), 22, **settings))


# Ten seconds with four processes. Shorter: the collector above has two.
@pytest.mark.parametrize(("runtime", "workers"), [("inline", 1), pytest.param("local", 4, marks=pytest.mark.nightly)])
def test_workers_and_runtime_do_not_change_a_bit(tmp_path, whole, runtime, workers) -> None:
    settings, expected = whole
    assert fingerprint(train(tmp_path, 22, **settings, runtime=runtime, num_workers=workers)) == expected


def test_resumed_equals_uninterrupted(tmp_path, whole) -> None:
    settings, expected = whole
    first = train(tmp_path, 9, **settings)
    second = penstock.resume(first.run_folder, timesteps=22 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == expected


@pytest.mark.nightly  # Twelve seconds. Shorter: the resumed run above, and the kills of ``tests/chaos``.
def test_killed_equals_not_killed(tmp_path, whole, monkeypatch) -> None:
    settings, expected = whole
    killed = tmp_path / "killed"
    monkeypatch.setenv("KILLED", str(killed))
    result = train(tmp_path / "logs", 22, **{**settings, "reward": f"{__name__}:Deadly"}, runtime="local")
    assert killed.exists()
    assert "was ended by SIGKILL" in (result.run_folder / "metrics.jsonl").read_text()
    assert fingerprint(result) == expected


def test_a_number_that_is_none_names_the_reward(tmp_path) -> None:
    says = "^env.0: reward lambda of lane 0 of tests.environments:ClockEnv is nan at step 0 of the lane"
    with pytest.raises(BadDataError, match=says):
        train(tmp_path, 2, env="tests.environments:ClockEnv", reward=lambda: float("nan"), num_workers=1)


def test_what_shapes_the_environment_is_the_runs(tmp_path) -> None:
    settings = {"env": "tests.environments:ClockEnv", "wrap": [f"{__name__}:Fivefold"], "reward": f"{__name__}:fixed"}
    trained = train(tmp_path, 4, **settings, eval_interval=1)
    run = trained.run_folder
    found = {name: [r.values[name] for r in read_reports(run) if name in r.values] for name in (EVAL_RETURN, RETURN)}
    # Reported returns contain the rewards of wrappers, but not those of --reward.
    assert set(found[EVAL_RETURN]) == set(found[RETURN]) == {100.0}
    assert penstock.evaluate(run, episodes=2).mean_return == 100.0
    config = run / "config.toml"
    config.write_text(config.read_text().replace("test_own_reward:fixed", "test_own_reward:Ending"))
    with pytest.raises(CheckpointError, match=r"its reward is tests.end_to_end.test_own_reward:fixed, not tests"):
        penstock.resume(run, quiet=True)


def test_demonstrations_with_other_rewards_are_refused(tmp_path) -> None:
    table = {"algo": "dqn", "min_rows": 48, "mini_batch_size": 16, "capacity": 1000, "updates_per_step": 0.1}
    values = {"env": "tests.environments:ClockEnv", "num_envs": 2, "num_steps": 24, "timesteps": 96, "eval_episodes": 1}
    values |= {**table, "runtime": "inline", "log_dir": str(tmp_path)}
    shown = penstock.train(values, quiet=True).run_folder
    says = rf"its rewards are the environment's own, this run's are {__name__}:fixed \(--reward\)"
    with pytest.raises(ConfigError, match=says):
        penstock.train({**values, "demonstrations": str(shown), "reward": fixed}, quiet=True)


def test_objects_without_a_name_are_asked_for_again(tmp_path) -> None:
    def mine(env):
        return Halved(env)

    def paid(reward):
        return 2 * reward

    settings = {"env": "tests.environments:ClockEnv", "num_workers": 1}
    run = train(tmp_path, 2, **settings, wrap=mine, reward=paid).run_folder
    with pytest.raises(
        EnvError, match=r"the wrappers of run .*, mine, have no name .* pass them again: penstock.evaluate\(.*wrap="
    ):
        penstock.evaluate(run)
    assert penstock.evaluate(run, episodes=2, wrap=[mine]).mean_return == 20.0
    # What `resume` needs may be given to the others as well, and changes no return.
    assert penstock.evaluate(run, episodes=2, wrap=[mine], reward=paid).mean_return == 20.0
    assert penstock.load_policy(run, wrap=[mine], reward=paid).spaces == penstock.load_policy(run, wrap=[mine]).spaces
    with pytest.raises(EnvError, match=r"the reward of run .*, paid, .* pass it again: penstock.resume\(.*reward="):
        penstock.resume(run, wrap=[mine], timesteps=3 * BATCH, quiet=True)
    resumed = penstock.resume(run, wrap=[mine], reward=paid, timesteps=3 * BATCH, quiet=True)
    assert last(resumed)["rollout/shaped_return_mean"] == 40.0


@pytest.mark.nightly  # Twenty seconds. Shorter: the same settings in Python above.
def test_the_published_commands(tmp_path) -> None:
    """As a user types them, with wrappers of their own module in the working directory."""
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n"
        "class Plus(gymnasium.ObservationWrapper):\n"
        "    def observation(self, observation):\n"
        "        return observation + 0\n"
        "def shaped(reward, next_obs):\n"
        "    return reward - abs(float(next_obs[0]))\n"
    )

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "penstock", *argv]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    sizes = ["--num_envs=2", "--num_workers=2", "--num_steps=32", "--timesteps=256", "--eval_episodes=2"]
    shape = ["--wrap", "mine:Plus", "--wrap", "mine:Plus", "--env_args", '{"max_episode_steps": 5}']
    trained = run("train", "--env", "CartPole-v1", *shape, "--reward", "mine:shaped", *sizes)
    assert trained.returncode == 0, trained.stderr
    assert "5.0 steps each" in run("eval", "latest").stdout
    resumed = run("resume", "latest", "--timesteps", "320")
    assert resumed.returncode == 0, resumed.stderr
    assert "shaped return" in resumed.stdout
    refused = run("resume", "latest", "--wrap", "mine:Plus")
    assert refused.stderr.startswith("penstock: error: --wrap cannot become mine:Plus: a resumed run keeps its")
