"""The planner: its weights by hand, what it does with ends and bounds, and Pendulum in its own equations."""

import gymnasium
import numpy as np
import pytest

import penstock
from examples.plan_pendulum import pendulum, played
from penstock.errors import BadDataError, ConfigError
from penstock.mppi import path_weights

SPACE = gymnasium.spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 6.0], np.float32))


def near(goal):
    """A model whose reward is how near the action is to a goal; nothing else happens."""

    def step(obs, action):
        return obs, -np.abs(action - goal).sum(axis=1), np.zeros(len(obs), np.bool_)

    return step


def test_a_plan_counts_less_by_e_for_each_temperature_that_it_is_worse() -> None:
    np.testing.assert_allclose(path_weights(np.array([0.0, -2.0, -4.0]), 2.0), [0.66524096, 0.24472847, 0.09003057])
    assert path_weights(np.array([-1e9, 0.0, 0.0]), 1e-3).tolist() == [0.0, 0.5, 0.5]


def test_the_plan_becomes_the_mean_of_the_samples_by_their_weights() -> None:
    """One step ahead, two samples, one action: worked out from the samples that the model was asked about."""
    asked = []

    def model(obs, action):
        asked.append(action[:, 0].copy())
        return obs, action[:, 0].astype(np.float64), np.zeros(2, np.bool_)

    planner = penstock.MPPI(model, gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32), horizon=1, samples=2)
    action = planner(np.zeros(3, np.float32))
    first, second = asked[0]
    share = 1.0 / (1.0 + np.exp(second - first))
    np.testing.assert_allclose(action, [share * first + (1.0 - share) * second], rtol=1e-6)


def test_actions_come_to_the_goal_and_stay_in_their_bounds() -> None:
    goal = np.array([0.5, 9.0])  # the second one lies outside
    planner = penstock.MPPI(near(goal), SPACE, horizon=3, samples=512, temperature=0.05)
    actions = [planner(np.zeros(1, np.float32)) for _ in range(6)]
    np.testing.assert_allclose(actions[-1], [0.5, 6.0], atol=0.2)
    assert all(SPACE.contains(action) for action in actions)


def test_the_plan_moves_on_by_a_step_at_each_call_and_is_forgotten_at_a_begin() -> None:
    planner = penstock.MPPI(near(np.array([0.5, 5.0])), SPACE, horizon=4, samples=256, temperature=0.05)
    planner(np.zeros(1, np.float32))
    assert (planner.plan[-1] == 0.0).all()
    assert (np.abs(planner.plan[:3]).sum(axis=1) > 0.0).all()
    planner.begin()
    assert (planner.plan == 0.0).all()


def test_nothing_behind_the_end_of_an_episode_counts() -> None:
    """Reward comes one step after the end of those that act up, so nobody gets it; value neither."""

    def model(obs, action):
        ends = action[:, 0] > 0.0
        return obs + ends[:, None], np.where(obs[:, 0] > 0.0, 100.0, np.where(ends, 0.0, 1.0)), ends

    def value(obs):
        return np.where(obs[:, 0] > 0.0, 1e6, 0.0)

    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    planner = penstock.MPPI(model, box, horizon=5, samples=256, temperature=0.1, value=value)
    assert planner(np.zeros(1, np.float32))[0] < 0.0


def test_what_comes_behind_a_plan_counts_by_its_value() -> None:
    def model(obs, action):
        return obs + action, np.zeros(len(obs)), np.zeros(len(obs), np.bool_)

    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    planner = penstock.MPPI(model, box, horizon=2, samples=256, temperature=0.1, value=lambda obs: obs[:, 0])
    assert planner(np.zeros(1, np.float32))[0] > 0.3


def test_the_same_seed_plans_the_same() -> None:
    def actions(seed):
        planner = penstock.MPPI(near(np.array([0.1, 4.0])), SPACE, seed=seed)
        return np.stack([planner(np.zeros(1, np.float32)) for _ in range(3)])

    assert (actions(1) == actions(1)).all()
    assert (actions(1) != actions(2)).any()


