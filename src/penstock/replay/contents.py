"""What a table holds, as arrays that do not depend on how many writers share its lanes: for checkpoints.

Rows are kept as they are, ``[slots, T + 1, num_envs, ...]`` from the oldest to the newest; what the side areas hold is
laid end to end. Reads and writes shared memory; touches no file.
"""

from collections.abc import Sequence

import numpy as np

from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["contents", "contents_bytes", "restore", "sampled_parts", "transfer"]

_OF_LANE = ("continues", "steps_before")
_PLACES = ("final_slot", "final_t", "final_lane")
_PART_BYTES = 64 << 20
"""So much is copied from one table to another at a time."""


def contents(table: Table, taken: Sequence[int], tree: SumTree | None = None) -> Arrays:
    """A copy of the last slots below ``taken``, as many of one writer as of another.

    All but one of a ring: that one may be filled while the others are copied. With the priorities of ``tree``, as they
    are now.

    A slot that is overwritten while it is copied is left out, and those before it.
    """
    count = min(table.slots - 1, _readable(table, taken))
    arrays = _copied(table, taken, count, tree)
    # Race: writers go on. What they have begun to overwrite by now may be torn.
    lost = count - min(count, *(taken[writer] - table.oldest(writer) for writer in range(table.writers)))
    if lost == 0:
        return arrays
    kept = arrays["final_slot"] >= lost
    finals = {name: values[kept] for name, values in arrays.items() if name.startswith("final")}
    finals["final_slot"] = finals["final_slot"] - lost
    later = {name: values[lost:] for name, values in arrays.items() if values.ndim}
    return arrays | later | finals


def contents_bytes(specs: Sequence[ArraySpec], slots: int) -> int:
    """Bytes that ``contents`` takes at most of so many slots (of all writers), its side areas apart."""
    fields = {*_row_fields(specs)}
    return slots * sum(spec.nbytes for spec in specs if spec.name in fields)


def sampled_parts(table: Table, index: int) -> list[Array]:
    """The parts of a slot that are sampled, as contiguous views. The slot's checksum covers them."""
    number = int(table.arrays["final_count"][index])
    places = [table.arrays[name][index, :number] for name in (*_PLACES[1:], *_final_fields(table))]
    whole = (*_row_fields(table.specs), *_OF_LANE, "final_count")
    return [*(table.arrays[name][index, ...] for name in whole), *places]


def restore(table: Table, arrays: Arrays, tree: SumTree | None = None) -> int:
    """Fill an empty table with what ``contents`` gave; the sequence at which each writer goes on.

    Where it has room for fewer slots the newest are kept. Where writers stood, and which rollout was a slot's, it does
    not know.

    Raises:
        ValueError: the rows are of another layout, or have no priorities and are to have some.
    """
    _check(table, arrays, ranked=tree is not None)
    held = len(arrays["valid"])
    count, sequence = min(held, table.slots - 1), int(arrays["sequence"])
    _put(table, tree, arrays, sequence, held - count)
    _begin(table, tree, sequence, count, arrays)
    return sequence


