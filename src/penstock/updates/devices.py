"""Checks that torch can use a device, and shares out GPUs. Loaded by name, and only if a GPU is asked for."""

import torch

from penstock.errors import DeviceError

__all__ = ["check", "keep_to"]


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


def keep_to(index: int) -> None:
    """Let ``cuda`` be this GPU of the machine, modulo their number, in this thread. No effect without a GPU.

    The thread is the one that runs the nodes of this process. torch has a present GPU for each thread.
    """
    count = torch.cuda.device_count()
    if count:
        torch.cuda.set_device(index % count)
