"""Keeps a table whose shards lie with their learners: each shard in a file on its machine, for a checkpoint.

A resumed run looks for the file of a shard on the machine where the learner of this shard runs now. If the file is not
there, the shard begins empty.

- Learners are given to machines in turn, in Ray's order of machines. So on the same cluster each shard is found.
- If Ray was started anew, the machines may have another order. Then shards may not be found.
- On a shared disk the order does not matter.

Files lie in a folder that is named as the run folder. So a run that another machine goes on with under another name
(`Copy.settle`) finds none, and two runs of one name on one disk remove each other's files.

`penstock.cluster.shard_keeping` has files written while a run goes on. When a run has ended, they are written here for
its last checkpoint.
"""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.cluster.machines import Machine, answers
from penstock.cluster.ray_errors import NO_ROOM, line_of
from penstock.cluster.relay import Relay
from penstock.cluster.rings import FoundShard, News
from penstock.errors import CheckpointError, PenstockError
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import Program, Table
from penstock.replay.contents import TABLE_LIMIT, contents_bytes
from penstock.replay.shard_file import ShardMark, find_file, keep_shard
from penstock.replay.sum_tree import SumTrees
from penstock.saved_runs.checkpoints import TABLE, list_checkpoints, load_checkpoint
from penstock.saved_runs.manifest import MANIFEST, Damage, content_of, parse_manifest
from penstock.saved_runs.shard_marks import MARK_BITS, ShardName, names_in
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["ShardFiles", "shard_files"]

SHARDS = ".shards"
"""Folder beside the run folders. What is in it is no run."""
LIMIT_S = 600.0
"""How long all shards of a table up to `TABLE_LIMIT` may take to be read at the beginning of a run, or to be written at
its end. A larger table has no limit: a machine that is lost ends the wait."""

Place = Callable[[str], Machine | None]
"""Group -> the machine that is to run it; ``None``: this one."""


def shard_files(program: Program, wiring: Wiring, run: Path) -> "ShardFiles | None":
    """The files of a run's table; ``None`` if its rows are kept otherwise.

    Args:
        program: of home.
        wiring: of home.
        run: the run folder.
    """
    for edge in program.edges:
        if isinstance(edge, Table) and edge.resident:
            groups = tuple(program.node(reader).group for reader in edge.readers)
            return ShardFiles(edge, groups, wiring.table_memory(edge.name), wiring.trees(edge.name), run)
    return None


