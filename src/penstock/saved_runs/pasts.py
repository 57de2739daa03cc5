"""What restores each lane, as arrays: in the slot of a committed record, and in a checkpoint.

A slot has room for the longest past of every lane. A checkpoint holds the pasts one after the other. It has the arrays
of snapshots only if there is a snapshot.
"""

from collections.abc import Mapping

import numpy as np

from penstock.memory.action_log import Past
from penstock.memory.position import Position
from penstock.memory.snapshots import Snapshot
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["SNAPSHOTS", "past_specs", "read_pasts", "without_room", "write_past"]

SNAPSHOTS = "snapshots"
"""The array of a slot that holds their bytes."""
_OF_SNAPSHOTS = {SNAPSHOTS, "snapshots_size", "snapshots_position", "snapshots_return"}


def past_specs(num_envs: int, action: ArraySpec, capacity: int, snapshot_bytes: int) -> tuple[ArraySpec, ...]:
    """The arrays of a slot.

    Args:
        num_envs: number of lanes.
        action: one lane's action.
        capacity: actions of a lane for which there is room.
        snapshot_bytes: bytes of a lane's snapshot for which there is room. 0: lanes have no snapshots.
    """
    actions = (
        ArraySpec("actions", (num_envs, capacity, *action.shape), action.dtype),
        ArraySpec("actions_count", (num_envs,), "int64"),
    )
    if not snapshot_bytes:
        return actions
    return (
        *actions,
        ArraySpec(SNAPSHOTS, (num_envs, snapshot_bytes), "uint8"),
        ArraySpec("snapshots_size", (num_envs,), "int64"),
        ArraySpec("snapshots_position", (num_envs, 4), "int64"),
        ArraySpec("snapshots_return", (num_envs,), "float64"),
    )


def write_past(slot: Arrays, lane: int, past: Past | None) -> None:
    """Write what restores a lane into a slot; ``None``: nothing does."""
    slot["actions_count"][lane] = -1 if past is None else len(past.actions)
    if past is not None:
        slot["actions"][lane, : len(past.actions)] = past.actions
    if "snapshots" in slot:
        base = None if past is None else past.base
        slot["snapshots_size"][lane] = 0 if base is None else len(base.content)
        if base is not None:
            slot["snapshots"][lane, : len(base.content)] = base.content
            slot["snapshots_position"][lane] = base.position
            slot["snapshots_return"][lane] = base.episode_return


def without_room(slot: Arrays) -> Arrays:
    """The arrays of a slot with the lanes' pasts one after the other, as a checkpoint holds them."""
    arrays = dict(slot)
    counts = np.maximum(slot["actions_count"], 0)
    arrays["actions"] = _joined(slot["actions"], counts)
    if "snapshots" in slot and slot["snapshots_size"].any():
        arrays["snapshots"] = _joined(slot["snapshots"], slot["snapshots_size"])
    else:
        arrays = {name: values for name, values in arrays.items() if name not in _OF_SNAPSHOTS}
    return arrays


def read_pasts(arrays: Mapping[str, Array]) -> list[Past | None]:
    """What restores each lane, from the arrays of a checkpoint; ``None`` for a lane that nothing restores."""
    counts = arrays["actions_count"]
    ends = np.cumsum(np.maximum(counts, 0))
    bases: list[Snapshot | None] = [None] * len(counts)
    if "snapshots" in arrays:
        sizes = arrays["snapshots_size"]
        for lane, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
            if size:
                position = Position(*map(int, arrays["snapshots_position"][lane]))
                content = arrays["snapshots"][end - size : end]
                bases[lane] = Snapshot(position, float(arrays["snapshots_return"][lane]), content)
    return [
        None if count < 0 else Past(base, arrays["actions"][end - count : end])
        for base, end, count in zip(bases, ends, counts, strict=True)
    ]


def _joined(rows: Array, counts: Array) -> Array:
    return np.concatenate([rows[lane, :count] for lane, count in enumerate(counts)])
