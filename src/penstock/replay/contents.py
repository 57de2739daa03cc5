"""What a table holds, as arrays that do not depend on how many writers share its lanes: for checkpoints.

Rows are kept as they are, ``[slots, T + 1, num_envs, ...]`` from the oldest to the newest; what the side areas hold is
laid end to end. Reads and writes shared memory; touches no file.
"""

from collections.abc import Sequence

import numpy as np

from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = ["contents", "contents_bytes", "restore"]

_OF_LANE = ("continues", "steps_before")
_PLACES = ("final_slot", "final_t", "final_lane")


def contents(table: Table, taken: Sequence[int], tree: SumTree | None = None) -> Arrays:
    """A copy of the last slots below ``taken``, as many of one writer as of another.

    All but one of a ring: that one may be filled while the others are copied. With the priorities of ``tree``, as they
    are now.

    A slot that is overwritten while it is copied is left out, and those before it.
    """
    count = min(table.slots - 1, _readable(table, taken), *taken)
    places = [_indices(table, writer, taken[writer], count) for writer in range(table.writers)]
    arrays = {name: _rows(table.arrays[name], places) for name in _row_fields(table)}
    # The ring begins where it began: what is drawn by priority depends on where a row lies.
    arrays["sequence"] = np.array(max(taken), np.int64)
    for name in _OF_LANE:
        arrays[name] = np.concatenate([table.arrays[name][place] for place in places], axis=1)
    arrays |= _finals(table, places)
    if tree is not None:
        size = table.arrays["valid"][0].size
        leaves = [place[:, None] * size + np.arange(size) for place in places]
        ranks = [tree.read(own).reshape(-1, *table.arrays["valid"].shape[1:]) for own in leaves]
        arrays["priority"] = np.concatenate(ranks, axis=2)
        arrays["largest_priority"] = np.array(tree.max_priority())
    # Race: writers go on. What they have begun to overwrite by now may be torn.
    lost = count - min(count, _readable(table, taken))
    if lost == 0:
        return arrays
    kept = arrays["final_slot"] >= lost
    finals = {name: values[kept] for name, values in arrays.items() if name.startswith("final")}
    finals["final_slot"] = finals["final_slot"] - lost
    later = {name: values[lost:] for name, values in arrays.items() if values.ndim}
    return arrays | later | finals


def contents_bytes(table: Table) -> int:
    """Bytes that ``contents`` takes at most, its side areas apart."""
    return sum(table.arrays[name].nbytes for name in _row_fields(table))


def restore(table: Table, arrays: Arrays, tree: SumTree | None = None) -> int:
    """Fill an empty table with what ``contents`` gave; the sequence at which each writer goes on.

    Where it has room for fewer slots the newest are kept. Where writers stood, and which rollout was a slot's, it does
    not know.

    Raises:
        ValueError: the rows are of another layout, or have no priorities and are to have some.
    """
    names = _row_fields(table)
    lanes = table.arrays["valid"].shape[2]
    for name in names:
        mine = table.arrays[name]
        wanted = (mine.shape[1], table.writers * lanes, *mine.shape[3:])
        found = arrays.get(name)
        if found is None or found.shape[1:] != wanted or found.dtype != mine.dtype:
            has = None if found is None else list(found.shape[1:])
            raise ValueError(f"of {name} it holds {has}, not {list(wanted)}")
    if not arrays.keys() >= set(_OF_LANE):
        raise ValueError("it does not say how its lanes go on from slot to slot")
    if tree is not None and "priority" not in arrays:
        raise ValueError("its rows have no priorities")
    held = len(arrays["valid"])
    count, sequence = min(held, table.slots - 1), int(arrays["sequence"])
    for writer in range(table.writers):
        places = _indices(table, writer, sequence, count)
        own = slice(writer * lanes, (writer + 1) * lanes)
        for name in names:
            table.arrays[name][places] = arrays[name][held - count :, :, own]
        # Older than anything: a successor of this writer is told of its lanes by the learner's record.
        table.arrays["rollout"][places] = -1
        for name in _OF_LANE:
            table.arrays[name][places] = arrays[name][held - count :, own]
        _restore_finals(table, writer, arrays, held - count, places)
        table.begin(writer, sequence)
        if tree is not None:
            _restore_ranks(tree, table, places, arrays["priority"][held - count :, :, own], sequence - count)
    if tree is not None and count:
        # For a moment, so that the tree knows of it.
        row = table.index(0, sequence - 1) * table.arrays["valid"][0].size
        before = tree.read(np.array([row]))
        tree.set(row, sequence - 1, arrays["largest_priority"].reshape(1))
        tree.set(row, sequence - 1, before)
    return sequence


