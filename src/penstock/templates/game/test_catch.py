"""Tests of the agent and the game without a run: ``python -m pytest``. They need ``pip install 'penstock[serve]'``."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from catch_agent import CatchAgent
from catch_body import BODY
from catch_game import BALLS, play

import penstock
from penstock.doubles import rehearse


def after_the_ball(seen: dict[str, Any]) -> int:
    """A policy by hand: go where the ball will fall."""
    distance = seen["obs"][0, 3]
    return 1 if abs(distance) <= 0.1 else 2 if distance > 0 else 0


def test_the_game_plays_with_the_agent_and_catches_every_ball() -> None:
    # A fake policy and a fake learner, between real sockets: no run, nothing is learned.
    with rehearse(CatchAgent, act=after_the_ball) as stage:
        assert asyncio.run(play(stage.tcp, number=0, patience=5.0, episodes=2)) == [BALLS, BALLS]


def test_the_agent_sees_the_distance_to_the_ball() -> None:
    told = CatchAgent().decode(BODY.pack(0.5, 1.0, -0.25, 1.0, False))
    assert (told.obs, told.reward, told.terminated) == ([0.5, 1.0, -0.25, 0.75], 1.0, False)


def test_bytes_that_the_agent_cannot_read_are_refused() -> None:
    with pytest.raises(penstock.BadDataError, match="the body has 3 bytes, wanted 17"):
        CatchAgent().decode(b"abc")


def test_an_action_is_one_byte() -> None:
    assert CatchAgent().encode(2) == b"\x02"


def test_penstock_takes_the_settings() -> None:
    config = penstock.from_toml(Path(__file__).with_name("train.toml"))
    assert config.run.env == "gamecore://catch_agent:CatchAgent"
