"""The update as plain torch calls. Starts at once and needs no compiler. Knows no algorithm beyond its phases."""

from penstock.updates.eager.replay import build_applier, build_follower, build_replay
from penstock.updates.eager.stream import EagerUpdater, build, build_stream_applier, build_stream_follower

__all__ = [
    "EagerUpdater",
    "build",
    "build_applier",
    "build_follower",
    "build_replay",
    "build_stream_applier",
    "build_stream_follower",
]
