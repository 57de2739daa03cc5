"""A copy of a run folder on another machine: what it lacks, and how it is kept there. Knows no cluster.

The copy has the run's config, its origin, its logs, those for TensorBoard too, its code, its checkpoints and its pins.
It lacks the file of a replay table, and what a resumed run makes anew or removes, such as a trace.
"""

import contextlib
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import CheckpointError
from penstock.metrics.tensorboard import EVENTS
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.durable import PARTIAL, remove_folder, sweep
from penstock.saved_runs.pins import pin_path, pinned
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.versions import ORIGIN

__all__ = ["PIECE", "Copy", "Delivery", "Original", "Piece"]

PIECE = 4 << 20
"""A delivery has so many bytes of logs at most, and so many of a checkpoint. So it arrives soon."""
SMALL, SMALL_PIECE = 300_000, 60_000
"""Of a checkpoint of up to 300 KB a delivery has 60 KB. Ray sends up to 100 KB within the call. More would go by way of
object stores, over further connections, each of which may take some seconds after a cut until it sends again."""
COPIES = ".copies"
"""Folder beside the run folders. What is in it is no run yet."""


class Piece(NamedTuple):
    """Bytes of a file."""

    path: str
    """Below the run folder."""
    at: int
    """The place of the first byte. The copy drops what it has from there on."""
    content: bytes