def _restore_ranks(tree: SumTree, table: Table, places: Array, ranks: Array, first: int) -> None:
    """The priorities ``[n, T + 1, lanes]`` of slots from sequence ``first`` on."""
    for position, place in enumerate(places):
        tree.set(int(place) * table.arrays["valid"][0].size, first + position, ranks[position].reshape(-1))


def _row_fields(table: Table) -> list[str]:
    """The fields that hold ``[T + 1, lanes, ...]`` in a slot; by name as well, since others may have such a shape."""
    rows = table.arrays["valid"].shape
    return [
        name
        for name, values in table.arrays.items()
        if values.shape[:3] == rows and name not in _OF_LANE and not name.startswith(("final", "episode_", "lane_"))
    ]


def _readable(table: Table, taken: Sequence[int]) -> int:
    """How many of the last slots below ``taken`` nobody has begun to overwrite."""
    writers = range(table.writers)
    return max(0, min(taken[writer] - max(0, table.claimed(writer) - table.slots) for writer in writers))


def _indices(table: Table, writer: int, end: int, count: int) -> Array:
    return np.array([table.index(writer, sequence) for sequence in range(end - count, end)], np.int64)


def _rows(values: Array, places: Sequence[Array]) -> Array:
    return np.concatenate([values[place] for place in places], axis=2)


def _finals(table: Table, places: Sequence[Array]) -> Arrays:
    """The side areas' entries, by slot: their place, lanes counted over all writers, and their fields."""
    lanes = table.arrays["valid"].shape[2]
    found: dict[str, list[Array]] = {name: [] for name in (*_PLACES, *_final_fields(table))}
    for writer, own in enumerate(places):
        for position, place in enumerate(own):
            number = int(table.arrays["final_count"][place])
            found["final_slot"].append(np.full(number, position, np.int64))
            found["final_t"].append(table.arrays["final_t"][place, :number])
            found["final_lane"].append(table.arrays["final_lane"][place, :number] + writer * lanes)
            for name in _final_fields(table):
                found[name].append(table.arrays[name][place, :number])
    empty = {name: table.arrays[name][0, :0] if name in table.arrays else np.zeros(0, np.int64) for name in found}
    joined = {name: np.concatenate([empty[name], *parts]) for name, parts in found.items()}
    order = np.lexsort((joined["final_lane"], joined["final_t"], joined["final_slot"]))
    return {name: values[order] for name, values in joined.items()}


def _final_fields(table: Table) -> list[str]:
    return [name for name in table.arrays if name.startswith("final.")]


def _restore_finals(table: Table, writer: int, arrays: Arrays, dropped: int, places: Array) -> None:
    lanes = table.arrays["valid"].shape[2]
    own = (arrays["final_lane"] // lanes == writer) & (arrays["final_slot"] >= dropped)
    slots = arrays["final_slot"][own] - dropped
    table.arrays["final_count"][places] = 0
    for slot in np.unique(slots):
        place = places[int(slot)]
        entries = np.nonzero(own)[0][slots == slot]
        table.arrays["final_count"][place] = len(entries)
        table.arrays["final_t"][place, : len(entries)] = arrays["final_t"][entries]
        table.arrays["final_lane"][place, : len(entries)] = arrays["final_lane"][entries] - writer * lanes
        for name in _final_fields(table):
            table.arrays[name][place, : len(entries)] = arrays[name][entries]
