"""The update as native kernels, without torch, on the CPU. Knows no algorithm beyond its fused functions."""

from penstock.updates.fused.replay import build_applier, build_finder, build_replay
from penstock.updates.fused.stream import FusedUpdater, build, build_stream_applier, build_stream_finder

__all__ = [
    "FusedUpdater",
    "build",
    "build_applier",
    "build_finder",
    "build_replay",
    "build_stream_applier",
    "build_stream_finder",
]
