"""Pendulum-v1 without its velocity: a policy needs memory."""

from typing import Any

import gymnasium

from benchmarks.peers.stateless_cartpole import Positions

SEEN = [0, 1]
"""Cosine and sine of the angle."""


def make_env() -> gymnasium.Env[Any, Any]:
    """One environment."""
    return Positions(gymnasium.make("Pendulum-v1"), SEEN)
