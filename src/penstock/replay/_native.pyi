"""The extension built from ``native/replay``; used by the files of this room only."""

from collections.abc import Sequence

from penstock.types import Array, Arrays

class Sampler:
    def __init__(
        self,
        heads: Array,
        arrays: Arrays,
        writers: int,
        slots: int,
        fields: Sequence[str],
        n_step: int,
        gamma: float,
        stacks: Sequence[tuple[str, int]],
        level: str | None,
        /,
    ) -> None: ...
    def sample(self, seed: int, number: int, out: Arrays, before: Sequence[int] | None, /) -> None: ...

def levels() -> list[str]: ...