class Delivery(NamedTuple):
    """What the copy is to take at once."""

    pieces: tuple[Piece, ...]
    listed: tuple[str, ...]
    """The checkpoints of the run folder."""
    pins: frozenset[str]
    """The checkpoints that are pinned there."""
    complete: str
    """The checkpoint of which these are the last pieces; empty: none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return _nbytes(self.pieces)


class Original:
    """A run folder, and what a copy of it has.

    Args:
        folder: of the run, which may be training.

    Attributes:
        behind: the copy lacks more than the last delivery has: other checkpoints, the rest of one, long logs.
        checkpoint_bytes: size of the last checkpoint that was sent; 0: none was.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._sent: dict[str, tuple[int, int]] = {}
        """File that only grows -> its number on the disk, and how many of its bytes the copy has."""
        self._sending = ""
        self._sent_bytes = 0
        """Of the checkpoint that is under way."""
        self._parts: Iterator[tuple[tuple[Piece, ...], bool]] = iter(())
        self._unsent_code = sorted(path for path in folder.code.rglob("*") if path.is_file())
        """Of its files, those that are not sent whole yet. A launch writes its code before it trains."""
        self.behind = True
        self.checkpoint_bytes = 0

    def next(self, held: Collection[str]) -> Delivery:
        """The next delivery: new bytes of files that grow, and the next part of a checkpoint.

        This is the newest checkpoint that the copy lacks. Once it is begun, it is sent to its end, even if newer ones
        appear.

        Args:
            held: the checkpoints that the copy has.
        """
        folder = self._folder
        pins = pinned(folder.path)
        listed = tuple(path.name for path in list_checkpoints(folder.path))
        grown = self._all_grown()
        if not self._sending:
            self._sending = next((name for name in reversed(listed) if name not in held), "")
            self._parts = _parts_of(folder.checkpoints / self._sending) if self._sending else iter(())
        complete = ""
        part, is_last = self._next_part()
        self._sent_bytes += _nbytes(part)
        if is_last:
            complete, self.checkpoint_bytes = self._sending, self._sent_bytes
            self._sending, self._sent_bytes = "", 0
        delivery = Delivery((*grown, *part), listed, pins, complete)
        lacking = set(listed).difference(held, [complete])
        self.behind = bool(lacking or self._sending) or delivery.nbytes >= PIECE
        return delivery

    def _next_part(self) -> tuple[tuple[Piece, ...], bool]:
        """The next pieces of the checkpoint that is under way, and whether they are its last ones."""
        try:
            return next(self._parts, ((), False))
        except OSError:
            # It was removed before it was opened: newer ones take its place.
            self._sending, self._sent_bytes = "", 0
            return (), False

    def _all_grown(self) -> list[Piece]:
        """What files other than checkpoints have grown by. All together have at most `PIECE` bytes."""
        folder = self._folder
        events = sorted(folder.path.glob(f"{EVENTS}*"))
        logs = (folder.metrics_path, folder.log_path, folder.launches_path, folder.deaths, *events)
        pieces: list[Piece] = []
        room = PIECE
        for path in (folder.config_path, folder.path / ORIGIN, *logs):
            pieces += self._grown(path, room)
            room = PIECE - _nbytes(pieces)
        while self._unsent_code and room > 0:
            found = list(self._grown(self._unsent_code[0], room))
            pieces += found
            room -= _nbytes(found)
            if room > 0:
                del self._unsent_code[0]
        return pieces

    def _grown(self, path: Path, most: int) -> Iterator[Piece]:
        """The next bytes, ``most`` at most, of a file that grows, or that was replaced by another of its name."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            name = path.relative_to(self._folder.path).as_posix()
            number, had = os.fstat(file.fileno()).st_ino, self._sent.get(name, (-1, 0))
            at = had[1] if had[0] == number else 0
            file.seek(at)
            content = file.read(most)
            if content or had[0] != number:
                self._sent[name] = number, at + len(content)
                yield Piece(name, at, content)


def _nbytes(pieces: Iterable[Piece]) -> int:
    return sum(len(piece.content) for piece in pieces)


def _parts_of(checkpoint: Path) -> Iterator[tuple[tuple[Piece, ...], bool]]:
    """The bytes of a checkpoint in order, in parts for one delivery, and with each part whether it is the last."""
    inside = f"checkpoints/{checkpoint.name}{PARTIAL}"
    with contextlib.ExitStack() as opened:
        # All are opened first: so they are read to their end, although the run may remove the checkpoint meanwhile.
        # Otherwise none would ever arrive over a slow link.
        files = [(path.name, opened.enter_context(path.open("rb"))) for path in sorted(checkpoint.iterdir())]
        most = SMALL_PIECE if sum(os.fstat(file.fileno()).st_size for _, file in files) <= SMALL else PIECE
        part: list[Piece] = []
        room = most
        for name, file in files:
            at = 0
            while content := file.read(room):
                part.append(Piece(f"{inside}/{name}", at, content))
                at += len(content)
                room -= len(content)
                if room == 0:
                    yield tuple(part), False
                    part, room = [], most
        yield tuple(part), True


class Copy:
    """A copy of a run folder, in a folder of its own that is no run yet. Replaces an earlier copy of the run.

    Args:
        log_dir: holds run folders.
        name: of the run.
        begun: tells it from other runs of this name, which begin on other machines.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, log_dir: Path, name: str, begun: str) -> None:
        self._log_dir, self._name = log_dir, name
        of_run = f"{name}.{hashlib.sha256(begun.encode()).hexdigest()[:8]}"
        self._folder = RunFolder(log_dir / COPIES / f"{of_run}.{secrets.token_hex(4)}")
        for earlier in self._folder.path.parent.glob(f"{glob.escape(of_run)}.????????"):
            shutil.rmtree(earlier, ignore_errors=True)
        self._folder.checkpoints.mkdir(parents=True)
        self._is_removed = False

    def take(self, delivery: Delivery) -> tuple[str, ...]:
        """Write what was delivered. Returns the checkpoints that the copy has, each verified by its hashes.

        Raises:
            OSError: the disk is full, or somebody has removed the copy.
        """
        if self._is_removed:
            # Its sender did not know that yet. Writing would make the folder again, and nobody would remove it.
            return ()
        # Its sender does not send again what was delivered, so a copy that begins anew would lack it.
        self._folder.path.stat()
        for piece in delivery.pieces:
            self._write(piece)
        if delivery.complete:
            self._complete(delivery.complete)
        self._pin(delivery.pins)
        # The newest stays until a newer one is complete.
        for path in list_checkpoints(self._folder.path)[:-1]:
            if path.name not in delivery.listed:
                remove_folder(path)
        return self.checkpoints()

    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoints that the copy has, the newest last."""
        return tuple(path.name for path in list_checkpoints(self._folder.path))

    def remove(self) -> None:
        """Remove the copy. It takes nothing any more."""
        self._is_removed = True
        shutil.rmtree(self._folder.path, ignore_errors=True)
        self._tidy()

    def settle(self) -> RunFolder:
        """Make the copy a run folder: it gets the run's name, or if that is taken, the name with a number.

        Raises:
            OSError: it cannot be renamed.
        """
        path, number = self._log_dir / self._name, 1
        while path.exists():
            number += 1
            path = path.with_name(f"{self._name}-{number}")
        self._folder.path.rename(path)
        self._tidy()
        return RunFolder(path)

    def _write(self, piece: Piece) -> None:
        path = self._folder.path / piece.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(piece.at)
            file.seek(piece.at)
            file.write(piece.content)

    def _pin(self, pins: frozenset[str]) -> None:
        """Pin what the run has pinned, and nothing else. A pin may come before its checkpoint."""
        had = pinned(self._folder.path)
        for name in pins ^ had:
            path = pin_path(self._folder.path, name)
            if name in had:
                path.unlink()
            else:
                path.parent.mkdir(exist_ok=True)
                path.touch()

    def _complete(self, name: str) -> None:
        """Give a checkpoint its name if it is undamaged. Otherwise it is removed, and its sender sends it again."""
        partial = self._folder.checkpoints / (name + PARTIAL)
        try:
            load_checkpoint(partial)
        except CheckpointError:
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.rename(self._folder.checkpoints / name)
            # A checkpoint that the run removed while it was being sent has left a part here.
            sweep(self._folder.checkpoints)

    def _tidy(self) -> None:
        """Remove the folder of copies if no other copy is in it."""
        with contextlib.suppress(OSError):
            self._folder.path.parent.rmdir()
