"""Copies the content of a table into arrays for checkpoints, and back.

The arrays do not depend on how many writers share the lanes. Rows are ``[slots, T + 1, num_envs, ...]``, the oldest
slot first. The entries of the side areas stand one after the other. Touches no file.
"""

from collections.abc import Callable, Sequence

import numpy as np

from penstock.memory.table import Table
from penstock.replay.sum_tree import Ranks
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["TABLE_LIMIT", "contents", "contents_bytes", "restore", "sampled_parts", "transfer"]

TABLE_LIMIT = 1 << 30
"""Bytes of rows. A larger table lies in a file of the run folder instead of being copied into each checkpoint. Where
shards lie with their learners, a larger table is written to their files less often."""
_JOINING = ("continues", "steps_before")
_LARGEST = "largest_priority"
_PLACES = ("final_slot", "final_t", "final_lane")
_PART_BYTES = 64 << 20
"""Most bytes that are copied from one table to another at a time."""


def contents(table: Table, taken: Sequence[int], tree: Ranks | None = None) -> Arrays:
    """A copy of the last slots below ``taken``, the same number of each writer, with the priorities of ``tree``.

    One slot of each ring is left out: its writer may be filling it. A slot that is overwritten while it is copied is
    left out too, and so are all slots before it.
    """
    count = min(table.slots - 1, _readable(table, taken))
    arrays = _copied(table, taken, count, tree)
    # Race: writers go on meanwhile. A slot that they have begun to overwrite by now may be torn.
    lost = count - min(count, *(taken[writer] - table.oldest(writer) for writer in range(table.writers)))
    if lost == 0:
        return arrays
    kept = arrays["final_slot"] >= lost
    finals = {name: values[kept] for name, values in arrays.items() if name.startswith("final")}
    finals["final_slot"] = finals["final_slot"] - lost
    later = {name: values[lost:] for name, values in arrays.items() if values.ndim and name != _LARGEST}
    return arrays | later | finals


def contents_bytes(specs: Sequence[ArraySpec], slots: int) -> int:
    """Most bytes that the rows of ``slots`` slots (of all writers) take in ``contents``, without side areas."""
    fields = {*_row_fields(specs), *_carry(specs)}
    return slots * sum(spec.nbytes for spec in specs if spec.name in fields)


def sampled_parts(table: Table, index: int) -> list[Array]:
    """The parts of a slot that are sampled, as contiguous views. The slot's checksum covers them."""
    number = int(table.arrays["final_count"][index])
    places = [table.arrays[name][index, :number] for name in (*_PLACES[1:], *_final_fields(table))]
    whole = (*_row_fields(table.specs), *_of_lane(table.specs), "final_count")
    return [*(table.arrays[name][index, ...] for name in whole), *places]


def restore(table: Table, arrays: Arrays, tree: Ranks | None = None) -> int:
    """Fill an empty table with the arrays of ``contents``. Returns the sequence at which each writer goes on.

    If the table has fewer slots, it gets the newest. The arrays do not tell the positions of the lanes, nor the number
    of a slot's rollout.

    Raises:
        ValueError: the rows have another layout, or lack the priorities that ``tree`` needs.
    """
    _check(table, arrays, ranked=tree is not None)
    held = len(arrays["valid"])
    count, sequence = min(held, table.slots - 1), int(arrays["sequence"])
    _put(table, tree, arrays, sequence, held - count)
    _begin(table, tree, sequence, count, arrays)
    return sequence


