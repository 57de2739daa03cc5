"""The settings of one EnvNode, as plain data."""

from dataclasses import dataclass
from typing import Literal

from penstock.nodes.contract import LaneStart
from penstock.types import EnvReference, Spaces

__all__ = ["EnvSettings"]


@dataclass(frozen=True)
class EnvSettings:
    """What one EnvNode steps."""

    env: EnvReference
    vector: bool
    """Use Gymnasium's own vector environment of this id."""
    ignore_obs: tuple[str, ...]
    """Fields of the observation that are left out."""
    spaces: Spaces
    worker: int
    num_workers: int
    """Number of EnvNodes. This one is number ``worker``. All have the same number of lanes."""
    first_lane: int
    lanes: int
    num_steps: int
    """T: steps of a rollout."""
    renew_every: int
    """After each so many steps a rollout goes on with newer parameters. In lock step there are none: the next ones are
    learned from this rollout."""
    seed: int
    starts: tuple[LaneStart, ...]
    """One for each lane."""
    bad_numbers: Literal["stop", "skip"]
    """A rollout with NaN or infinity is an error (``stop``) or is dropped (``skip``)."""
    work_limit_s: float
    """How long making and resetting the environments may take, in seconds."""
    masks: bool = False
    """The algorithm uses action masks. Then it is an error if the environment gives one and ``spaces`` has none."""
    reward: str | bytes | None = None
    """The user's own reward, which replaces the environment's; ``None``: the environment's."""
    episode_metrics: tuple[str, ...] = ()
    """Names of numbers in the last info of each episode, which rollouts list beside its return."""
