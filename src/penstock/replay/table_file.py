"""The file of a table that is too large for checkpoints: made, mapped, described. Knows no run and draws nothing.

A header, then the bytes of the table, of the priorities beside it, and a checksum of each slot. All processes of a run
map it, so what one had written when it was killed is there. `replay.resumed` says what of it a resume can go on with.
"""

import json
import os
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import ResourceError, RunFolderError
from penstock.memory.layout import aligned
from penstock.memory.segment import Segment, reserve
from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, ArraySpec

__all__ = [
    "Header",
    "Rings",
    "create",
    "make_room_for_checksums",
    "mapped",
    "read_header",
    "refusal",
    "settle",
    "write_header",
]

_MAGIC = b"penstock replay table 1\n"
_HEADER_BYTES = 1 << 16
_PAGE = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Rings:
    """What lies in a file: the rings of a table, and the tree of priorities beside it."""

    specs: tuple[ArraySpec, ...]
    """The arrays of one slot."""
    writers: int
    slots: int
    """Of each writer."""
    ranked: bool
    """Whether rows have priorities."""

    @property
    def nbytes(self) -> int:
        """What the table and its priorities take, header included."""
        return self._tree_at + (SumTree.required(self.rows) if self.ranked else 0)

    @property
    def file_bytes(self) -> int:
        """The size of the file: checksums come last."""
        return aligned(self.nbytes) + 8 * self.writers * self.slots

    @property
    def rows(self) -> int:
        """Flat rows of all slots of all writers, those at the end of a slot among them."""
        steps, lanes = self._shape
        return self.writers * self.slots * steps * lanes

    @property
    def turn_rows(self) -> int:
        """Rows that carry transitions in one slot of every writer."""
        steps, lanes = self._shape
        return self.writers * (steps - 1) * lanes

    @property
    def _shape(self) -> tuple[int, ...]:
        return next(spec.shape for spec in self.specs if spec.name == "valid")

    @property
    def _tree_at(self) -> int:
        return _HEADER_BYTES + -(-Table.required(self.specs, self.writers, self.slots) // _PAGE) * _PAGE

    def tree_bytes(self, memory: Array) -> Array | None:
        """The bytes of the tree in those of the file."""
        return memory[self._tree_at : self.nbytes] if self.ranked else None

    def table(self, memory: Array) -> Table:
        """The table over the bytes of the file."""
        held = memory[_HEADER_BYTES : self._tree_at]
        return Table(held, self.specs, self.writers, self.slots, memory[aligned(self.nbytes) :])

    def structures(self, memory: Array) -> tuple[Table, SumTree | None]:
        """The table, and the tree, over the bytes of the file."""
        tree = self.tree_bytes(memory)
        return self.table(memory), None if tree is None else SumTree(tree, self.rows)


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    rings: Rings
    run: str
    """Made up when the run got its table: no other run's file is taken for it."""
    numbering: str
    """Made up with each file: sequences of one say nothing of those of another."""
    update: int = 0
    """Of the checkpoint that it was laid out for; 0: the run began with it."""
    followed: str | None = None
    """The numbering that this checkpoint named."""
    taken: tuple[int, ...] = ()
    """For each writer, the sequence below which its slots were this checkpoint's."""
    first: tuple[int, ...] = ()
    """For each writer, the oldest of them."""
    left_out: int = 0
    """Rows of this checkpoint that were not there when it was laid out."""
    why: str = ""
    """Why none was; empty where some were, or there is no checkpoint."""
    reranked: int = -1
    """Update of the checkpoint that a run went on from when priorities were no longer this checkpoint's."""
    boot: str = ""
    """The start of the machine during which it was used last."""
    signed: bool = False
    """Each slot has a checksum. Files of earlier versions have none."""
    settled: bool = False
    """All of it was on the disk when the run ended. If not, it is worth nothing once the machine was restarted."""

    @property
    def whole(self) -> bool:
        """Whether all that was written is there."""
        return self.settled or self.boot == _boot()


def create(path: Path, header: Header) -> None:
    """Make a file with nothing in it, whose room on the disk is reserved.

    Raises:
        ResourceError: there is none.
    """
    path.unlink(missing_ok=True)
    try:
        Segment.create(header.rings.file_bytes, "replay table", path).close()
    except ResourceError as error:
        raise ResourceError(f"{error}; make room in {path.parent}, or give a smaller --capacity") from None
    write_header(path, header)


def mapped(path: Path, rings: Rings) -> Array:
    """The bytes of a file, shared by all who map them.

    Raises:
        ResourceError: it cannot be mapped.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError as error:
        raise ResourceError(f"cannot open replay file {path}: {error.strerror}") from None
    segment = Segment.attach(descriptor, rings.file_bytes)
    memory = segment.bytes
    # The mapping stays for as long as somebody views it.
    segment.close()
    return memory


def read_header(path: Path) -> Header:
    """What a file says of itself.

    Raises:
        RunFolderError: it is no such file, or not as long as it says, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            head, size = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise refusal(path, f"it cannot be read: {error.strerror or error}") from None
    if not head.startswith(_MAGIC):
        raise refusal(path, "it is no replay table, or one of another version of penstock")
    try:
        facts: dict[str, Any] = json.loads(head.removeprefix(_MAGIC).rstrip(b"\0"))
        rings = facts.pop("rings")
        specs = tuple(ArraySpec(name, tuple(shape), dtype) for name, shape, dtype in rings.pop("specs"))
        facts |= {name: tuple(map(int, facts[name])) for name in ("taken", "first")}
        header = Header(rings=Rings(specs, **rings), **facts)
        # A run that was killed while it added checksums has made room for them.
        sizes = {header.rings.file_bytes} | (set() if header.signed else {header.rings.nbytes})
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, OverflowError):
        raise refusal(path, "its header has been altered") from None
    if size not in sizes:
        raise refusal(path, f"it has {size:,} of {max(sizes):,} bytes")
    return header


