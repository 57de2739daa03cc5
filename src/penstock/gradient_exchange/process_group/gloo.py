"""Rounds over TCP, by way of main memory: gloo."""

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions, ProcessGroupGloo, TCPStore

from penstock.gradient_exchange.process_group.transport import ROUND_LIMIT, UnderWay

__all__ = ["CONNECT_LIMIT", "OverGloo", "connect"]

CONNECT_LIMIT = timedelta(seconds=10)
"""How long members try to connect once all are there. None of them gives a sign of life meanwhile."""
TAG = 0
"""One is enough: messages between two members keep their order, and all meet between two swaps."""


def connect(store: TCPStore, me: int, members: int, address: str) -> "OverGloo":
    """Connect to all members. This one listens at ``address``.

    Raises:
        RuntimeError: a member does not answer.
    """
    # By itself, gloo listens at the address of the machine's name. torch has no public way to name another one.
    gloo: Any = ProcessGroupGloo
    options = gloo._Options()  # noqa: SLF001
    options._devices = [gloo.create_device(hostname=address)]  # noqa: SLF001
    options._timeout = CONNECT_LIMIT  # noqa: SLF001
    return OverGloo(gloo(store, me, members, options))


class OverGloo:
    """One member's end; implements `penstock.gradient_exchange.process_group.transport.Group`.

    Args:
        group: of gloo.
    """

    def __init__(self, group: Any) -> None:  # noqa: ANN401 - its stubs do not name its methods
        self._group = group

    def tell(self, values: Tensor) -> UnderWay:
        """As `Group.tell`."""
        options = BroadcastOptions()
        # By itself torch takes the limit of the group. The keeper may need longer for the batch before.
        options.timeout = ROUND_LIMIT
        work: UnderWay = self._group.broadcast([values], options)
        return work

    def gather(self, mine: Tensor, into: Sequence[Tensor]) -> UnderWay:
        """As `Group.gather`."""
        options = AllgatherOptions()
        options.timeout = ROUND_LIMIT
        work: UnderWay = self._group.allgather([list(into)], [mine], options)
        return work

    def swap(self, mine: Tensor, into: Mapping[int, Tensor]) -> UnderWay:
        """As `Group.swap`. The tensor goes to each of these members directly, and to nobody else."""
        coming = [self._group.recv([values], member, TAG) for member, values in into.items()]
        return _Swap([*coming, *(self._group.send([mine], member, TAG) for member in into)])

    def end(self) -> bool:
        """As `Group.end`. gloo would end what waits only when its time is up."""
        return False


class _Swap:
    """Tensors between this member and single others; implements `UnderWay`.

    A thread waits for all of them, for as long as a round may take:

    - Many short waits are not possible: if one wait of gloo times out, gloo ends the whole group.
    - If a connection is lost in the middle of a tensor, gloo does not report this. Then the thread waits until its time
      is up.
    """

    def __init__(self, works: Sequence[UnderWay]) -> None:
        self._works = works
        self._come = False
        self._error: RuntimeError | None = None
        self._over = threading.Event()
        threading.Thread(target=self._finish, daemon=True).start()

    def _finish(self) -> None:
        try:
            for work in self._works:
                work.wait(ROUND_LIMIT)
            self._come = True
        except RuntimeError as error:
            # Without its traceback, which would hold this object, and so the connections, until the next collection.
            self._error = error.with_traceback(None)
        finally:
            self._over.set()

    def is_completed(self) -> bool:
        """As `UnderWay.is_completed`."""
        return self._over.is_set()

    def wait(self, timeout: timedelta) -> bool:
        """As `UnderWay.wait`."""
        if not self._over.wait(timeout.total_seconds()):
            raise RuntimeError("the tensors have not come yet")
        if not self._come:
            raise RuntimeError("a member is lost") from self._error
        return True
