"""The update as native libraries: gradients and optimizer step of a minibatch in one call.

The phases are traced once into a graph without autograd, lowered to C++ by torch's ahead-of-time compiler, and kept in
the user's cache for the next start. State is updated in place. Knows no algorithm beyond its phases.
"""

from penstock.updates.compiled.replay import build_applier, build_finder, build_replay
from penstock.updates.compiled.stream import CompiledUpdater, build

__all__ = ["CompiledUpdater", "build", "build_applier", "build_finder", "build_replay"]
