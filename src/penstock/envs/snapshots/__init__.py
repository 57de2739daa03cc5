"""Snapshots of environments: their state as bytes, and these bytes laid on another object of the same kind.

A snapshot is plain data in a format of its own. Reading one imports no module and calls no function that it names.
"""

from penstock.envs.snapshots.capture import capture
from penstock.envs.snapshots.format import joined, parted
from penstock.envs.snapshots.lay import lay

__all__ = ["capture", "joined", "lay", "parted"]
