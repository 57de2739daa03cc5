"""The answers of a server of dm_env_rpc, checked before the package unpacks them. Knows no episodes.

The package trusts its server. It unpacks one number to an array of any shape, and texts to an array as wide as the
longest one.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import EnvError, SpaceError

__all__ = ["MOST_MESSAGE", "Answers"]

MOST_MESSAGE = 128 << 20
"""Bytes of one answer."""
_MOST_TENSORS = 64 << 20
"""Bytes of all observations together, and of all actions."""
_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What the package and NumPy raise for answers that do not fit, and for a stream that has ended."""


class Answers:
    """A connection as the package has it, for an environment that needs numbers in fixed shapes.

    Args:
        connection: with ``send`` and ``close`` as the package has them.
        address: of the server, for error texts.
    """

    def __init__(self, connection: Any, address: str) -> None:
        from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils  # noqa: PLC0415 - imported on use: half a second

        self._messages = dm_env_rpc_pb2
        self._dtype = tensor_utils.data_type_to_np_type
        self._connection = connection
        self._address = address
        self._wanted: set[int] = set()
        """Observations that are numbers."""

    def send(self, request: Any) -> Any:
        """Ask the server, and return its answer without observations that are texts or messages.

        Raises:
            EnvError: the server refuses, is gone, or says what the protocol does not know.
            SpaceError: a tensor has no fixed shape, or is too large.
        """
        with self.understood():
            answer = self._connection.send(request)
            if isinstance(answer, self._messages.JoinWorldResponse | self._messages.ResetResponse):
                self._keep_numbers(answer.specs)
            elif isinstance(answer, self._messages.StepResponse):
                for unwanted in [uid for uid in answer.observations if uid not in self._wanted]:
                    del answer.observations[unwanted]
        return answer

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Within the ``with`` block, each error of an answer becomes an `EnvError` that names the server."""
        import grpc  # noqa: PLC0415 - as above
        from dm_env_rpc.v1 import error  # noqa: PLC0415

        try:
            yield
        except error.DmEnvRpcError as refused:
            raise EnvError(f"the server at {self._address} refuses: {one_line(refused, 300)}") from None
        except grpc.RpcError as lost:
            raise EnvError(f"the server at {self._address} has broken off: {one_line(lost, 300)}") from None
        except _BROKEN as broken:
            text = f"{type(broken).__name__} {one_line(broken, 300)}"
            raise EnvError(f"the server at {self._address} does not keep to dm_env_rpc: {text}") from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _keep_numbers(self, specs: Any) -> None:
        """Forget observations that are texts or messages, and check the sizes of all that is left."""
        others = {self._messages.DataType.STRING, self._messages.DataType.PROTO}
        for uid in [uid for uid, spec in specs.observations.items() if spec.dtype in others]:
            del specs.observations[uid]
        self._wanted = set(specs.observations)
        for what, tensors in (("observation", specs.observations), ("action", specs.actions)):
            total = sum(self._size(spec, f"{what} {one_line(spec.name)}") for spec in tensors.values())
            if total > _MOST_TENSORS:
                raise SpaceError(f"the {what}s of {self._address} have {total} bytes; the most is {_MOST_TENSORS}")

    def _size(self, spec: Any, what: str) -> int:
        """Bytes of a tensor. An axis of length 0 counts as 1."""
        dtype = np.dtype(self._dtype(spec.dtype))
        if dtype.kind not in "biuf" or any(size < 0 for size in spec.shape):
            raise SpaceError(f"{what} is {dtype} {list(spec.shape[:16])}: penstock needs numbers in a fixed shape")
        total: int = math.prod(max(size, 1) for size in spec.shape) * dtype.itemsize
        return total
