"""Snapshots of environments: their state as bytes, and these bytes applied to another object of the same kind.

A snapshot is plain data in a format of its own. Reading one imports no module and calls no function that it names.
"""

from penstock.envs.snapshots.apply import apply
from penstock.envs.snapshots.capture import capture
from penstock.envs.snapshots.format import joined, parted

__all__ = ["apply", "capture", "joined", "parted"]
