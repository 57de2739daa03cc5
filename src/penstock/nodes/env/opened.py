"""Makes the source of some lanes, with the user's own rewards and the newest frames of stacks."""

import contextlib
from typing import NamedTuple

from penstock.envs.rewards import RewardedSource, find_reward
from penstock.envs.sources import display_name, open_source
from penstock.envs.spaces import check_same_arrays
from penstock.envs.stacks import newest_frames
from penstock.nodes.env.settings import EnvSettings
from penstock.types import Arrays, EnvSource

__all__ = ["Opened", "open_lanes"]


class Opened(NamedTuple):
    """The source of some lanes."""

    source: EnvSource
    rewarded: RewardedSource | None
    """The part of it that computes the user's own rewards."""

    def own_return(self, lane: int) -> float:
        """The sum of the user's own rewards over the lane's episode so far; 0 without such rewards."""
        return 0.0 if self.rewarded is None else self.rewarded.own_return(lane)


def open_lanes(settings: EnvSettings, stacks: Arrays) -> Opened:
    """Make the environments of a node's lanes.

    Args:
        settings: of the node.
        stacks: field -> ``[lanes, frames, ...]``: arrays that receive the latest whole observations of these fields.

    Raises:
        EnvError: the environment cannot be made, or has other spaces than the settings.
    """
    name, first_lane = display_name(settings.env), settings.first_lane
    source = open_source(
        settings.env,
        settings.vector,
        settings.lanes,
        first_lane,
        settings.seed + first_lane,
        ignore_obs=settings.ignore_obs,
        mask=settings.spaces.mask,
        masks=settings.masks,
    )
    try:
        check_same_arrays(name, source.spaces, settings.spaces)
        rewarded: RewardedSource | None = None
        inner: EnvSource = source
        if settings.reward is not None:
            inner = rewarded = RewardedSource(source, find_reward(settings.reward), name, first_lane)
        # Stacks go to the policy port. Rows get only the newest frame.
        return Opened(newest_frames(inner, stacks, name, first_lane), rewarded)
    except BaseException:
        with contextlib.suppress(Exception):
            source.close()
        raise
