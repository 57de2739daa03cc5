"""Links between hosts that are far apart: each frame arrives late, and some are lost. For `benchmarks.hosts`.

It is a switch between tap devices, in a process of its own. One end of each device is a host's network card; the other
end is a file descriptor that the switch is given. It works on kernels without netem, which cannot delay frames.

    python -m benchmarks.far_link --delay 0.02 --loss 0.01 FD FD FD
"""

import argparse
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Far", "set_carrier", "switch", "tap"]

_SETIFF, _SETCARRIER = 0x400454CA, 0x400454E2
_TAP, _NO_INFORMATION = 0x0002, 0x1000
FRAME_BYTES = 65_536
BURST = 64
"""Frames that are taken from one device before the next one has its turn."""


class Far(NamedTuple):
    """How far apart hosts are."""

    delay_s: float
    """One way."""
    loss: float
    """The share of frames that do not arrive."""


def tap(name: str) -> int:
    """Make a tap device. Returns its file descriptor; the device goes when all copies of it are closed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _SETIFF, struct.pack("16sH", name.encode(), _TAP | _NO_INFORMATION))
    return device


def set_carrier(device: int, *, on: bool) -> None:
    """Plug a device in, or out. A device that is plugged out takes no frames."""
    fcntl.ioctl(device, _SETCARRIER, struct.pack("i", on))


def switch(devices: Sequence[int], far: Far) -> "subprocess.Popen[bytes]":
    """Start the switch between devices."""
    words = ["--delay", str(far.delay_s), "--loss", str(far.loss), *map(str, devices)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.far_link", *words], pass_fds=devices)


def _run(devices: Sequence[int], far: Far) -> None:
    """Pass frames on until this process is ended."""
    chance, numbers = random.Random(0), itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    """When it is due, its number, the device of its receiver, the frame."""
    known: dict[bytes, int] = {}
    """Address -> the device behind which it was seen."""
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        ready, _, _ = select.select(devices, [], [], wait)
        now = time.monotonic()
        for device in ready:
            for frame in _frames(device):
                known[frame[6:12]] = device
                to = known.get(frame[:6])
                for receiver in [one for one in devices if one != device] if to is None else [to]:
                    if chance.random() >= far.loss:
                        heapq.heappush(under_way, (now + far.delay_s, next(numbers), receiver, frame))
        while under_way and under_way[0][0] <= now:
            _, _, receiver, frame = heapq.heappop(under_way)
            _give(receiver, frame)


def _frames(device: int) -> list[bytes]:
    found = []
    for _ in range(BURST):
        try:
            found.append(os.read(device, FRAME_BYTES))
        except OSError:
            # No more for now, or its host is cut off.
            break
    return found


def _give(device: int, frame: bytes) -> None:
    try:
        os.write(device, frame)
    except OSError:
        # Its host is cut off: the frame is lost.
        return


def main() -> None:
    """Pass frames on between devices that were inherited."""
    parser = argparse.ArgumentParser("python -m benchmarks.far_link")
    parser.add_argument("--delay", type=float, required=True)
    parser.add_argument("--loss", type=float, required=True)
    parser.add_argument("devices", type=int, nargs="+")
    args = parser.parse_args()
    _run(args.devices, Far(args.delay, args.loss))


if __name__ == "__main__":
    main()
