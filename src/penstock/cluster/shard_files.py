"""Keeps a table whose shards lie with their learners when a run ends in order: each shard in a file where it lies.

A resumed run finds the files of its checkpoint on the machines where the learners of these shards run now. Learners run
in turn on the machines that are there, so on the same cluster each finds its own; on a shared disk in any case. A shard
that is not found begins empty. A run that was killed, or that ends without a new checkpoint, leaves the files as they
are.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.cluster.machines import Machine, answers
from penstock.cluster.relay import Relay
from penstock.cluster.rings import FoundShard
from penstock.errors import CheckpointError, PenstockError
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import Program, Table
from penstock.replay.shard_file import ShardMark, find_shard, keep_shard
from penstock.replay.sum_tree import SumTrees
from penstock.saved_runs.checkpoints import TABLE, Checkpoint, list_checkpoints, load_checkpoint
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["ShardFiles", "shard_files"]

SHARDS = ".shards"
"""Folder beside the run folders. What is in it is no run."""
LIMIT_S = 600.0
"""How long reading or writing all shards may take."""


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
    """

    def __init__(
        self, edge: Table, groups: tuple[str, ...], table: TableMemory, trees: SumTrees | None, run: Path
    ) -> None:
        self._edge = edge
        self._groups = groups
        self._memory = table
        self._trees = trees
        self._run = run
        self._begun: str | None = None
        """The token of the checkpoint with which this launch began; ``None``: it began a new run."""

    def find(self, checkpoint: Path | None, place: Callable[[str], Machine | None], relay: Relay) -> str:
        """Let each machine read its shards, before any node runs.

        Args:
            checkpoint: the run goes on from here; ``None``: it is new.
            place: the machine that is to run a group; ``None``: this one.
            relay: it notes what other machines have found.

        Returns:
            A line on what was found; empty for a run that finds all rows in its checkpoint, or is new.
        """
        if checkpoint is None:
            return ""
        saved = load_checkpoint(checkpoint)
        token = self._begun = _token(saved)
        if TABLE in saved.manifest["files"]:
            return ""
        places = [place(group) for group in self._groups]
        asked = {
            shard: machine.ask("find_shard", shard, str(self._path(shard)), token)
            for shard, machine in enumerate(places)
            if machine is not None
        }
        slots = [
            find_shard(self._path(shard), *self._own(shard), token)
            for shard, machine in enumerate(places)
            if machine is None
        ]
        found: dict[Machine, dict[int, FoundShard]] = {}
        for shard, rows in answers(asked, LIMIT_S).items():
            machine = places[shard]
            if rows is not None and machine is not None:
                found.setdefault(machine, {})[shard] = rows
                slots.append(rows.end - rows.first)
        for machine, own in found.items():
            relay.remember(machine, own)
        return self._told([count for count in slots if count])

    def keep(self, record: Arrays, place: Callable[[str], Machine | None], relay: Relay) -> list[str]:
        """Let each machine write its shards for the last checkpoint of the run, after all nodes at home have ended.

        Only the checkpoint with which this launch ended counts slots as its rings do. The files of another one stay.

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
        token, update = _token(saved), int(saved.manifest["update"])
        if token == self._begun or not record or int(record["update"]) != update:
            return []
        taken = saved.arrays["taken"].tolist()
        share, places = len(taken) // self._edge.shards, [place(group) for group in self._groups]
        marks = [
            ShardMark(token, update, tuple(taken[shard * share : (shard + 1) * share]))
            for shard in range(self._edge.shards)
        ]
        why, asked = [""] * self._edge.shards, dict[int, Any]()
        for shard, machine in enumerate(places):
            if machine is not None and machine in relay.lost():
                why[shard] = f"{machine.name} was lost"
            elif machine is not None:
                rest = list(relay.rest(machine, [shard], taken))
                asked[shard] = machine.ask("keep_shard", shard, str(self._path(shard)), marks[shard], rest)
        for shard, machine in enumerate(places):
            if machine is None:
                try:
                    keep_shard(self._path(shard), *self._own(shard), marks[shard])
                except (PenstockError, OSError) as error:
                    why[shard] = str(error)
        told = answers(asked, LIMIT_S)
        for shard in asked:
            why[shard] = told.get(shard, "its machine does not answer")
        return [f"shard {shard} of the replay table is not kept: {line}" for shard, line in enumerate(why) if line]

    def _own(self, shard: int) -> tuple[TableMemory, Any]:
        """A shard at home, and the priorities of its rows."""
        tree = None if self._trees is None else self._trees.shard(shard)
        return self._memory.shard(shard, self._edge.shards), tree

    def _path(self, shard: int) -> Path:
        run = self._run.resolve()
        return run.parent / SHARDS / run.name / f"shard-{shard}.table"

    def _told(self, slots: Sequence[int]) -> str:
        rows, lanes = map(int, self._memory.arrays["valid"].shape[1:])
        count = sum(slots) * (len(self._edge.writers) // self._edge.shards) * (rows - 1) * lanes
        if len(slots) == self._edge.shards:
            return f"all {len(slots)} shards of the replay table were found, with {count:,} rows"
        if not slots:
            return "not bit-exact: the replay table begins empty (no file of its shards belongs to the checkpoint)"
        where = f"of {self._edge.shards} shards of the replay table {len(slots)} were found, with {count:,} rows"
        return f"not bit-exact: {where}; the others begin empty"


def _token(saved: Checkpoint) -> str:
    """What only this checkpoint has: the hashes of its files."""
    return str(sorted(saved.manifest["files"].items()))
