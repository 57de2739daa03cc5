"""Error feedback: what a compression loses of one vector is added to the next.

    sent_t = C(x_t + e_t),   e_t+1 = x_t + e_t - sent_t,   e_0 = 0

So the sum of what is sent follows the sum of the vectors. Later losses are not fed back: what a receiver clips, or
drops for its age, is lost for good. Source: Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019,
https://arxiv.org/abs/1901.09847. Sends nothing itself.
"""

from collections.abc import Mapping

import numpy as np

from penstock.gradient_exchange.contract import Compression
from penstock.types import Array, Arrays

__all__ = ["ErrorFeedback"]


class ErrorFeedback:
    """Encodes the gradients of one learner. Each phase and network has an error of its own.

    Args:
        compression: of single vectors.
    """

    def __init__(self, compression: Compression) -> None:
        self._compression = compression
        self._errors: Arrays = {}

    def encode(self, phase: str, vectors: Mapping[str, Array], weight: float) -> Array:
        """The vectors of a phase as one array of bytes, uint8, as `write` writes each. Notes what is lost."""
        sent = np.zeros(sum(self._padded(values.size) for values in vectors.values()), np.uint8)
        first = 0
        for name, values in vectors.items():
            first += self.write(f"{phase}.{name}", values, weight, sent[first:])
        return sent

    def write(self, key: str, vector: Array, weight: float, into: Array) -> int:
        """Encode one vector to the front of ``into``, uint8. Notes what is lost. Returns its bytes, a multiple of 4.

        Args:
            key: vectors with the same key share an error.
            vector: float32 ``[n]``.
            weight: how much the vector will count. With 0, zeros are written in its place, and the error stays.
            into: where it is written.
        """
        part = into[: self._compression.nbytes(vector.size)]
        if not weight:
            # The receiver adds nothing of it, so it must not use up the error that is to be sent.
            part[:] = 0
            return self._padded(vector.size)
        wanted = vector + self._errors.get(key, np.float32(0.0))
        self._compression.encode(wanted, part)
        kept = np.empty_like(wanted)
        self._compression.decode(part, kept)
        self._errors[key] = wanted - kept
        return self._padded(vector.size)

    def forget(self) -> None:
        """Begin anew: nothing is left over of earlier vectors."""
        self._errors.clear()

    def decode(self, sent: Array, into: Mapping[str, Array]) -> None:
        """Write what ``sent`` stands for into these vectors, float32 ``[n]`` each."""
        first = 0
        for values in into.values():
            self._compression.decode(sent[first : first + self._compression.nbytes(values.size)], values)
            first += self._padded(values.size)

    def _padded(self, size: int) -> int:
        return -(-self._compression.nbytes(size) // 4) * 4
