"""Makes, maps and describes the file of a table that is too large for checkpoints. Knows no run and samples nothing.

The file holds a header, the table, the priorities of its rows, and a checksum of each slot. All processes of a run map
it, so the rows of a killed process stay. `replay.resumed` decides which rows a resume keeps.
"""

import json
import os
import shlex
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import ResourceError, RunFolderError
from penstock.memory.layout import aligned
from penstock.memory.segment import Segment, reserve
from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTrees
from penstock.types import Array, ArraySpec

__all__ = [
    "Header",
    "Rings",
    "create",
    "mapped",
    "read_header",
    "refusal",
    "reserve_checksums",
    "settle",
    "write_header",
]

_MAGIC = b"penstock replay table 1\n"
_HEADER_BYTES = 1 << 16
_PAGE = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SYSCTL = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
"""The same of macOS. Not ``kern.boottime``: it changes when the clock is set."""
_SYSCTL_LIMIT_S = 5.0


@dataclass(frozen=True)
class Rings:
    """The layout of a file: the rings of a table, and the tree of their priorities."""

    specs: tuple[ArraySpec, ...]
    """The arrays of one slot."""
    writers: int
    slots: int
    """Slots of each writer."""
    ranked: bool
    """Whether rows have priorities."""
    shards: int = 1
    """Number of shards of the writers. The priorities of each are in a tree of its own."""

    @property
    def nbytes(self) -> int:
        """Bytes of header, table and priorities."""
        return self._tree_at + (SumTrees.required(self.rows, self.shards) if self.ranked else 0)

    @property
    def file_bytes(self) -> int:
        """The size of the file: checksums come last."""
        return aligned(self.nbytes) + 8 * self.writers * self.slots

    @property
    def rows(self) -> int:
        """Flat rows of all slots of all writers, bootstrap rows included."""
        steps, lanes = self._shape
        return self.writers * self.slots * steps * lanes

    @property
    def turn_rows(self) -> int:
        """Rows with transitions in one slot of every writer together."""
        steps, lanes = self._shape
        return self.writers * (steps - 1) * lanes

    @property
    def _shape(self) -> tuple[int, ...]:
        return next(spec.shape for spec in self.specs if spec.name == "valid")

    @property
    def _tree_at(self) -> int:
        return _HEADER_BYTES + -(-Table.required(self.specs, self.writers, self.slots) // _PAGE) * _PAGE

    def trees(self, memory: Array) -> SumTrees | None:
        """The priorities over the bytes of the file; ``None`` if rows have none."""
        return SumTrees(memory[self._tree_at : self.nbytes], self.rows, self.shards) if self.ranked else None

    def table(self, memory: Array) -> Table:
        """The table over the bytes of the file."""
        held = memory[_HEADER_BYTES : self._tree_at]
        return Table(held, self.specs, self.writers, self.slots, memory[aligned(self.nbytes) :])

    def structures(self, memory: Array) -> tuple[Table, SumTrees | None]:
        """The table and the priorities over the bytes of the file."""
        return self.table(memory), self.trees(memory)


@dataclass(frozen=True)
class Header:
    """The facts in the header of a file."""

    rings: Rings
    run: str
    """A random name that the run got with its table, so that another run's file is not mistaken for it."""
    numbering: str
    """A random name of this file. Sequences can only be compared within one numbering."""
    update: int = 0
    """Update of the checkpoint that the file was made for; 0: the run began with it."""
    followed: str | None = None
    """The numbering that this checkpoint names."""
    taken: tuple[int, ...] = ()
    """For each writer: slots below this sequence belonged to the checkpoint."""
    first: tuple[int, ...] = ()
    """For each writer: the oldest of these slots."""
    left_out: int = 0
    """Rows of the checkpoint that were missing when the file was made."""
    why: str = ""
    """Why all were missing. Empty if some were found, or there is no checkpoint."""
    reranked: int = -1
    """Update of the checkpoint from which a run went on with priorities that were no longer the checkpoint's."""
    boot: str = ""
    """Id of the machine's boot when the file was last used; empty if the system does not tell it."""
    signed: bool = False
    """Each slot has a checksum. Files of earlier versions have none."""
    settled: bool = False
    """The whole file was on the disk when the run ended. If not, it is useless after a restart of the machine."""

    @property
    def whole(self) -> bool:
        """True if the file has everything that was written to it."""
        return self.settled or (self.boot != "" and self.boot == _boot())


def create(path: Path, header: Header) -> None:
    """Make an empty file and reserve its space on the disk.

    Raises:
        ResourceError: the disk has too little space.
    """
    path.unlink(missing_ok=True)
    try:
        Segment.create(header.rings.file_bytes, "replay table", path).close()
    except ResourceError as error:
        raise ResourceError(f"{error}; free space in {path.parent}, or give a smaller --capacity") from None
    write_header(path, header)


def mapped(path: Path, rings: Rings) -> Array:
    """The bytes of a file, shared by all processes that map it.

    Raises:
        ResourceError: it cannot be mapped.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError as error:
        raise ResourceError(f"cannot open replay file {path}: {error.strerror}") from None
    segment = Segment.attach(descriptor, rings.file_bytes)
    memory = segment.bytes
    # The mapping stays as long as a view of it exists.
    segment.close()
    return memory


def read_header(path: Path) -> Header:
    """Read the header of a file.

    Raises:
        RunFolderError: it is no replay file, its length differs from its header's, or it cannot be read.
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
        # A run that was killed while it added checksums may have left either length.
        sizes = {header.rings.file_bytes} | (set() if header.signed else {header.rings.nbytes})
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, OverflowError):
        raise refusal(path, "its header has been altered") from None
    if size not in sizes:
        raise refusal(path, f"it has {size:,} of {max(sizes):,} bytes")
    return header


def reserve_checksums(path: Path, header: Header) -> None:
    """Lengthen the file of an earlier version, which has no checksums.

    Raises:
        ResourceError: the disk has too little space.
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
    """Write the header to the disk, so that it survives a power cut. Sets ``boot`` to the machine's current boot.

    Raises:
        RunFolderError: it cannot be written.
    """
    rings = header.rings
    specs = [(spec.name, spec.shape, spec.dtype) for spec in rings.specs]
    facts = asdict(replace(header, boot=_boot()))
    facts["rings"] |= {"specs": specs}
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
    """Bring the whole file to the disk, once the run is over and no process writes any more.

    Raises:
        RunFolderError: the file cannot be read or written.
    """
    header = read_header(path)
    # 1. Everything goes to the disk. 2. Only then the header says so.
    write_header(path, header)
    write_header(path, replace(header, settled=True))


def refusal(path: Path, why: str) -> RunFolderError:
    """The error for a file that cannot be used: why, and what to type, in one line."""
    anew = f"rm {shlex.quote(str(path))} && penstock resume {shlex.quote(str(path.parent))}"
    return RunFolderError(f"replay file {path} cannot be used: {why}; to go on with an empty table: {anew}")


def _boot() -> str:
    """Id of the machine's current boot; empty if the system does not tell it."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        pass
    try:
        told = subprocess.run(_SYSCTL, capture_output=True, text=True, timeout=_SYSCTL_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip()
