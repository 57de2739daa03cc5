"""DDPG as plain data: TD3 with one critic, no delay and no smoothing. Imports no torch."""

from dataclasses import dataclass, fields

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.td3 import spec as td3
from penstock.config.fields import tunable
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "NAME", "DDPGConfig", "as_td3", "init_state", "spec"]

ACTIONS = ("bounded",)

NAME = "ddpg"


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(td3.DeterministicConfig):
    """Hyper-parameters of DDPG. Networks, minibatches and learning rates are those of Lillicrap et al. 2016."""

    mini_batch_size: int = tunable(
        64, "rows of one gradient step; fewer: noisier, but cheaper steps (usual: 32 to 1024)", min=1
    )
    lr: float = tunable(
        1e-4,
        "learning rate of the policy; too large: the policy collapses; too small: learning is slow "
        "(usual: 3e-5 to 1e-3)",
        min=0,
    )
    tau: float = tunable(
        0.001,
        "share of the way that targets move to their networks at a step; more: learns faster, but less steadily "
        "(usual: 0.001 to 0.05)",
        min=0,
        max=1,
    )


def as_td3(config: DDPGConfig) -> td3.TD3Config:
    """The config of TD3 that is the same as ``config``."""
    same = {field.name: getattr(config, field.name) for field in fields(config)}
    return td3.TD3Config(**same, critics=1, policy_delay=1, smoothing=0.0)


def spec(spaces: Spaces, config: DDPGConfig) -> AlgorithmSpec:
    """What penstock needs to know to run DDPG on ``spaces``.

    Raises:
        SpaceError: the actions are not a Box with bounds, or penstock has no model for the observations.
    """
    return td3.spec(spaces, as_td3(config), NAME)


def init_state(spaces: Spaces, config: DDPGConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, everything else 0."""
    return td3.init_state(spaces, as_td3(config), seed, NAME)
