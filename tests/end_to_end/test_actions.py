"""Every kind of action and action masks, through the public interface: learned, recorded, resumed and served."""

import tomllib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import penstock
from benchmarks.learning.run import HERE
from benchmarks.learning.tasks import AimEnv, MaskedAimEnv, RanksEnv
from penstock.config.flags import config_from_arguments
from penstock.errors import BadDataError, SpaceError
from penstock.metrics.jsonl import read_reports
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.end_to_end.test_resume_is_exact import fingerprint as state_of
from tests.end_to_end.test_same_answer import fingerprint
from tests.end_to_end.test_same_answer import train as train_briefly
from tests.envs.test_masks import MaskedEnv
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")

TASKS = "benchmarks.learning.tasks"
COMPOSITE = "a Tuple or Dict of actions"
EVERY = "ppo, a2c, a3c, impala or appo"
MASKED = "ppo, a2c, a3c, impala, appo, apex, r2d2 or bc"
"""The algorithms for every action space and for masks."""
LEARNING = {
    "runtime": "inline",
    "threads": 1,
    "num_steps": 64,
    "mini_batch_size": 128,
    "epochs": 4,
    "lr": 3e-3,
    "lr_schedule": "linear",
    "gamma": 0.0,
    "entropy_coef": 0.0,
    "log_std_init": -1.0,
}


def train(log_dir: Path, task: str, **settings: object) -> Result:
    return penstock.train({"env": f"{TASKS}:{task}", "log_dir": str(log_dir), **LEARNING, **settings}, quiet=True)


# Five seconds and more. Shorter: ``MaskedAimEnv`` below has a mask, and a choice with its numbers.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("task", "timesteps"), [("RanksEnv", 25_000), ("AimEnv", 20_000), ("BitsEnv", 12_000), ("DigitsEnv", 12_000)]
)
def test_the_optimum_is_learned(tmp_path, task: str, timesteps: int) -> None:
    """The best return is 10. An action that a mask excludes is an error of these environments."""
    result = train(tmp_path, task, timesteps=timesteps, eval_episodes=50)
    assert result.evaluation is not None
    assert result.evaluation.mean_return >= 9.8


@pytest.mark.nightly  # Shorter: ``tests/algorithms/test_learning.py``, and the masks below.
def test_a2c_learns_with_a_mask_in_the_observation(tmp_path) -> None:
    a2c = {"algo": "a2c", "num_steps": 16, "timesteps": 20_000, "log_dir": str(tmp_path), "runtime": "inline"}
    rest = {"lr": 3e-3, "lr_schedule": "linear", "gamma": 0.0, "entropy_coef": 0.0, "threads": 1}
    result = penstock.train({"env": f"{TASKS}:RanksInObservationEnv", **a2c, **rest}, quiet=True)
    assert result.evaluation is not None
    # Without looking at the sign a return of 5 is the most.
    assert result.evaluation.mean_return > 9.0


DQN = {"algo": "dqn", "gamma": 0.0, "lr": 3e-3, "hidden_sizes": (64,), "runtime": "inline", "threads": 1}


@pytest.mark.nightly  # Twelve seconds. Shorter: every backend chooses by such values below.
def test_action_values_learn_among_the_possible_actions(tmp_path) -> None:
    """An action that the mask excludes would be an error of the environment."""
    env = {"env": f"{TASKS}:RanksInObservationEnv", "log_dir": str(tmp_path), "eval_episodes": 50}
    short = {"timesteps": 6_000, "updates_per_step": 0.25, "epsilon_fraction": 0.5}
    result = penstock.train({**env, **DQN, **short}, quiet=True)
    assert result.evaluation is not None
    # Without looking at the sign a return of 5 is the most.
    assert result.evaluation.mean_return > 9.0


