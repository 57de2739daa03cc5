"""Observations that are tuples of several fields, of which one is left out: trained, resumed, judged, exported."""

import gymnasium
import numpy as np
import onnxruntime
import pytest

import penstock
from penstock.errors import ConfigError, SpaceError
from tests.environments import TupleEnv

pytestmark = pytest.mark.usefixtures("shared_templates")

SETTINGS = {
    "env": "tests.environments:TupleEnv",
    "num_envs": 2,
    "num_workers": 1,
    "num_steps": 16,
    "timesteps": 64,
    "eval_episodes": 2,
    "hidden_sizes": (8,),
    "seed": 3,
}


@pytest.mark.parametrize("policy_placement", ["env", "node"])
def test_a_tuple_observation_from_training_to_its_policy(tmp_path, policy_placement) -> None:
    settings = {**SETTINGS, "ignore_obs": ["1.2"], "policy_placement": policy_placement}
    done = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    assert penstock.resume(done.run_folder, timesteps=128, quiet=True).steps == 128
    assert penstock.evaluate(done.run_folder, episodes=2).episodes == 2
    policy = penstock.load_policy(done.run_folder)
    env = TupleEnv()
    obs, _ = env.reset(seed=1)
    assert policy(obs) in (0, 1)
    session = onnxruntime.InferenceSession(done.run_folder / "policy.onnx")
    named = {"obs.0": np.array([obs[0]]), "obs.1.0": obs[1][0][None], "obs.1.1": obs[1][1][None]}
    assert {part.name for part in session.get_inputs()} == named.keys()
    assert session.run(["action"], named)[0] == policy(obs)
    batch = gymnasium.vector.SyncVectorEnv([TupleEnv] * 3).reset(seed=1)[0]
    assert policy(batch).shape == (3,)
    with pytest.raises(ConfigError, match=r"ignore_obs cannot become none: a resumed run keeps its own value, 1\.2,"):
        penstock.resume(done.run_folder, settings={"ignore_obs": []})


def test_a_field_that_cannot_be_used_is_named_before_anything_starts(tmp_path) -> None:
    with pytest.raises(SpaceError, match=r"observation field 1\.2\.said, .*; to leave it out: --ignore_obs 1\.2\.said"):
        penstock.train({**SETTINGS, "log_dir": str(tmp_path)}, quiet=True)
    assert not list(tmp_path.iterdir())
