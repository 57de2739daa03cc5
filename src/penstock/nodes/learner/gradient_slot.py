"""The layout of two edges: the slot with the gradients of one step, and the board of parameters.

Sends and receives nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.errors import PenstockError
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["METRICS", "Filling", "board_specs", "gradients_in", "metrics_in", "name_bytes", "slot_specs"]

NAME_BYTES = 32
"""Most bytes of the name of a phase or a metric."""
METRICS = 16
"""Most metrics of a step."""


def board_specs(shared: Sequence[ArraySpec], learners: int) -> tuple[ArraySpec, ...]:
    """The board: ``AlgorithmSpec.shared``, and for each learner the number of its last step that was settled."""
    return (*shared, ArraySpec("settled", (learners,), "int64"))


def slot_specs(shared: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The slot: the gradients of one step, at most as large as the float32 arrays of ``AlgorithmSpec.shared``.

    ``step`` counts the steps of this learner from 1. ``version`` is the number of gradient steps in its parameters.
    """
    parts = 2 * len(shared)
    return (
        ArraySpec("values", (sum(spec.size for spec in shared if spec.dtype == "float32"),), "float32"),
        ArraySpec("phase", (parts, NAME_BYTES), "uint8"),
        ArraySpec("network", (parts,), "int64"),
        ArraySpec("parts", (), "int64"),
        ArraySpec("metric", (METRICS, NAME_BYTES), "uint8"),
        ArraySpec("metric_value", (METRICS,), "float64"),
        ArraySpec("learner", (), "int64"),
        ArraySpec("step", (), "int64"),
        ArraySpec("version", (), "int64"),
    )


class Filling:
    """Fills one slot with the gradients of one step.

    Args:
        slot: the slot.
        places: network -> its place in ``AlgorithmSpec.shared``.
    """

    def __init__(self, slot: Arrays, places: Mapping[str, int]) -> None:
        self._slot = slot
        self._places = places
        self._filled = 0
        slot["parts"][...] = 0

    def put(self, phase: str, gradients: Mapping[str, Array]) -> int:
        """Write the gradients of a phase. Returns their bytes."""
        slot, before = self._slot, self._filled
        for network, values in gradients.items():
            part = int(slot["parts"])
            slot["phase"][part] = name_bytes(phase)
            slot["network"][part] = self._places[network]
            slot["values"][self._filled : self._filled + values.size] = values
            self._filled += values.size
            slot["parts"][...] = part + 1
        return 4 * (self._filled - before)

    def tell(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of the step.

        Raises:
            PenstockError: there are more than a slot holds.
        """
        if len(metrics) > METRICS:
            raise PenstockError(
                f"a gradient step has {len(metrics)} metrics, a slot holds {METRICS}: {sorted(metrics)}"
            )
        names = self._slot["metric"]
        names[:] = 0
        for place, (name, value) in enumerate(metrics.items()):
            names[place], self._slot["metric_value"][place] = name_bytes(name), value


def gradients_in(slot: Arrays, shared: Sequence[ArraySpec]) -> dict[str, Arrays]:
    """Phase -> network -> gradient, as views of a slot."""
    found: dict[str, Arrays] = {}
    first = 0
    for part in range(int(slot["parts"])):
        phase = _name(slot["phase"][part])
        network = shared[int(slot["network"][part])]
        found.setdefault(phase, {})[network.name] = slot["values"][first : first + network.size]
        first += network.size
    return found


def metrics_in(slot: Arrays) -> dict[str, float]:
    """The metrics of the learner's phases."""
    named = zip(slot["metric"], slot["metric_value"].tolist(), strict=True)
    return {_name(name): value for name, value in named if name[0]}


def name_bytes(name: str) -> Array:
    """The name of a phase or a metric as bytes of a slot: uint8 ``[NAME_BYTES]``."""
    content = name.encode()
    if len(content) > NAME_BYTES:
        raise PenstockError(f"{name}: the name of a phase or a metric has at most {NAME_BYTES} bytes")
    return np.frombuffer(content.ljust(NAME_BYTES, b"\0"), np.uint8)


def _name(held: Array) -> str:
    return str(held.tobytes().rstrip(b"\0").decode())