# Shorter: both choose by the same head, and ``tests/inference/test_backends.py`` compares what backends answer.
@pytest.mark.parametrize("inference", ["native", "onnx", pytest.param("torch", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("algo", ["dqn", pytest.param("apex", marks=pytest.mark.nightly)])
def test_every_backend_chooses_possible_actions_by_their_values(tmp_path, algo, inference) -> None:
    short = {"timesteps": 1024, "min_rows": 256, "inference": inference, "log_dir": str(tmp_path)}
    run = {**DQN, **short, "algo": algo, "num_workers": 2, "policy_placement": "node", "eval_episodes": 5}
    assert penstock.train({"env": f"{TASKS}:RanksEnv", **run}, quiet=True).steps == 1024


def test_a_policy_node_answers_masked_composite_questions(tmp_path) -> None:
    env = {"env": f"{TASKS}:MaskedAimEnv", "num_workers": 2, "backend": "eager", "runtime": "inline"}
    answers = [train_briefly(tmp_path / place, policy_placement=place, **env) for place in ("env", "node")]
    assert fingerprint(answers[0]) == fingerprint(answers[1])


def test_torch_acts_with_masks_too(tmp_path) -> None:
    """An action that the mask excludes would be an error of the environment."""
    env = {"env": f"{TASKS}:MaskedAimEnv", "num_workers": 1, "backend": "eager", "runtime": "inline"}
    assert train_briefly(tmp_path, inference="torch", **env).steps == 512


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_policy_with_memory_is_masked_too(tmp_path, model: str) -> None:
    env = {"env": f"{TASKS}:MaskedAimEnv", "num_workers": 1, "runtime": "inline", "hidden_sizes": (8,)}
    assert train_briefly(tmp_path, model=model, memory_size=8, **env).steps == 512


def test_a_resumed_run_restores_masks_and_composite_actions(tmp_path) -> None:
    env = {"env": f"{TASKS}:MaskedAimEnv", "backend": "eager", "runtime": "inline", "num_workers": 1}
    # 264 steps of 8 lanes are 33 a lane: each lane is in the middle of an episode.
    whole = train_briefly(tmp_path / "whole", num_steps=11, timesteps=528, **env)
    half = train_briefly(tmp_path / "half", num_steps=11, timesteps=264, **env)
    resumed = penstock.resume(half.run_folder, timesteps=528, quiet=True)
    assert resumed.not_restored == 0
    assert state_of(resumed) == state_of(whole)


def test_a_collector_gives_each_row_with_its_mask() -> None:
    settings = {"num_workers": 1, "num_envs": 3, "rollout_steps": 7, "hidden_sizes": (8,)}
    with penstock.ParallelEnvironmentCollector(f"{TASKS}:RanksEnv", **settings) as collector:
        rows = collector.collect(14)
    assert rows["action_mask"].shape == (14, 3, RanksEnv.CHOICES)
    assert (rows["action_mask"].sum(axis=2) == RanksEnv.POSSIBLE).all()
    assert np.take_along_axis(rows["action_mask"], rows["action"][..., None], axis=2).all()
    # The first policy is nearly uniform over the possible choices.
    np.testing.assert_allclose(rows["log_prob"], -np.log(RanksEnv.POSSIBLE), atol=0.05)


def test_a_policy_of_masked_composite_actions_is_served(tmp_path) -> None:
    env = {"env": f"{TASKS}:MaskedAimEnv", "backend": "eager", "runtime": "inline", "num_workers": 1}
    result = train_briefly(tmp_path, **env)
    policy = penstock.load_policy(result.run_folder)
    world = MaskedAimEnv()
    obs, info = world.reset(seed=1)
    session = policy.session()
    tool, place = policy(obs, action_mask=info["action_mask"])
    tools, places = session.act(obs, first=True, action_mask=info["action_mask"])
    assert (tools.shape, places.shape) == ((1,), (1, 2))
    assert (tools[0], places[0].tolist()) == (tool, place.tolist())
    assert world.action_space.contains((tool, place))
    batch = policy(np.stack([obs, obs]), action_mask=np.array([[1, 0, 0], [0, 0, 1]]))
    assert batch[0].tolist() == [0, 2]
    for given, text in (
        (None, "pass action_mask, which the environment has in its info"),
        ([1, 1], "action_mask has 2 elements, but the actions have 3 choices"),
        ([0, 0, 0], "action_mask forbids every choice in row 0"),
    ):
        with pytest.raises(BadDataError, match=text):
            policy(obs, action_mask=None if given is None else np.array(given))
    exported = onnxruntime.InferenceSession(result.run_folder / "policy.onnx")
    found = exported.run(["action.0", "action.1"], {"obs": obs[None], "action_mask": np.array([[0, 1, 0]], np.uint8)})
    assert found[0].tolist() == [1]
    np.testing.assert_allclose(found[1][0], place, rtol=1e-4, atol=1e-4)


def test_a_dict_of_actions_is_served_as_a_dict(tmp_path) -> None:
    result = train_briefly(tmp_path, env=f"{TASKS}:AimEnv", backend="eager", runtime="inline")
    action = result.policy(np.zeros(5, np.float32))
    assert AimEnv.action_space.contains(action)


def make_masked(num_envs: int) -> SyncVectorEnv:
    """Lanes whose last observation forbids everything. A step with it is their reset, and its action is ignored."""
    return SyncVectorEnv([MaskedEnv] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


LAST = f"{__name__}:make_masked"


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (LAST, {"epochs": 2}),
        ("tests.envs.test_masks:MaskedDictEnv", {"epochs": 2}),
        # Both learn from whole lanes, so they also read the rows of resets, with weight 0.
        (LAST, {"algo": "impala"}),
        (LAST, {"epochs": 2, "model": "lstm", "memory_size": 8}),
    ],
)
def test_a_last_observation_may_forbid_everything(tmp_path, env: str, settings: dict[str, object]) -> None:
    short = {"num_steps": 32, "mini_batch_size": 32, "timesteps": 512, "eval_episodes": 4, "log_dir": str(tmp_path)}
    run = {"env": env, "runtime": "inline", "num_workers": 2, "backend": "eager", **short, **settings}
    result = penstock.train(run, quiet=True)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps >= 512
    assert np.isfinite(arrays["actor"]).all()
    assert np.isfinite(arrays["critic"]).all()
    reports = [report.values for report in read_reports(result.run_folder)]
    losses = [value for values in reports for name, value in values.items() if name.startswith("loss/")]
    assert losses
    assert np.isfinite(losses).all()


class Stuck(RanksEnv):
    """Forbids everything in its third step."""

    def _mask(self):
        return super()._mask() * (self.steps != 3)


def test_a_lane_that_can_do_nothing_ends_the_run_by_its_name(tmp_path) -> None:
    with pytest.raises(BadDataError, match=r"action_mask of lane [04] of .*Stuck forbids every choice: at least one"):
        train_briefly(tmp_path, env=f"{__name__}:Stuck", runtime="inline")


@pytest.mark.parametrize(
    ("task", "sees"),
    [("RanksEnv", "does not see it"), ("RanksInObservationEnv", "sees it as a part of the observation")],
)
def test_an_algorithm_without_masks_says_so(monkeypatch, task: str, sees: str) -> None:
    monkeypatch.setattr("penstock.algorithms.dqn.spec.MASKS", False)
    found = prepared(env=f"{TASKS}:{task}", algo="dqn")
    told = f"{TASKS}:{task} gives an action mask, but dqn uses none and {sees}; to have it used: {MASKED}"
    assert found.remarks == (told,)
    assert found.profile.spaces.mask is None
    assert prepared(env=f"{TASKS}:{task}").remarks == ()


@pytest.mark.parametrize(
    ("algo", "task", "text"),
    [
        (
            "dqn",
            "BitsEnv",
            f"dqn needs Discrete actions; the environment has MultiDiscrete or MultiBinary actions: use {EVERY}",
        ),
        ("dqn", "AimEnv", f"dqn needs Discrete actions; the environment has a Tuple or Dict of actions: use {EVERY}"),
        *(
            (
                algo,
                "AimEnv",
                f"{algo} needs a Box of real-numbered actions; the environment has {COMPOSITE}: use {EVERY}",
            )
            for algo in ("sac", "td3", "ddpg", "dsac")
        ),
    ],
)
def test_an_algorithm_that_does_not_serve_an_action_names_those_that_do(algo: str, task: str, text: str) -> None:
    with pytest.raises(SpaceError, match=rf"^{text}, or give another --env than \S*{task}$"):
        prepared(env=f"{TASKS}:{task}", algo=algo)


def test_the_tasks_have_rows_in_the_table_of_learning_results() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    envs = {config_from_arguments(row["arguments"]).run.env for row in table.values()}
    assert {f"{TASKS}:{task}" for task in ("RanksEnv", "DigitsEnv", "BitsEnv", "AimEnv", "MaskedAimEnv")} <= envs
