"""Runs ``act`` of an algorithm with torch: on CUDA, and for policies that no other backend runs.

Does not know which algorithm it runs: it loads ``learn.py`` by name.
"""

from collections.abc import Callable, Mapping

import torch

from penstock.algorithm import Tensors
from penstock.algorithm_package import load_functions
from penstock.errors import DeviceError
from penstock.types import Array, Spaces

__all__ = ["TorchPolicy", "build"]


class TorchPolicy:
    """Runs an algorithm's ``act`` on one device. Call `load` before `act`."""

    def __init__(self, act: Callable[[Tensors, Tensors], Tensors], device: torch.device) -> None:
        self._act = act
        self._device = device
        self._published: dict[str, torch.Tensor] = {}

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        # torch.tensor copies on every device.
        self._published = {name: torch.tensor(array, device=self._device) for name, array in published.items()}

    @torch.no_grad()
    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``. See `penstock.types.PolicyBackend`."""
        tensors = {name: torch.as_tensor(array, device=self._device) for name, array in inputs.items()}
        outputs = self._act(self._published, tensors)
        for name, array in out.items():
            array[...] = outputs[name].cpu().numpy().reshape(array.shape)


def build(learn: str, spaces: Spaces, config: object, device: str = "cpu") -> TorchPolicy:
    """A backend for the algorithm that ``learn`` names.

    Args:
        learn: ``module:attribute`` of the algorithm's ``build(spaces, config)``.
        spaces: the spaces of one lane.
        config: the algorithm's config.
        device: a torch device name.

    Raises:
        DeviceError: the device cannot be used on this machine.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}; try cpu") from error
    algorithm = load_functions(learn)(spaces, config)
    return TorchPolicy(algorithm.act, place)
