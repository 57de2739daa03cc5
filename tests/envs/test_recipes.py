"""Environments with arguments and wrappers: the order of wrappers, every place that makes them, and errors."""

import gymnasium
import numpy as np
import pytest

from penstock.envs.names import display_name, reference
from penstock.envs.sources import open_source
from penstock.errors import EnvError
from penstock.types import EnvRecipe, Wrapper
from tests.environments import ClockEnv, make_clocks


class Plus(gymnasium.ObservationWrapper):
    def __init__(self, env, more=1.0):
        super().__init__(env)
        self.more = more

    def observation(self, observation):
        return observation + np.float32(self.more)


class Twice(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return 2 * observation


closed = []


class Closing(ClockEnv):
    def close(self):
        closed.append(self)


def needy(level):
    """A factory that cannot do without an argument, and takes numbers only."""
    return sized(int(level))


def sized(size, *, shade=0):
    """A factory with arguments."""
    env = ClockEnv()
    env.observation_space = gymnasium.spaces.Box(0, shade + 1, (size,), np.float32)
    return env


def nothing(env):
    return None


def recipe(*wrap, env="tests.environments:ClockEnv", **arguments) -> EnvRecipe:
    return EnvRecipe(env, arguments, tuple(one if isinstance(one, Wrapper) else Wrapper(one, {}) for one in wrap))


@pytest.mark.parametrize(("wrap", "first"), [((Plus, Twice), 2.0), ((Twice, Plus), 1.0)])
def test_wrappers_stand_in_order_the_first_one_innermost(wrap, first):
    for given in (recipe(*wrap), reference(recipe(*wrap))):
        source = open_source(given, vector=False, num_lanes=2)
        # The clock begins at 0.
        assert source.reset([0, 0])["obs"].tolist() == [[first], [first]]


def test_a_wrapper_is_given_its_arguments():
    source = open_source(recipe(Wrapper(Plus, {"more": 7.0})), vector=False, num_lanes=1)
    assert source.reset([0])["obs"].tolist() == [[7.0]]


def test_arguments_go_to_a_factory_and_to_gymnasium():
    made = open_source(recipe(env=f"{__name__}:sized", size=5, shade=2), vector=False, num_lanes=1)
    assert (made.spaces.obs[0][1].shape, made.spaces.obs[0][1].high) == ((5,), (3.0,))
    source = open_source(recipe(env="CartPole-v1", max_episode_steps=1), vector=False, num_lanes=1)
    source.reset([0])
    assert source.step(np.array([0]), lambda _: 0).truncated.tolist() == [True]
    many = open_source(recipe(env="CartPole-v1", sutton_barto_reward=True), vector=True, num_lanes=2)
    many.reset([0, 1])
    assert many.step(np.array([0, 0]), lambda _: 0).reward.tolist() == [0.0, 0.0]


def test_a_recipe_travels_by_names_and_by_value():
    assert reference(recipe(Plus, env=ClockEnv)) == recipe(f"{__name__}:Plus")

    def local(env):
        return Plus(env, 3.0)

    sent = reference(recipe(local, env=lambda: Closing()))  # noqa: PLW0108  (a thing without a name)
    assert isinstance(sent, EnvRecipe)
    assert (type(sent.env), type(sent.wrap[0].make)) == (bytes, bytes)
    assert display_name(sent) == "lambda"
    assert open_source(sent, vector=False, num_lanes=1).reset([0])["obs"].tolist() == [[3.0]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (recipe(nothing), "wrapper nothing returned None, which has no observation_space"),
        (
            recipe("gymnasium.wrappers:TimeLimit"),
            "TimeLimit cannot wrap tests.environments:ClockEnv: TypeErr.* 'max_episode_steps'; a file for --config",
        ),
        (
            EnvRecipe(ClockEnv, {}, (Wrapper("gymnasium.wrappers:TimeLimit", {"max": 1}),)),
            r"unexpected keyword argument 'max'$",
        ),
        (recipe(f"{__name__}:Pluss"), "has no Pluss; did you mean Plus"),
        (recipe("Plus"), "wrapper Plus is no name in a module: write module:name"),
        (recipe("gymnasium.wrappers"), "write gymnasium.wrappers:NAME$"),
        (recipe("gymnasium:wrappers"), "is a module; name what is in it: gymnasium.wrappers:NAME$"),
        (recipe(env="gymnasium.wrappers:ClipReward"), "so it is a wrapper; give it by --wrap"),
        (recipe("os:sep"), "wrapper os:sep is /, which cannot be called"),
        (recipe(Plus, env=make_clocks), "--wrap cannot wrap make_clocks: it steps many lanes in one call"),
        (
            recipe(env=make_clocks, num_envs=3),
            "--env_args cannot give make_clocks num_envs, which is a setting of the run",
        ),
        (
            recipe(env="CartPole-v1", colour="red"),
            "^environment CartPole-v1 takes no colour, which --env_args gives it: ",
        ),
        (recipe(env=f"{__name__}:sized", shape=1), ":sized takes no shape, which --env_args gives it: TypeError: "),
        (recipe(env="envpool:CartPole-v1", colour="red"), "CartPole-v1 takes no colour, which --env_args gives it: "),
        (recipe(env=f"{__name__}:needy"), "'level'; give it one by --env_args '{\"level\": \"...\"}'$"),
        (recipe(env=f"{__name__}:needy", level="x"), "made with --env_args '{\"level\": \"x\"}': ValueError: .*'x'$"),
    ],
)
def test_what_cannot_be_made_is_one_line(given, says):
    with pytest.raises(EnvError, match=says) as refusal:
        open_source(given, vector=False, num_lanes=1)
    assert "\n" not in str(refusal.value)


def test_an_environment_that_no_wrapper_takes_is_closed():
    closed.clear()
    with pytest.raises(EnvError):
        open_source(recipe(nothing, env=Closing), vector=False, num_lanes=1)
    assert len(closed) == 1


def test_a_wrapped_environment_is_restored_by_its_seed_and_actions():
    source = open_source(recipe(Plus, env="CartPole-v1"), vector=False, num_lanes=1)
    assert source.restorable
    source.reset([5])
    actions = np.array([0, 1, 1])
    expected = [source.step(actions[i : i + 1], lambda _: 0).obs["obs"].copy() for i in range(3)]
    source.reset([5])
    replayed = [one.obs["obs"].copy() for one in source.replay({0: actions})]
    np.testing.assert_array_equal(replayed, expected)
