"""The update as native libraries: gradients and optimizer step of a minibatch in one call.

Phases are traced once into a graph without autograd and lowered to C++ by torch's ahead-of-time compiler. The library
stays in the user's cache for the next start. On a GPU nothing is compiled: the kernels that torch starts for a
minibatch are captured as a CUDA graph. Updates the state in place. Knows no algorithm beyond its phases.
"""

from penstock.updates.compiled.replay import build_applier, build_follower, build_replay
from penstock.updates.compiled.stream import CompiledUpdater, build, build_stream_applier, build_stream_follower

__all__ = [
    "CompiledUpdater",
    "build",
    "build_applier",
    "build_follower",
    "build_replay",
    "build_stream_applier",
    "build_stream_follower",
]
