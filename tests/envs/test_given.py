"""Environments, wrappers and rewards that a caller passes as objects."""

import gymnasium
import pytest

import penstock
from penstock.envs.given import named
from penstock.errors import ConfigError


def test_two_environments_are_refused() -> None:
    for one in ("CartPole-v1", lambda: gymnasium.make("CartPole-v1")):
        with pytest.raises(ConfigError, match="an environment in the settings, and another as env; leave out one"):
            named({"env": one}, lambda: gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("made", [gymnasium.make, gymnasium.make_vec])
def test_an_environment_in_place_of_what_makes_one_is_refused(made) -> None:
    with pytest.raises(ConfigError, match=r"env is an environment, .* a function that makes one: lambda: gymnasium.ma"):
        named({"env": made("CartPole-v1")})


def test_a_program_is_drawn_from_settings() -> None:
    drawn = penstock.draw({"env": lambda: gymnasium.make("CartPole-v1"), "num_workers": 2, "runtime": "inline"})
    assert "env.1" in drawn
