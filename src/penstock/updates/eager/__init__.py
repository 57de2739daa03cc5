"""The update as plain torch calls. Starts at once and needs no compiler. Knows no algorithm beyond its phases."""

from penstock.updates.eager.replay import build_applier, build_finder, build_replay
from penstock.updates.eager.stream import EagerUpdater, build, build_stream_applier, build_stream_finder

__all__ = [
    "EagerUpdater",
    "build",
    "build_applier",
    "build_finder",
    "build_replay",
    "build_stream_applier",
    "build_stream_finder",
]
