"""DDPG as plain data: TD3 with one critic, no delay and no smoothing. Imports no torch."""

from dataclasses import dataclass, fields

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.td3 import spec as td3
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "NAME", "DDPGConfig", "as_td3", "init_state", "spec"]

ACTIONS = ("bounded",)

NAME = "ddpg"


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(td3.DeterministicConfig):
    """Hyper-parameters of DDPG."""


def as_td3(config: DDPGConfig) -> td3.TD3Config:
    """The same as a config of TD3."""
    same = {field.name: getattr(config, field.name) for field in fields(config)}
    return td3.TD3Config(**same, critics=1, policy_delay=1, smoothing=0.0)


def spec(spaces: Spaces, config: DDPGConfig) -> AlgorithmSpec:
    """What the house needs to know to run DDPG on ``spaces``.

    Raises:
        SpaceError: actions that are not a box with bounds, or observations that no model here serves.
    """
    return td3.spec(spaces, as_td3(config), NAME)


def init_state(spaces: Spaces, config: DDPGConfig, seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, targets equal to them, everything else 0."""
    return td3.init_state(spaces, as_td3(config), seed, NAME)