def transfer(  # noqa: PLR0917 - a source and a target
    source: Table,
    firsts: Sequence[int],
    taken: Sequence[int],
    tree: Ranks | None,
    target: Table,
    ranks: Ranks | None,
    *,
    before_part: Callable[[], None] = lambda: None,
) -> int:
    """Copy the ``contents`` of a table into an empty one, part by part. Returns the number of slots of each writer.

    Args:
        source: a table with the same lanes as ``target``. Its number of writers may differ. Copies of slots that a
            writer overwrites meanwhile may be torn.
        firsts: for each writer, the oldest sequence that may be copied.
        taken: for each writer, the sequence below which slots are copied. The newest slots that fit into ``target`` are
            copied, the same number from each writer.
        tree: the priorities of the source's rows.
        target: its writers go on at the largest of ``taken``.
        ranks: the priorities of the target's rows.
        before_part: called before each part. What it raises ends the copy.

    Raises:
        ValueError: as `restore`.
    """
    held = (end - first for end, first in zip(taken, firsts, strict=True))
    count = max(0, min(source.slots - 1, target.slots - 1, _readable(source, taken), *held))
    part = max(1, _PART_BYTES * source.slots // max(1, contents_bytes(source.specs, source.writers * source.slots)))
    arrays = _copied(source, taken, 0, tree)
    _check(target, arrays, ranked=ranks is not None)
    for first in range(0, count, part):
        before_part()
        behind = max(0, count - first - part)
        arrays = _copied(source, [end - behind for end in taken], min(part, count - first), tree)
        _put(target, ranks, arrays, max(taken) - behind, 0)
    _begin(target, ranks, max(taken), count, arrays)
    return count


def _copied(table: Table, ends: Sequence[int], count: int, tree: Ranks | None) -> Arrays:
    """The last ``count`` slots of each writer below ``ends``."""
    places = [_indices(table, writer, ends[writer], count) for writer in range(table.writers)]
    arrays = {name: _rows(table.arrays[name], places) for name in _row_fields(table.specs)}
    # Keep the sequence, so that each row lies at the same place of the restored ring. Sampling by priority depends on
    # the places of rows.
    arrays["sequence"] = np.array(max(ends), np.int64)
    for name in _of_lane(table.specs):
        arrays[name] = np.concatenate([table.arrays[name][place] for place in places], axis=1)
    arrays |= _finals(table, places)
    if tree is not None:
        size = table.arrays["valid"][0].size
        leaves = [place[:, None] * size + np.arange(size) for place in places]
        shape = (count, *table.arrays["valid"].shape[1:])
        arrays["priority"] = np.concatenate([tree.read(own).reshape(shape) for own in leaves], axis=2)
        arrays[_LARGEST] = tree.largest()
    return arrays


def _put(table: Table, tree: Ranks | None, arrays: Arrays, end: int, dropped: int) -> None:
    """Fill the slots of each writer below sequence ``end``. The first ``dropped`` slots of ``arrays`` are left out."""
    lanes = table.arrays["valid"].shape[2]
    count = len(arrays["valid"]) - dropped
    for writer in range(table.writers):
        places = _indices(table, writer, end, count)
        own = slice(writer * lanes, (writer + 1) * lanes)
        for name in _row_fields(table.specs):
            table.arrays[name][places] = arrays[name][dropped:, :, own]
        # Older than any rollout: a successor of this writer reads the state of its lanes from the learner's record.
        table.arrays["rollout"][places] = -1
        for name in _of_lane(table.specs):
            table.arrays[name][places] = arrays[name][dropped:, own]
        _restore_finals(table, writer, arrays, dropped, places)
        if table.checksums is not None:
            for position, place in enumerate(places.tolist()):
                table.sign(place, end - count + position, sampled_parts(table, place))
        if tree is not None:
            _restore_ranks(tree, table, places, arrays["priority"][dropped:, :, own], end - count)


def _begin(table: Table, tree: Ranks | None, sequence: int, count: int, arrays: Arrays) -> None:
    """Let the writers go on after ``count`` restored slots."""
    for writer in range(table.writers):
        table.begin(writer, sequence, sequence - count)
    if tree is not None and count:
        tree.put_largest(arrays[_LARGEST])


def _check(table: Table, arrays: Arrays, *, ranked: bool) -> None:
    """Check that the arrays are ``contents`` of a table with this layout.

    Raises:
        ValueError: they are not. The text names the array.
    """
    steps, lanes = table.arrays["valid"].shape[1], table.writers * table.arrays["valid"].shape[2]
    wanted = {name: ((steps, lanes, *table.arrays[name].shape[3:]), name) for name in _row_fields(table.specs)}
    wanted |= {name: ((lanes, *table.arrays[name].shape[2:]), name) for name in _of_lane(table.specs)}
    wanted |= {name: ((), name) for name in _PLACES[1:]} | {"final_slot": ((), "final_t")}
    wanted |= {name: (table.arrays[name].shape[2:], name) for name in _final_fields(table)}
    for name, (shape, like) in wanted.items():
        dtype, found = table.arrays[like].dtype, arrays.get(name)
        if found is None or not found.ndim or found.shape[1:] != shape or found.dtype != dtype:
            has = "missing" if found is None else f"{found.dtype} {list(found.shape[1:])}"
            raise ValueError(f"its {name} is {has}, not {dtype} {list(shape)}")
        rows = "final_slot" if name.startswith("final") else "valid"
        if rows in arrays and len(found) != len(arrays[rows]):
            raise ValueError(f"its {name} has {len(found)} entries, not {len(arrays[rows])}")
    if arrays.get("sequence", np.zeros(1)).shape != () or arrays["sequence"] < len(arrays["valid"]):
        raise ValueError("its sequence is missing or too small")
    if ranked and arrays.get("priority", np.zeros(0)).shape != arrays["valid"].shape:
        raise ValueError("its rows have no priorities")
    if ranked and _LARGEST not in arrays:
        raise ValueError(f"its {_LARGEST} is missing")


def _restore_ranks(tree: Ranks, table: Table, places: Array, ranks: Array, first: int) -> None:
    """Set the priorities ``[n, T + 1, lanes]`` of the slots from sequence ``first`` on."""
    for position, place in enumerate(places):
        tree.set(int(place) * table.arrays["valid"][0].size, first + position, ranks[position].reshape(-1))


def _row_fields(specs: Sequence[ArraySpec]) -> list[str]:
    """The fields that hold ``[T + 1, lanes, ...]`` in a slot. Others may have that shape too: names tell them apart."""
    rows = next(spec.shape for spec in specs if spec.name == "valid")
    return [
        spec.name
        for spec in specs
        if spec.shape[:2] == rows
        and spec.name not in _JOINING
        and not spec.name.startswith(("final", "episode_", "lane_", "carry."))
    ]


def _of_lane(specs: Sequence[ArraySpec]) -> list[str]:
    """The fields that a slot holds once for each lane, ``[lanes, ...]``: what joins slots, and the carry."""
    return [*_JOINING, *_carry(specs)]


def _carry(specs: Sequence[ArraySpec]) -> list[str]:
    return [spec.name for spec in specs if spec.name.startswith("carry.")]


def _readable(table: Table, taken: Sequence[int]) -> int:
    """How many slots next below ``taken`` every writer still has, none of them being overwritten."""
    return max(0, min(taken[writer] - table.first(writer) for writer in range(table.writers)))


def _indices(table: Table, writer: int, end: int, count: int) -> Array:
    return np.array([table.index(writer, sequence) for sequence in range(end - count, end)], np.int64)


def _rows(values: Array, places: Sequence[Array]) -> Array:
    return np.concatenate([values[place] for place in places], axis=2)


def _finals(table: Table, places: Sequence[Array]) -> Arrays:
    """The entries of the side areas, by slot: slot, step, lane (counted over all writers) and fields."""
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
