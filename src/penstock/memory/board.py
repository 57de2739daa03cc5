"""A board: the latest value wins. A reader never waits for the writer and never sees half a record. Rings no bell.

Each version has a checksum. It tells a reader if something else has written into the memory.
"""

from collections.abc import Mapping, Sequence

from penstock.memory import _native
from penstock.memory.layout import Layout
from penstock.types import Array, ArraySpec

__all__ = ["Board"]

_BUFFERS = 3
# With 3 buffers, a reader copies again only if two publications end while it copies; with 2, after one.


class Board:
    """Named arrays and a version. One writer at a time.

    Attributes:
        specs: the arrays of a record.
    """

    def __init__(self, bytes: Array, specs: Sequence[ArraySpec], name: str = "a board") -> None:  # noqa: A002
        """Attach to ``required(specs)`` bytes, uint8, that start at a multiple of 64 and were zero at first.

        Reading works on memory that is not writable, too. Error texts call the board ``name``.
        """
        layout = Layout(specs)
        self.specs = layout.specs
        self._writable = bool(bytes.flags.writeable)
        self._board = _native.Board(bytes, layout.nbytes // 8, _BUFFERS, self._writable, name)
        self._fields = {spec.name: (layout.offsets[spec.name], spec) for spec in layout.specs}

    @staticmethod
    def required(specs: Sequence[ArraySpec]) -> int:
        """Bytes that such a board takes."""
        return _native.Board.required(Layout(specs).nbytes // 8, _BUFFERS)

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        """Make ``arrays`` the latest value. The arrays may be reused afterwards.

        Args:
            arrays: the arrays of all specs; others are ignored.
            version: number of the value, at least 0. It may repeat or fall: a learner may do an update again.

        Raises:
            KeyError: an array is missing.
            ValueError: an array has another dtype or shape, or the memory is not writable.
        """
        if not self._writable:
            raise ValueError("this board was attached for reading only")
        sources = [_checked(arrays[name], spec) for name, (_, spec) in self._fields.items()]
        self._board.publish(sources, [offset for offset, _ in self._fields.values()], version)

    def read(self, into: Mapping[str, Array]) -> int:
        """Copy the latest value into ``into``. All arrays are from one publication; its checksum is verified.

        Args:
            into: the arrays of some or all specs, C-contiguous.

        Returns:
            The version. -1 before the first publication, and ``into`` is unchanged.

        Raises:
            DamagedError: the memory does not hold what was published. The content of ``into`` is then undefined.
        """
        targets = [_checked(array, self._fields[name][1]) for name, array in into.items()]
        return self._board.read(targets, [self._fields[name][0] for name in into])

    def version(self) -> int:
        """The latest version, or -1 before the first.

        Raises:
            DamagedError: the memory does not hold what was published. The arrays are not checked here.
        """
        return self._board.version()

    def publication(self) -> int:
        """The number of the latest publication, from 1; 0 before the first. A version may repeat, this number never."""
        return self._board.publication()

    def recover(self) -> bool:
        """Call this after the writer was killed and reaped. True if it died in a publication, which is then dropped."""
        return self._board.recover()


def _checked(array: Array, spec: ArraySpec) -> Array:
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise ValueError(f"{spec.name} is {spec.dtype}{list(spec.shape)}, got {array.dtype}{list(array.shape)}")
    return array