def make_room_for_checksums(path: Path, header: Header) -> None:
    """Lengthen the file of an earlier version, which has none.

    Raises:
        ResourceError: the disk has no room.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, header.rings.file_bytes)
            reserve(descriptor, header.rings.file_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ResourceError(f"replay file {path} has no space on its disk for checksums: {error.strerror}") from None


def write_header(path: Path, header: Header) -> None:
    """Let the file say this of itself, from now on and after a power cut; the machine's start is entered.

    Raises:
        RunFolderError: it cannot be written.
    """
    rings = header.rings
    specs = [(spec.name, spec.shape, spec.dtype) for spec in rings.specs]
    facts = asdict(replace(header, boot=_boot()))
    facts["rings"] = {"specs": specs, "writers": rings.writers, "slots": rings.slots, "ranked": rings.ranked}
    content = _MAGIC + json.dumps(facts, separators=(",", ":")).encode()
    if len(content) > _HEADER_BYTES:
        raise RunFolderError(f"replay file {path} cannot be written: a row of {len(specs)} fields is too long for it")
    try:
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.pwrite(descriptor, content.ljust(_HEADER_BYTES, b"\0"), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunFolderError(f"replay file {path} cannot be written: {error.strerror or error}") from None


def settle(path: Path) -> None:
    """The run is over, and nobody writes any more: see that all of the file is on the disk.

    Raises:
        RunFolderError: it cannot be read, or written.
    """
    header = read_header(path)
    # Twice to the disk: it says that the rest is there only once it is.
    write_header(path, header)
    write_header(path, replace(header, settled=True))


def refusal(path: Path, why: str) -> RunFolderError:
    """A file that cannot be used, why, and what to type, in one line."""
    anew = f"rm {shlex.quote(str(path))} && penstock resume {shlex.quote(str(path.parent))}"
    return RunFolderError(f"replay file {path} cannot be used: {why}; to go on with an empty table: {anew}")


def _boot() -> str:
    """Which start of the machine this is; empty where it does not say so."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
