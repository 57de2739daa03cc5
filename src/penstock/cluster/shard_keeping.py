"""Has the shards of a table written to files while a run goes on, before the checkpoint to which they belong.

It is a thread of the launcher:

1. The checkpointer takes a checkpoint that is due, asks for files at one board, and waits.
2. The thread lets each machine write its shards, all at the same time.
3. It shows at another board the newest file of each shard. The checkpointer writes the checkpoint with their names.

So a checkpoint names no file that is not whole on its disk. A shard that could not be written keeps the name of the
file before, whose rows are older. A checkpoint that need not be kept names the files that are there. No checkpoint
waits for a large table: the first one after its files names them.
"""

import functools
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from penstock.cluster.cut import RELAY
from penstock.cluster.launcher_thread import LauncherThread
from penstock.cluster.machines import Machine
from penstock.cluster.relay import Relay
from penstock.cluster.rings import News
from penstock.cluster.shard_files import Place, ShardFiles
from penstock.cluster.troubles import Troubles, write_down
from penstock.program.check import check
from penstock.program.graph import Board, Program, Table
from penstock.replay.contents import TABLE_LIMIT
from penstock.saved_runs.shard_marks import ASKED, KEPT, ShardName, asked_specs, kept_arrays, kept_specs
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["ShardKeeping", "with_shard_boards"]

LOOK_S = 0.02
REST = 9.0
"""A table over `TABLE_LIMIT` is not written again before so many times as long as writing it took. So it takes at most
a tenth of the time."""
PATIENCE = 0.3
"""Share of ``--stall_timeout`` for which a checkpoint waits. If a disk hangs, the run goes on without this file."""
CHECKPOINTER = "checkpointer"


def with_shard_boards(program: Program) -> Program:
    """The program of home with the two boards, if its table lies with its learners."""
    for edge in program.edges:
        if isinstance(edge, Table) and edge.resident:
            node = program.node(CHECKPOINTER)
            asking = program.with_node(replace(node, settings=replace(node.settings, shards=edge.shards)))
            boards = (
                Board(ASKED, CHECKPOINTER, (RELAY,), asked_specs(len(edge.writers))),
                Board(KEPT, RELAY, (CHECKPOINTER,), kept_specs(edge.shards)),
            )
            return check(replace(asking, edges=(*program.edges, *boards)))
    return program


class ShardKeeping(LauncherThread):
    """The thread. At the end of its block, the run has ended: hosts that still write are not waited for.

    Args:
        files: of the run's table, after what was found of them.
        wiring: of home, with the boards.
        place: where groups run.
        relay: it knows which machines are lost.
        deaths: the run's log of deaths; it gets a line for each shard that could not be written.
        stall_limit_s: seconds without progress after which the run ends.
    """

    def __init__(
        self,
        files: ShardFiles,
        wiring: Wiring,
        place: Place,
        relay: Relay,
        deaths: Path | None,
        *,
        stall_limit_s: float,
    ) -> None:
        super().__init__("shard keeping")
        self._files = files
        self._wiring = wiring
        self._place = place
        self._relay = relay
        self._deaths = deaths
        # A large table has no limit, because no checkpoint waits for it. If a machine falls silent, the relay gives it
        # up, which ends the wait.
        self._limit_s = PATIENCE * stall_limit_s if files.nbytes <= TABLE_LIMIT else math.inf
        self._asked, self._kept = wiring.board(ASKED), wiring.board(KEPT)
        self._heard = self._mark = 0
        """The number and the mark of the last question."""
        self._shown: list[ShardName | None] = []
        """The files that the checkpointer knows."""
        self._last: list[str] = []
        """What could not be written the last time. It is told of once."""
        self._next = 0.0
        """When a large table may be written again."""
        self._writer: threading.Thread | None = None
        """Has a large table written."""
        self._troubles = Troubles(deaths, "writing the shards of the replay table")

    def __enter__(self) -> Self:
        self._answer()
        return super().__enter__()

    def _ended(self, error: BaseException | None) -> None:  # noqa: ARG002 - as `LauncherThread`
        if self._writer is not None:
            self._writer.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._troubles.survived(self.turn)

    def turn(self) -> None:
        """Answer the checkpointer if it has asked, and show it new files."""
        number = self._asked.publication()
        if number != self._heard:
            asked: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self._asked.specs}
            self._asked.read(asked)
            self._heard, self._mark = number, int(asked["mark"])
            try:
                self._begin(ShardName(int(asked["update"]), self._mark), asked["taken"].tolist())
            finally:
                # The checkpoint is worth more than the rows.
                self._answer()
        elif self._shown != self._files.names:
            self._answer()

    def _begin(self, name: ShardName, taken: list[int]) -> None:
        """Have all shards written, or only begin with that if the table is large."""
        if self._files.nbytes <= TABLE_LIMIT:
            self._write(name, taken)
        elif (self._writer is None or not self._writer.is_alive()) and time.monotonic() >= self._next:
            write = functools.partial(self._troubles.survived, functools.partial(self._write, name, taken))
            self._writer = threading.Thread(target=write, name="shard writing")
            self._writer.start()

    def _write(self, name: ShardName, taken: list[int]) -> None:
        began = time.monotonic()
        limit_s, over = self._limit_s, self._over.is_set
        missing = self._files.write(name, taken, self._place, self._relay, rest=_nothing, limit_s=limit_s, over=over)
        # At the end of the run nobody waits for files.
        if missing != self._last and not over():
            self._last = missing
            write_down(self._deaths, missing)
        ended = time.monotonic()
        self._next = ended + REST * (ended - began)

    def _answer(self) -> None:
        """Show the newest files, and that the last question is answered."""
        # Another list is put in its place when files were written.
        self._shown = self._files.names
        self._kept.publish(kept_arrays(self._shown, self._mark), max(0, self._kept.version()) + 1)
        for bell in self._wiring.bells_of((CHECKPOINTER,), RELAY):
            self._wiring.bells.ring(bell)


def _nothing(shard: int, machine: Machine) -> Iterator[News]:  # noqa: ARG001 - as `ShardFiles.write` takes it
    """Slots that are on their way come with the next goal."""
    return iter(())
