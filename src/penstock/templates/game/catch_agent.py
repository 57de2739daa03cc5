"""The agent: what stands between the game's bytes and the policy. Change it into yours.

A run takes it by its name: ``--env gamecore://catch_agent:CatchAgent``. A server does, too.
"""

from typing import Any

import numpy as np
from catch_body import BODY
from gymnasium.spaces import Box, Discrete

import penstock
from penstock.games.agent import State, Told

__all__ = ["CatchAgent"]


class CatchAgent(penstock.Agent):
    """Sees ball, height, paddle, and the distance to the ball. Goes left (0), stays (1) or goes right (2).

    Without `decode` and `encode` bodies are JSON. Without `on_tick` the policy gets what the game sends.
    """

    observation_space = Box(-2.0, 2.0, (4,), np.float32)
    action_space = Discrete(3)

    def decode(self, body: bytes) -> Told:
        """From the game's bytes to what the policy sees. The body of an end may be empty."""
        if not body:
            return Told()
        if len(body) != BODY.size:
            raise penstock.BadDataError(f"the body has {len(body)} bytes, wanted {BODY.size}")
        ball, height, paddle, reward, ended = BODY.unpack(body)
        return Told(obs=[ball, height, paddle, ball - paddle], reward=reward, terminated=ended)

    def on_tick(self, state: State) -> None:
        """Before the policy acts: a small reward for being near the ball, so that learning begins sooner."""
        state.reward += 0.05 * (1.0 - abs(state.obs[3]))

    def encode(self, action: Any) -> bytes:
        """From the policy's action to the game's bytes: one byte."""
        return bytes([int(action)])
