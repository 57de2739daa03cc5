"""CheckpointerNode: writes the learner's records into the run folder, each whole or not at all.

So the learner does not wait for the disk. The node also removes older checkpoints, asks for the files of shards, and
draws histograms. Of the arrays it knows only those that say how far the run has come.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.metrics.histograms import Histograms, Part, histogram
from penstock.metrics.jsonl import GrowingEvaluations
from penstock.metrics.report import Report
from penstock.nodes.contract import Ports
from penstock.replay.contents import contents
from penstock.replay.resumed import MARK, marked
from penstock.saved_runs.best import prune_checkpoints
from penstock.saved_runs.checkpoints import is_saved, save_checkpoint
from penstock.saved_runs.durable import sweep
from penstock.saved_runs.pasts import without_room
from penstock.saved_runs.shard_marks import ASKED, KEPT, MARK_BITS, NAMED, kept_specs, told
from penstock.types import Arrays

__all__ = ["CheckpointerNode", "CheckpointerSettings"]

_TOLD = ("evaluation_asked", "passing")
"""Arrays of a slot that go into the manifest, and not into the state."""


@dataclass(frozen=True)
class CheckpointerSettings:
    """Where checkpoints go, how many are kept, and the facts in every manifest."""

    folder: Path
    keep: int
    keep_every: int
    """Checkpoints whose update is a multiple of this are kept as well; 0: none for that reason."""
    manifest: dict[str, Any]
    """Facts that do not change during the run: environment, algorithm, backend, ..."""
    write_limit_s: float
    table: str | None = None
    """The table that the learner samples. Its content is written with each checkpoint."""
    table_file: Path | None = None
    """The file of the table. If there is one, a checkpoint holds only facts about it, not the table's content."""
    shards: int = 0
    """Shards of a table whose rows lie with their learners. A checkpoint names a file of each. 0: there are none."""
    parts: tuple[Part, ...] = ()
    """Parts of the arrays whose histograms the monitor gets with each checkpoint, by shared object ``histograms``."""


class CheckpointerNode:
    """Writes stream ``checkpoints`` to the run folder.

    If the shards of a table lie with their learners, each checkpoint names a file of each shard:

    - A checkpoint that is to be kept: first this node has the shards written. The checkpoint names the new files.
    - A checkpoint that need not be kept, and the last one: it names the files that exist already. The shards are
      written once more when the run has ended.
    - A checkpoint that is on the disk already: it stays as it is, and so do the names of its files.
    """

    def __init__(self, settings: CheckpointerSettings) -> None:
        self._settings = settings

    def open(self, ports: Ports) -> None:
        """Take the reading end."""
        self._ports = ports
        if ports.former:
            # An earlier life may have died while it removed a checkpoint. Nobody would write that one again.
            with ports.busy("remove what was left", self._settings.write_limit_s):
                sweep(self._settings.folder / "checkpoints")
        self._checkpoints = ports.stream_reader("checkpoints")
        self._evaluations = GrowingEvaluations(self._settings.folder)
        self._histograms: deque[Histograms] | None = None
        if self._settings.parts:
            self._histograms = ports.shared_object("histograms", deque)
        name = self._settings.table
        self._table = None if name is None else ports.table(name)
        self._ranks = None if name is None else ports.priorities(name)
        self._files = _ShardFiles(ports, self._settings.shards) if self._settings.shards else None
        self._held: int | None = None
        """The slot of the checkpoint that waits for files of shards."""

    def ready(self) -> bool:
        """True if a checkpoint is waiting, and nothing is missing for it."""
        if self._held is not None and self._files is not None:
            return self._files.answered() or self._ports.stopping()
        return self._checkpoints.ready() > 0

    def step(self) -> None:
        """Write one checkpoint, then delete those that need not be kept. Or ask for the files that it is to name."""
        index = self._checkpoints.take() if self._held is None else self._held
        if index is None:
            return
        settings, slot = self._settings, self._checkpoints.slot(index)
        if self._files is not None and self._held is None and self._needs_files(slot):
            self._files.ask(slot)
            self._held = index
            return
        self._held = None
        with self._ports.busy("write a checkpoint", settings.write_limit_s):
            facts = self._progress(slot)
            count = min(int(slot["episodes"]), len(slot["returns"]))
            facts["return_mean"] = float(slot["returns"][-count:].mean()) if count else None
            facts |= {name: bool(slot[name]) for name in _TOLD}
            if self._table is not None and settings.table_file is not None:
                facts[MARK] = marked(settings.table_file, self._table)
            if self._files is not None:
                facts[NAMED] = told(self._files.kept())
            save_checkpoint(settings.folder, _saved_arrays(slot), facts, self._contents(slot))
            prune_checkpoints(settings.folder, settings.keep, settings.keep_every, self._evaluations.now())
            if self._histograms is not None:
                self._histograms.append(_spread(slot, settings.parts))
        self._ports.count("checkpoints")
        self._checkpoints.release(index)

    def close(self) -> None:
        """Nothing to free."""

    def _needs_files(self, slot: Arrays) -> bool:
        """Whether the shards are to be written before this checkpoint.

        A learner that takes over, or resumes, hands over a checkpoint that may be on the disk. It names the files that
        were written for it.
        """
        if slot["passing"] or self._ports.stopping():
            return False
        with self._ports.busy("look for a checkpoint", self._settings.write_limit_s):
            return not is_saved(self._settings.folder, self._progress(slot))

    def _progress(self, slot: Arrays) -> dict[str, Any]:
        """The facts that do not change during the run, and how far it has come."""
        facts = {**self._settings.manifest, "update": int(slot["update"]), "steps": int(slot["steps"])}
        if "applied" in slot:
            facts["gradient_steps"] = int(slot["applied"])
        return facts

    def _contents(self, slot: Arrays) -> Arrays | None:
        """The slots that the learner had taken note of by this checkpoint. ``None``: they stay in the table's file."""
        if self._table is None or self._settings.table_file is not None:
            return None
        return contents(self._table, slot["taken"].tolist(), self._ranks)


class _ShardFiles:
    """The files of shards that lie with their learners.

    Args:
        ports: of the checkpointer.
        shards: how many there are.
    """

    def __init__(self, ports: Ports, shards: int) -> None:
        self._asked, self._kept = ports.board_writer(ASKED), ports.board_reader(KEPT)
        self._arrays: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in kept_specs(shards)}
        self._mark = 0

    def ask(self, slot: Arrays) -> None:
        """Have all shards written for this checkpoint."""
        self._mark = secrets.randbits(MARK_BITS)
        asked = {name: slot[name].astype(np.int64) for name in ("update", "taken")}
        self._asked.publish({**asked, "mark": np.array(self._mark, np.int64)}, int(slot["update"]))

    def answered(self) -> bool:
        """True once the request of `ask` is answered. If writing a shard has failed, its older file is still named."""
        return int(self.kept()["answered"]) == self._mark

    def kept(self) -> Arrays:
        """The newest file of each shard."""
        self._kept.read(self._arrays)
        return self._arrays


def _spread(slot: Arrays, parts: Sequence[Part]) -> Histograms:
    """How the numbers of each part are spread. Leaves out parts without a finite number."""
    at = Report(int(slot["update"]), int(slot["steps"]), float(slot["elapsed_s"]), {})
    found = {part.name: histogram(slot[part.array].ravel()[part.first : part.first + part.size]) for part in parts}
    return Histograms(at, {name: one for name, one in found.items() if one is not None})


def _saved_arrays(slot: Arrays) -> Arrays:
    """The arrays that continue a run, without unused space."""
    return without_room({name: values for name, values in slot.items() if name not in _TOLD})
