"""DDPG as native gradient steps: those of TD3 with one critic, no delay and no smoothing. Imports no torch."""

from penstock.algorithm import FusedReplay
from penstock.algorithms.ddpg.spec import NAME, DDPGConfig, as_td3
from penstock.algorithms.off_policy.fused import supports
from penstock.algorithms.td3 import fused as td3
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: DDPGConfig) -> FusedReplay:
    """DDPG on ``spaces`` without torch. Check with `supports` first that the native update can train the networks."""
    return td3.build(spaces, as_td3(config), NAME)
