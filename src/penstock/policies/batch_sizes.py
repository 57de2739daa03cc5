"""The sizes to which batches are padded, where something is kept for each size. Pads nothing itself."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["BatchSizes"]


@dataclass(frozen=True)
class BatchSizes:
    """The sizes of the batches that a policy is asked with: few, where it keeps something for each.

    What is kept may be a CUDA graph, or arrays. The rows behind those that were asked are answered to nobody.
    """

    sizes: tuple[int, ...] | Literal["none", "powers"]
    """``powers``: the powers of two; ``none``: every size; or the sizes themselves, in any order."""

    def padded(self, rows: int) -> int:
        """The size of the batch that holds so many rows: as many, or more.

        More rows than the largest size are padded to a multiple of it. No rows stay none.
        """
        if isinstance(self.sizes, str):
            return 1 << (rows - 1).bit_length() if rows and self.sizes == "powers" else rows
        largest = max(self.sizes)
        if not 0 < rows <= largest:
            return -(-rows // largest) * largest
        return min(size for size in self.sizes if size >= rows)
