"""Checks that torch can use a device. Loaded by name, and only if a device other than the CPU is asked for."""

import torch

from penstock.errors import DeviceError

__all__ = ["check"]


def check(device: str) -> None:
    """Check that this machine has ``device`` (``cuda`` or ``cuda:N``).

    Raises:
        DeviceError: it has not. The text says which devices it has.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        have = "no CUDA device" if count == 0 else f"only cuda:0 to cuda:{count - 1}"
        raise DeviceError(
            f"device {device!r} is not here: this machine has {have}; try --device cpu, "
            'or for a run that exists device = "cpu" in its config.toml'
        )