@pytest.mark.parametrize(
    ("space", "more", "message"),
    [
        (gymnasium.spaces.Discrete(2), {}, "MPPI needs a Box of actions whose bounds are finite, not Discrete"),
        (gymnasium.spaces.Box(-np.inf, 1.0, (1,), np.float32), {}, "MPPI needs a Box of actions whose bounds"),
        (SPACE, {"temperature": 0.0}, "temperature is 0.0; give a number above 0"),
        (SPACE, {"deviation": float("nan")}, "deviation is nan; give a number above 0"),
        (SPACE, {"gamma": 1.5}, "gamma is 1.5; give a number from 0 to 1"),
        (SPACE, {"samples": 0}, "samples"),
        (SPACE, {"horizon": 2.5}, "horizon"),
        (SPACE, {"seed": -1}, "seed is -1; give a whole number of at least 0"),
        (gymnasium.spaces.Box(-2, 2, (1,), np.int64), {}, "MPPI needs a Box of floats, not of int64"),
    ],
)
def test_what_cannot_be_planned_is_refused(space, more, message) -> None:
    with pytest.raises(ConfigError, match=message):
        penstock.MPPI(near(np.zeros(2)), space, **more)


def test_a_model_that_gives_nan_is_named() -> None:
    def broken(obs, action):
        return obs, np.full(len(obs), np.nan), np.zeros(len(obs), np.bool_)

    with pytest.raises(BadDataError, match="the model of MPPI gave a reward that is NaN or infinite, 0 steps ahead"):
        penstock.MPPI(broken, SPACE)(np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda obs: (obs, np.zeros(len(obs))), "returns three arrays: the next states, rewards and terminated"),
        (lambda obs: (obs, np.zeros((len(obs), 1)), np.zeros(len(obs))), r"rewards .* are \[256, 1\], not \[256\]"),
        (lambda obs: (obs, 0.0, np.zeros(len(obs))), r"rewards of the model of MPPI are \[\], not \[256\]"),
        (lambda obs: (obs, np.zeros(len(obs)), False), r"terminated of the model of MPPI are \[\], not \[256\]"),
    ],
)
def test_a_model_that_gives_other_arrays_is_told_so(returned, says: str) -> None:
    with pytest.raises(BadDataError, match=says):
        penstock.MPPI(lambda obs, action: returned(obs), SPACE)(np.zeros(1, np.float32))


def test_a_model_is_a_function() -> None:
    with pytest.raises(ConfigError, match="the model of MPPI is a function of states and actions, not None"):
        penstock.MPPI(None, SPACE)


def test_a_value_that_is_nan_is_refused_unless_the_episode_has_ended() -> None:
    def model(obs, action):
        return obs, np.zeros(len(obs)), np.full(len(obs), ends)

    planner = penstock.MPPI(model, SPACE, horizon=2, value=lambda obs: np.full(len(obs), np.nan))
    ends = True
    assert np.isfinite(planner(np.zeros(1, np.float32))).all()
    ends = False
    with pytest.raises(BadDataError, match="value of MPPI is NaN or infinite for some plan"):
        planner(np.zeros(1, np.float32))


def test_the_example_models_pendulum_as_gymnasium_steps_it() -> None:
    env = gymnasium.make("Pendulum-v1").unwrapped
    obs, _ = env.reset(seed=3)
    for torque in (2.0, -2.0, 0.5, 1.5):
        wanted, reward, _, _, _ = env.step(np.array([torque], np.float32))
        found, predicted, terminated = pendulum(obs[None], np.array([[torque]], np.float32))
        np.testing.assert_allclose(found[0], wanted, atol=1e-4)
        assert predicted[0] == pytest.approx(reward, abs=1e-3)
        assert not terminated[0]
        obs = wanted


def test_pendulum_is_swung_up_without_training() -> None:
    # A trained policy returns about -150 on average. Standing still from below returns -1,600 and less.
    assert np.mean([played(seed)[2].sum() for seed in range(3)]) > -250.0
