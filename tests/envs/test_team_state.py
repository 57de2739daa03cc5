"""The state of a whole environment as a field of each agent's observation, for a critic that sees it alone."""

import numpy as np
import pytest
from gymnasium.spaces import Box

import penstock
from penstock.envs.given import Given
from penstock.envs.sources import open_source, probe
from penstock.errors import EnvError
from penstock.processes.starts import Processes
from penstock.saved_runs.run_folder import RunFolder
from penstock.trained import open_trained, whole_policy_of
from penstock.types import EnvRecipe
from tests.team_environments import Signals, Worth

WORTH = "pettingzoo:tests.team_environments:Worth"


def test_each_agent_sees_the_state_that_its_environment_has_then():
    source = open_source(EnvRecipe(WORTH, {"with_state": True}, ()), False, 4)
    assert [(name, space.dtype, space.shape) for name, space in source.spaces.obs] == [
        ("obs.observation", "float32", (1,)),
        ("obs.state", "float32", (1,)),
    ]
    obs = source.reset([0, 1, 2, 3])
    for _ in range(6):
        state = obs["obs.state"][:, 0].copy()
        assert set(np.abs(state)) == {1.0}
        assert (state[0], state[2]) == (state[1], state[3])
        result = source.step(np.zeros(4, np.int64), lambda lane: 0)
        played = ~result.reset
        np.testing.assert_array_equal(np.round(result.reward / 5.5)[played], state[played])
        obs = result.obs


def test_a_dict_keeps_its_fields_and_its_mask():
    env = EnvRecipe("tests.envs.test_team_state:masked", {}, ())
    with pytest.raises(EnvError, match=r"write pettingzoo:tests\.envs\.test_team_state:masked"):
        probe(env)
    profile = probe(EnvRecipe("pettingzoo:tests.envs.test_team_state:masked", {"with_state": True}, ()), masks=True)
    assert [name for name, _ in profile.spaces.obs] == ["obs.action_mask", "obs.observation", "obs.state"]
    assert profile.spaces.mask == "obs.action_mask"


def masked():
    from tests.team_environments import MaskedPair

    class WithState(MaskedPair):
        def state(self):
            return np.zeros((2, 3))

    return WithState()


def test_without_a_state_it_says_what_to_leave_out():
    with pytest.raises(EnvError, match=r"has no state\(\): .*; leave with_state out"):
        probe(EnvRecipe("pettingzoo:tests.team_environments:Signals", {"with_state": True}, ()))


def spaced():
    class WithSpace(Signals):
        state_space = Box(0.0, 1.0, (3,), np.float32)

    return WithSpace()


def test_a_space_of_the_state_is_no_state():
    with pytest.raises(EnvError, match=r"has no state\(\): .*; leave with_state out"):
        probe(EnvRecipe("pettingzoo:tests.envs.test_team_state:spaced", {"with_state": True}, ()))


def an_array():
    class WithArray(Signals):
        state = np.zeros(3)

    return WithArray()


def broken():
    class Broken(Signals):
        def state(self):
            return self.not_there

    return Broken()


def test_a_state_that_cannot_be_called_is_none_and_a_mistake_within_it_is_told_as_it_is():
    with pytest.raises(EnvError, match=r"has no state\(\); leave with_state out"):
        probe(EnvRecipe("pettingzoo:tests.envs.test_team_state:an_array", {"with_state": True}, ()))
    with pytest.raises(EnvError, match=r"AttributeError: .*not_there"):
        probe(EnvRecipe("pettingzoo:tests.envs.test_team_state:broken", {"with_state": True}, ()))


def as_trained(run):
    """The policy of a run with its critic."""
    with Processes() as processes:
        trained = open_trained(processes, RunFolder.open(run), None, Given(), "load_policy")
    return whole_policy_of(trained.prepared, trained.published)


def test_a_central_critic_learns_what_only_the_state_tells(tmp_path, shared_templates):
    """What a step is worth is 5 times the state, and 1 for the right sign. No agent sees the state."""
    settings = {"env": WORTH, "env_args": {"with_state": True}, "critic_obs": ("state",), "gamma": 0.0, "lr": 0.01}
    sizes = {"num_envs": 8, "num_steps": 64, "mini_batch_size": 128, "timesteps": 6000, "hidden_sizes": (16,)}
    settings |= {**sizes, "num_workers": 1, "eval_episodes": 8, "log_dir": str(tmp_path)}
    result = penstock.train(settings, quiet=True)
    seen = np.array([[0.0], [1.0], [0.0], [1.0]], np.float32)
    state = np.array([[-1.0], [-1.0], [1.0], [1.0]], np.float32)
    answers = as_trained(result.run_folder).answers({"obs.observation": seen, "obs.state": state})
    np.testing.assert_array_equal(answers["action"], [0, 1, 0, 1])
    np.testing.assert_allclose(answers["value"], [-4, -4, 6, 6], atol=1.0)
    # A client has no state to send.
    np.testing.assert_array_equal(result.policy({"observation": seen}), [0, 1, 0, 1])
    np.testing.assert_array_equal(result.policy({"observation": seen, "state": state}), [0, 1, 0, 1])
    assert result.evaluation.mean_length == Worth.LENGTH
    assert penstock.evaluate(result.run_folder, episodes=8, quiet=True).mean_return == result.evaluation.mean_return