def transfer(  # noqa: PLR0917 - a source, and a target
    source: Table,
    firsts: Sequence[int],
    taken: Sequence[int],
    tree: SumTree | None,
    target: Table,
    ranks: SumTree | None,
) -> int:
    """Fill an empty table with the ``contents`` of one that nobody writes, a part at a time; how many slots of each.

    Args:
        source: with as many lanes as ``target``, shared by any number of writers.
        firsts: of each writer, the oldest slot that may be copied.
        taken: slots below are copied: of all writers as many, the newest that ``target`` has room for.
        tree: the priorities of its rows.
        target: its writers go on at the largest of ``taken``.
        ranks: its tree.

    Raises:
        ValueError: as `restore`.
    """
    held = (end - first for end, first in zip(taken, firsts, strict=True))
    count = max(0, min(source.slots - 1, target.slots - 1, _readable(source, taken), *held))
    part = max(1, _PART_BYTES * source.slots // max(1, contents_bytes(source.specs, source.writers * source.slots)))
    arrays = _copied(source, taken, 0, tree)
    _check(target, arrays, ranked=ranks is not None)
    for first in range(0, count, part):
        behind = max(0, count - first - part)
        arrays = _copied(source, [end - behind for end in taken], min(part, count - first), tree)
        _put(target, ranks, arrays, max(taken) - behind, 0)
    _begin(target, ranks, max(taken), count, arrays)
    return count


def _copied(table: Table, ends: Sequence[int], count: int, tree: SumTree | None) -> Arrays:
    """The ``count`` slots below ``ends`` of each writer."""
    places = [_indices(table, writer, ends[writer], count) for writer in range(table.writers)]
    arrays = {name: _rows(table.arrays[name], places) for name in _row_fields(table.specs)}
    # The ring begins where it began: what is drawn by priority depends on where a row lies.
    arrays["sequence"] = np.array(max(ends), np.int64)
    for name in _OF_LANE:
        arrays[name] = np.concatenate([table.arrays[name][place] for place in places], axis=1)
    arrays |= _finals(table, places)
    if tree is not None:
        size = table.arrays["valid"][0].size
        leaves = [place[:, None] * size + np.arange(size) for place in places]
        shape = (count, *table.arrays["valid"].shape[1:])
        arrays["priority"] = np.concatenate([tree.read(own).reshape(shape) for own in leaves], axis=2)
        arrays["largest_priority"] = np.array(tree.max_priority())
    return arrays


def _put(table: Table, tree: SumTree | None, arrays: Arrays, end: int, dropped: int) -> None:
    """Fill the slots of each writer below sequence ``end`` with these, but for the first that are dropped."""
    lanes = table.arrays["valid"].shape[2]
    count = len(arrays["valid"]) - dropped
    for writer in range(table.writers):
        places = _indices(table, writer, end, count)
        own = slice(writer * lanes, (writer + 1) * lanes)
        for name in _row_fields(table.specs):
            table.arrays[name][places] = arrays[name][dropped:, :, own]
        # Older than anything: a successor of this writer is told of its lanes by the learner's record.
        table.arrays["rollout"][places] = -1
        for name in _OF_LANE:
            table.arrays[name][places] = arrays[name][dropped:, own]
        _restore_finals(table, writer, arrays, dropped, places)
        if table.checksums is not None:
            for position, place in enumerate(places.tolist()):
                table.sign(place, end - count + position, sampled_parts(table, place))
        if tree is not None:
            _restore_ranks(tree, table, places, arrays["priority"][dropped:, :, own], end - count)


def _begin(table: Table, tree: SumTree | None, sequence: int, count: int, arrays: Arrays) -> None:
    """Let the writers go on behind so many slots that were restored."""
    for writer in range(table.writers):
        table.begin(writer, sequence, sequence - count)
    if tree is not None and count:
        # For a moment, so that the tree knows of it.
        row = table.index(0, sequence - 1) * table.arrays["valid"][0].size
        before = tree.read(np.array([row]))
        tree.set(row, sequence - 1, arrays["largest_priority"].reshape(1))
        tree.set(row, sequence - 1, before)


def _check(table: Table, arrays: Arrays, *, ranked: bool) -> None:
    """Return if these are arrays that ``contents`` gave of such a table.

    Raises:
        ValueError: they are not; says what of them.
    """
    steps, lanes = table.arrays["valid"].shape[1], table.writers * table.arrays["valid"].shape[2]
    wanted = {name: ((steps, lanes, *table.arrays[name].shape[3:]), name) for name in _row_fields(table.specs)}
    wanted |= {name: ((lanes,), name) for name in _OF_LANE}
    wanted |= {name: ((), name) for name in _PLACES[1:]} | {"final_slot": ((), "final_t")}
    wanted |= {name: (table.arrays[name].shape[2:], name) for name in _final_fields(table)}
    for name, (shape, like) in wanted.items():
        dtype, found = table.arrays[like].dtype, arrays.get(name)
        if found is None or not found.ndim or found.shape[1:] != shape or found.dtype != dtype:
            has = "nothing" if found is None else f"{found.dtype} {list(found.shape[1:])}"
            raise ValueError(f"of {name} it holds {has}, not {dtype} {list(shape)}")
        rows = "final_slot" if name.startswith("final") else "valid"
        if rows in arrays and len(found) != len(arrays[rows]):
            raise ValueError(f"of {name} it holds {len(found)}, not {len(arrays[rows])}")
    if arrays.get("sequence", np.zeros(1)).shape != () or arrays["sequence"] < len(arrays["valid"]):
        raise ValueError("it does not say where its ring begins")
    if ranked and arrays.get("priority", np.zeros(0)).shape != arrays["valid"].shape:
        raise ValueError("its rows have no priorities")
    if ranked and "largest_priority" not in arrays:
        raise ValueError("it does not say the largest priority")


def _restore_ranks(tree: SumTree, table: Table, places: Array, ranks: Array, first: int) -> None:
    """The priorities ``[n, T + 1, lanes]`` of slots from sequence ``first`` on."""
    for position, place in enumerate(places):
        tree.set(int(place) * table.arrays["valid"][0].size, first + position, ranks[position].reshape(-1))


def _row_fields(specs: Sequence[ArraySpec]) -> list[str]:
    """The fields that hold ``[T + 1, lanes, ...]`` in a slot; by name as well, since others may have such a shape."""
    rows = next(spec.shape for spec in specs if spec.name == "valid")
    return [
        spec.name
        for spec in specs
        if spec.shape[:2] == rows
        and spec.name not in _OF_LANE
        and not spec.name.startswith(("final", "episode_", "lane_"))
    ]


def _readable(table: Table, taken: Sequence[int]) -> int:
    """How many of the last slots below ``taken`` are there, and nobody has begun to overwrite."""
    return max(0, min(taken[writer] - table.first(writer) for writer in range(table.writers)))


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
