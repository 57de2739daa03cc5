"""Registers MinAtar's games with Gymnasium: `benchmarks.peers.minatar_games:MinAtar/Breakout-v1`.

MinAtar does not do so by itself in Gymnasium 1.0 and newer.
"""

from minatar.gym import register_envs

register_envs()
