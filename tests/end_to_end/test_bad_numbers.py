"""What an environment hands out that cannot be learned from: named, and what was learned before it is kept."""

import numpy as np
import psutil
import pytest

import penstock
from penstock.cli import main
from penstock.errors import BadDataError, NodeError
from penstock.experiments.checkpoints import list_checkpoints
from penstock.nodes.evaluator import EVALUATION_LANE
from penstock.seeding import episode_seed
from tests.environments import TargetEnv

SMALL = {"num_steps": 16, "epochs": 1, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 2}


class LateEnv(TargetEnv):
    """Well-behaved for its first 95 steps; then ``harm`` changes what a step gives."""

    total = 0

    def step(self, action):
        self.total += 1
        values = super().step(action)
        return self.harm(*values) if self.total == 95 else values


class LateNan(LateEnv):
    def harm(self, obs, *rest):
        return (np.full(1, np.nan, np.float32), *rest)


class LateReward(LateEnv):
    def harm(self, obs, reward, *rest):
        return (obs, float("inf"), *rest)


class LateShape(LateEnv):
    def harm(self, obs, *rest):
        return (np.zeros(2, np.float32), *rest)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        # Rows count from 0 and row t + 1 is what step t led to: step 94 is the 95th.
        (LateNan, r"env\.[01]: obs of lane \d of .*LateNan is nan at step 95 of the lane"),
        (LateReward, r"env\.[01]: reward of lane \d of .*LateReward is inf at step 94 of the lane"),
        (LateShape, r"env\.[01]: obs of lane \d of .*LateShape has shape \(2,\), .*, at step 94 of the lane"),
    ],
)
def test_bad_data_names_node_environment_field_and_step(tmp_path, env, says):
    settings = {**SMALL, "env": env, "runtime": "inline", "timesteps": 16 * 4 * 20, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=says):
        penstock.train(settings, quiet=True)


def test_a_failed_run_is_one_line_has_a_card_and_goes_on_from_its_last_commit(tmp_path, capsys):
    flags = [f"--{name}={value}" for name, value in SMALL.items()]
    name = f"{__name__}:LateNan"
    assert main(["train", "--env", name, "--timesteps=10000", "--log_dir", str(tmp_path), *flags]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("penstock: error: node env.")
    assert "is nan at step 95 of the lane" in first
    (folder,) = tmp_path.iterdir()
    # The bad number stands in the sixth rollout, so five were learned from.
    assert second == f"penstock: its last checkpoint, update 5, is good; to continue: penstock resume {folder}"
    card = (folder / "README.md").read_text()
    assert "failed, so not evaluated: " in card
    assert "320 of 10,000 steps, 5 updates" in card
    assert psutil.Process().children(recursive=True) == []
    with pytest.raises(NodeError, match="is nan at step"):
        penstock.resume(folder, quiet=True)


class NanInEvaluation(TargetEnv):
    """Shows NaN in the episodes that are seeded as an evaluation's."""

    def reset(self, *, seed=None, options=None):
        self.judged = seed in SEEDS
        return super().reset(seed=seed, options=options)

    def step(self, action):
        values = super().step(action)
        return (np.full(1, np.nan, np.float32), *values[1:]) if self.judged and self.steps == 3 else values


SEEDS = {episode_seed(0, EVALUATION_LANE + lane, 0) for lane in range(8)}


@pytest.mark.parametrize("during", [0, 1])
def test_an_evaluation_does_not_swallow_what_no_policy_can_see(tmp_path, during):
    settings = {**SMALL, "env": NanInEvaluation, "runtime": "inline", "timesteps": 16 * 4 * 3, "log_dir": str(tmp_path)}
    says = r"evaluation: obs of lane 0 of .*NanInEvaluation is nan at step 2 of its episode"
    with pytest.raises(BadDataError, match=says):
        penstock.train({**settings, "eval_interval": during}, quiet=True)
    (folder,) = tmp_path.iterdir()
    assert list_checkpoints(folder) or during
    with pytest.raises(BadDataError, match=says):
        penstock.evaluate(folder, episodes=2) if list_checkpoints(folder) else penstock.train(settings, quiet=True)
