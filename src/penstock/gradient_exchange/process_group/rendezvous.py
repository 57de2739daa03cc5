"""How the members of a process group find each other: through a store in the keeper's process.

1. The keeper opens a store, and publishes its port on a board.
2. Each other member reads the board and says in the store that it is there, and on which GPU.
3. Once all are there, the keeper chooses the transport. They connect to each other, and the group stands.

A group ends with its first member that leaves or dies:

1. A member that leaves notes this in the store. So does the new life of a member, if an earlier life is noted there.
2. The keeper opens another store.
3. All members meet in it.
"""

import socket
from datetime import timedelta
from typing import Protocol, cast

import numpy as np
from torch._C._distributed_c10d import TCPStore

from penstock.gradient_exchange.process_group import gloo, nccl
from penstock.gradient_exchange.process_group.transport import Group, TransportName, chosen, gpu_of
from penstock.nodes.ports import BoardReader, BoardWriter
from penstock.program.graph import ProcessGroup

__all__ = ["KeeperSide", "OtherSide", "Rendezvous", "connected"]

STORE_LIMIT = timedelta(seconds=10)
"""How long an answer of the store may take."""
NOBODY = 0
"""The port on the board while there is no store."""
ALL_HERE = "all here"
"""Its value is the transport by which all connect."""
BROKEN = "broken"


class Rendezvous(Protocol):
    """One member's way to the others."""

    def meet(self) -> Group | None:
        """The group of all members; ``None`` while some are missing. Then call this again."""
        ...

    def broken(self) -> bool:
        """True once the group that this member has met in no longer stands."""
        ...

    def meeting(self) -> int:
        """The number of the store in which the members have met: its version on the board."""
        ...

    def leave(self) -> None:
        """Tell the others that this member no longer takes part. May be repeated."""
        ...


class KeeperSide:
    """The keeper's way: it opens the store.

    Args:
        edge: the members.
        writer: of the board with the port.
        reader: of the same board.
    """

    def __init__(self, edge: ProcessGroup, writer: BoardWriter, reader: BoardReader) -> None:
        self._edge = edge
        self._writer = writer
        self._reader = reader
        self._store: TCPStore | None = None
        self._version = -1
        """Of the board, with the port of this store."""

    def meet(self) -> Group | None:
        """As `Rendezvous.meet`."""
        if self._store is None:
            self._store = TCPStore(
                self._edge.address, NOBODY, is_master=True, wait_for_workers=False, timeout=STORE_LIMIT
            )
            self._store.set(_gpu(0), gpu_of(self._edge.device))
            self._publish(self._store.port)
        if self.broken():
            self.leave()
            return None
        edge, count = self._edge, len(self._edge.members)
        if not self._store.check([_here(member) for member in range(1, count)]):
            return None
        transport = chosen([self._store.get(_gpu(member)).decode() for member in range(count)])
        self._store.set(ALL_HERE, transport)
        try:
            return connected(transport, self._store, 0, count, address=edge.address, device=edge.device)
        except RuntimeError:
            self.leave()
            return None

    def broken(self) -> bool:
        """As `Rendezvous.broken`."""
        return self._store is None or self._store.check([BROKEN])

    def meeting(self) -> int:
        """As `Rendezvous.meeting`."""
        return self._version

    def leave(self) -> None:
        """As `Rendezvous.leave`."""
        if self._store is not None:
            self._store = None
            self._publish(NOBODY)

    def _publish(self, port: int) -> None:
        self._version = self._reader.version() + 1
        self._writer.publish({"port": np.array(port, np.int64)}, self._version)


class OtherSide:
    """The way of a member that is not the keeper.

    Args:
        edge: the members.
        reader: of the board with the port.
        me: index of this member.
    """

    def __init__(self, edge: ProcessGroup, reader: BoardReader, me: int) -> None:
        self._edge = edge
        self._reader = reader
        self._me = me
        self._store: TCPStore | None = None
        self._version = -1
        """Of the board, when this member last found a store."""

    def meet(self) -> Group | None:
        """As `Rendezvous.meet`."""
        try:
            store = self._found()
            if store is None or not store.check([ALL_HERE]):
                return None
            edge, transport = self._edge, cast("TransportName", store.get(ALL_HERE).decode())
            own = _own_address(edge.address)
            return connected(transport, store, self._me, len(edge.members), address=own, device=edge.device)
        except (RuntimeError, OSError):
            self.leave()
            return None

    def _found(self) -> TCPStore | None:
        """The keeper's latest store; ``None`` if there is none, or if this member has left it."""
        told = {"port": np.zeros((), np.int64)}
        version = self._reader.version()
        if version == self._version:
            return self._store
        self._store = None
        version = self._reader.read(told)
        if int(told["port"]) == NOBODY:
            return None
        store = TCPStore(self._edge.address, int(told["port"]), is_master=False, timeout=STORE_LIMIT)
        self._version, self._store = version, store
        store.set(_gpu(self._me), gpu_of(self._edge.device))
        if store.add(_here(self._me), 1) > 1:
            # The others may have connected to an earlier life of this member.
            self.leave()
        return self._store

    def broken(self) -> bool:
        """As `Rendezvous.broken`."""
        return self._store is None or self._reader.version() != self._version

    def meeting(self) -> int:
        """As `Rendezvous.meeting`."""
        return self._version

    def leave(self) -> None:
        """As `Rendezvous.leave`."""
        store, self._store = self._store, None
        if store is not None:
            try:
                store.set(BROKEN, "")
            except RuntimeError:
                # The keeper is gone, and its next life opens another store.
                return


def connected(transport: TransportName, store: TCPStore, me: int, members: int, *, address: str, device: str) -> Group:
    """Connect to all members. By gloo each listens at its own address.

    Raises:
        RuntimeError: a member does not answer.
    """
    if transport == "nccl":
        return nccl.connect(store, me, members, device)
    return gloo.connect(store, me, members, address)


def _here(member: int) -> str:
    return f"here {member}"


def _gpu(member: int) -> str:
    return f"gpu {member}"


def _own_address(towards: str) -> str:
    """The address of this machine on its way to another one. Sends nothing."""
    family, kind, _, _, where = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])