class ShardFiles:
    """The files of all shards.

    Args:
        edge: the table.
        groups: of the learner of each shard.
        table: its memory at home.
        trees: the priorities of its rows at home; ``None``: rows are not ranked.
        run: the run folder.

    Attributes:
        names: the newest file of each shard that a checkpoint may name; ``None``: there is none.
        nbytes: of the rows of all shards.
    """

    def __init__(
        self, edge: Table, groups: tuple[str, ...], table: TableMemory, trees: SumTrees | None, run: Path
    ) -> None:
        self._edge = edge
        self._groups = groups
        self._memory = table
        self._trees = trees
        self._folder = run.resolve().parent / SHARDS / run.resolve().name
        self._run = run
        self._begun: ShardName | None = None
        """The files of the checkpoint with which this launch began; ``None``: it began a new run."""
        self.names: list[ShardName | None] = [None] * edge.shards
        self.nbytes = contents_bytes(edge.arrays, edge.slots * len(edge.writers))
        self._limit_s = LIMIT_S if self.nbytes <= TABLE_LIMIT else math.inf

    def find(self, checkpoint: Path | None, place: Place, relay: Relay) -> str:
        """Let each machine read its shards, before any node runs.

        Args:
            checkpoint: the run goes on from here; ``None``: it is new.
            place: where groups run.
            relay: it notes what other machines have found.

        Returns:
            A line on what was found; empty for a run that finds all rows in its checkpoint, or is new.
        """
        if checkpoint is None:
            return ""
        saved = load_checkpoint(checkpoint)
        whole = self._begun = _name(saved.manifest)
        if TABLE in saved.manifest["files"]:
            return ""
        # Those of a run that has ended in order come first.
        named = names_in(saved.manifest, self._edge.shards)
        names = [[whole, *([] if name is None else [name])] for name in named]
        places = [place(group) for group in self._groups]
        asked = {
            shard: machine.ask("find_shard", shard, str(self._folder), names[shard])
            for shard, machine in enumerate(places)
            if machine is not None
        }
        slots: dict[int, int] = {}
        for shard, machine in enumerate(places):
            if machine is None and (file := find_file(self._folder, shard, *self._own(shard), names[shard])):
                self.names[shard], slots[shard] = file
        found: dict[Machine, dict[int, FoundShard]] = {}
        for shard, rows in answers(asked, self._limit_s).items():
            machine = places[shard]
            if rows is not None and machine is not None:
                found.setdefault(machine, {})[shard] = rows
                self.names[shard], slots[shard] = rows.file, rows.end - rows.first
        for machine, own in found.items():
            relay.remember(machine, own)
        return self._told(sum(slots.values()), whole.update)

    def keep(self, record: Arrays, place: Place, relay: Relay) -> list[str]:
        """Let each machine write its shards for the last checkpoint of the run, after all nodes at home have ended.

        Nothing is written unless this launch has ended with this checkpoint: the sequences of any other checkpoint do
        not fit the rings of this launch. The files of such a checkpoint stay as they are.

        Args:
            record: the last commit; empty if there is none.
            place: as for `find`. Of a machine that is lost, nothing is kept.
            relay: it is closed, and knows what other machines lack.

        Returns:
            A line for each shard that is not kept.
        """
        try:
            saved = load_checkpoint(list_checkpoints(self._run)[-1])
        except (CheckpointError, IndexError):
            return []
        name = _name(saved.manifest)
        if name == self._begun or not record or int(record["update"]) != name.update:
            return []
        if all(one is not None and one.update == name.update for one in names_in(saved.manifest, self._edge.shards)):
            # The checkpoint was written after its files.
            return []
        taken = saved.arrays["taken"].tolist()

        def rest(shard: int, machine: Machine) -> Iterator[News]:
            return relay.rest(machine, [shard], taken)

        return self.write(name, taken, place, relay, rest=rest, limit_s=self._limit_s)

    def write(
        self,
        name: ShardName,
        taken: Sequence[int],
        place: Place,
        relay: Relay,
        *,
        rest: Callable[[int, Machine], Iterator[News]],
        limit_s: float,
        over: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """Let each machine write its shards to files, all at the same time, and note their names.

        The files that the last checkpoint names stay, and so do those that the next one may name.

        Args:
            name: of the new files.
            taken: for each writer, the sequence below which slots belong to the checkpoint.
            place: as for `find`.
            relay: it knows which machines are lost.
            rest: (shard, its machine) -> the slots that this machine lacks and that no goal will bring any more.
            limit_s: how long to wait for other machines, in seconds.
            over: once it is true, the call waits for no machine, and gives up the file that this machine writes.

        Returns:
            A line for each shard that was not written. `names` keeps the older file of such a shard.
        """
        share, places = len(taken) // self._edge.shards, [place(group) for group in self._groups]
        marks = [
            ShardMark(name.numbering, name.update, tuple(taken[shard * share : (shard + 1) * share]), stay)
            for shard, stay in enumerate(self._staying())
        ]
        why, asked = [""] * self._edge.shards, dict[int, Any]()
        for shard, machine in enumerate(places):
            if machine is not None and machine in relay.lost():
                why[shard] = f"{machine.name} was lost"
            elif machine is not None:
                path, lacking = str(self._folder / name.file_of(shard)), list(rest(shard, machine))
                try:
                    asked[shard] = machine.ask("keep_shard", shard, path, marks[shard], lacking)
                except NO_ROOM as error:
                    why[shard] = f"the object store of this machine has no room: {line_of(error)}"
        for shard, machine in enumerate(places):
            if machine is None:
                try:
                    keep_shard(self._folder / name.file_of(shard), *self._own(shard), marks[shard], over)
                except (PenstockError, OSError) as error:
                    why[shard] = str(error)
        told = answers(asked, limit_s, over)
        for shard in asked:
            why[shard] = told.get(shard, "its machine does not answer")
        self.names = [old if line else name for old, line in zip(self.names, why, strict=True)]
        return [f"shard {shard} of the replay table is not kept: {line}" for shard, line in enumerate(why) if line]

    def _staying(self) -> list[frozenset[str]]:
        """Of each shard the files of the last checkpoint, and those that the next one may name."""
        named: list[ShardName | None] = [None] * self._edge.shards
        whole: list[ShardName | None] = [None] * self._edge.shards
        with contextlib.suppress(Damage, IndexError):
            # IndexError: there is no checkpoint yet.
            last = parse_manifest(content_of(list_checkpoints(self._run)[-1] / MANIFEST))
            named = names_in(last, self._edge.shards)
            # A run that ended in order with this checkpoint wrote these after it.
            whole = [_name(last)] * self._edge.shards
        return [
            frozenset(one.file_of(shard) for one in names if one is not None)
            for shard, names in enumerate(zip(named, whole, self.names, strict=True))
        ]

    def _own(self, shard: int) -> tuple[TableMemory, Any]:
        """A shard at home, and the priorities of its rows."""
        tree = None if self._trees is None else self._trees.shard(shard)
        return self._memory.shard(shard, self._edge.shards), tree

    def _told(self, slots: int, update: int) -> str:
        """A line on what was found.

        Args:
            slots: of each writer, over all shards.
            update: of the checkpoint.
        """
        found = [name for name in self.names if name is not None]
        if not found:
            return "not bit-exact: the replay table begins empty (no file of its shards belongs to the checkpoint)"
        rows, lanes = map(int, self._memory.arrays["valid"].shape[1:])
        count = slots * (len(self._edge.writers) // self._edge.shards) * (rows - 1) * lanes
        oldest = min(name.update for name in found)
        later = "" if oldest == update else f"; rows that came after update {oldest} are missing"
        if len(found) == self._edge.shards:
            where = f"all {len(found)} shards of the replay table were found, with {count:,} rows"
            return f"not bit-exact: {where}{later}" if later else where
        where = f"of {self._edge.shards} shards of the replay table {len(found)} were found, with {count:,} rows"
        return f"not bit-exact: {where}; the others begin empty{later}"


def _name(manifest: Mapping[str, Any]) -> ShardName:
    """The name of files that are written after this checkpoint. Its mark comes from the hashes of the checkpoint.

    So no other checkpoint has the same mark.
    """
    hashes = hashlib.sha256(str(sorted(manifest["files"].items())).encode()).digest()
    return ShardName(int(manifest["update"]), int.from_bytes(hashes) >> (8 * len(hashes) - MARK_BITS))
