"""The update as native kernels, without torch, on the CPU. Knows no algorithm beyond its fused functions."""

from penstock.updates.fused.replay import build_applier, build_follower, build_replay
from penstock.updates.fused.stream import FusedUpdater, build, build_stream_applier, build_stream_follower

__all__ = [
    "FusedUpdater",
    "build",
    "build_applier",
    "build_follower",
    "build_replay",
    "build_stream_applier",
    "build_stream_follower",
]
