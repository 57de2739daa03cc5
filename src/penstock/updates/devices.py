"""Which devices torch can compute on, here. Loaded by name, and only where a device other than the CPU is asked for."""

import torch

from penstock.errors import DeviceError

__all__ = ["check"]


def check(device: str) -> None:
    """Return if ``device`` (``cuda`` or ``cuda:N``) is here.

    Raises:
        DeviceError: it is not; the text says what is.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        have = "no CUDA device" if count == 0 else f"only cuda:0 to cuda:{count - 1}"
        raise DeviceError(
            f"device {device!r} is not here: this machine has {have}; try --device cpu, "
            'or for a run that exists device = "cpu" in its config.toml'
        )
