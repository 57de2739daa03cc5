"""The layout of two edges: the slot with the gradients of one step, and the board of parameters.

Sends and receives nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from penstock.errors import PenstockError
from penstock.types import Array, Arrays, ArraySpec

__all__ = [
    "BEFORE",
    "METRICS",
    "RANKED",
    "Decoder",
    "Filling",
    "Write",
    "before_specs",
    "board_specs",
    "common_batch_board_specs",
    "gradients_in",
    "name_bytes",
    "own_batch_board_specs",
    "own_batch_slot_specs",
    "plain",
    "ranked_specs",
    "slot_specs",
    "step_metrics_in",
    "vector_specs",
]

NAME_BYTES = 32
"""Most bytes of the name of a phase or a metric."""
METRICS = 16
"""Most metrics of a step."""
BEFORE = "before."
"""Begins the names of arrays as they were when a batch began."""
RANKED = {"row": "int64", "stamp": "int64", "priority": "float64"}
"""Array -> its type: the new priorities of a minibatch, as `penstock.replay.sum_tree.SumTrees.update` takes them."""

Write: TypeAlias = Callable[[str, Array, float, Array], int]
"""``(key, vector, weight, into) -> bytes``: writes a vector, float32 ``[n]``, to the front of ``into``, uint8. The key
has its phase and network; the weight is that of the minibatch on which it was found."""


class Decoder(Protocol):
    """What a slot needs of a `penstock.gradient_exchange.contract.Compression`."""

    def nbytes(self, size: int) -> int:
        """Bytes of an encoded vector of ``size`` numbers."""
        ...

    def decode(self, encoded: Array, into: Array) -> None:
        """Write what ``encoded`` stands for into ``into``, float32 ``[n]``."""
        ...


def board_specs(shared: Sequence[ArraySpec], learners: int) -> tuple[ArraySpec, ...]:
    """The board: ``AlgorithmSpec.shared``, and for each learner the number of its last step that was settled."""
    return (*shared, ArraySpec("settled", (learners,), "int64"))


def own_batch_board_specs(shared: Sequence[ArraySpec], learners: int, rollouts: int) -> tuple[ArraySpec, ...]:
    """The board of learners that have batches of their own. Each batch has ``rollouts`` rollouts.

    It has these arrays for each learner, besides those of `board_specs`:

    - ``batch``: the sequences of the batch's rollouts; -1 while no gradient of the batch is settled.
    - ``batch_settled``: how many gradients of the batch are settled, that is, applied or dropped.
    - ``batch_applied``: how many of them were applied.
    """
    return (
        *board_specs(shared, learners),
        ArraySpec("batch", (learners, rollouts), "int64"),
        *(ArraySpec(name, (learners,), "int64") for name in ("batch_settled", "batch_applied")),
    )


def common_batch_board_specs(shared: Sequence[ArraySpec], learners: int, rollouts: int) -> tuple[ArraySpec, ...]:
    """The board of learners that share batches of ``rollouts`` rollouts.

    Each version of the board asks each learner for one gradient. More arrays, besides those of `board_specs`:

    - ``slots``: the slots of the batch's rollouts.
    - ``update``: the number of updates before this batch.
    - ``done``: the gradient steps of this batch so far.
    - ``begun``: the version of the board with which this batch began.
    """
    return (
        *board_specs(shared, learners),
        *before_specs(shared),
        ArraySpec("slots", (rollouts,), "int64"),
        *(ArraySpec(name, (), "int64") for name in ("update", "done", "begun")),
    )


def before_specs(shared: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The target networks ``target.X`` as they were when the batch began, as ``before.target.X``.

    The targets of a batch may depend on them, and a gradient step within the batch may renew them. Board ``policy`` has
    no target networks.
    """
    return tuple(replace(part, name=f"{BEFORE}{part.name}") for part in shared if part.name.startswith("target."))


def slot_specs(shared: Sequence[ArraySpec], compression: Decoder | None = None) -> tuple[ArraySpec, ...]:
    """The slot: the gradients of one step, at most as large as the float32 arrays of ``AlgorithmSpec.shared``.

    ``step`` counts the steps of this learner from 1. ``version`` is the number of gradient steps in its parameters.
    ``weight`` is the sum of the minibatch's weights, ``sent`` the bytes of the gradients.

    Args:
        shared: specs of the arrays that gradients depend on; empty if slots hold no gradients.
        compression: how gradients are encoded (`penstock.registry.compression_of`).
    """
    parts = 2 * len(shared)
    sizes = [_nbytes(compression, spec.size) for spec in shared if spec.dtype == "float32"]
    return (
        ArraySpec("values", (sum(sizes),), "uint8"),
        ArraySpec("phase", (parts, NAME_BYTES), "uint8"),
        ArraySpec("network", (parts,), "int64"),
        ArraySpec("parts", (), "int64"),
        ArraySpec("weight", (), "float64"),
        ArraySpec("sent", (), "int64"),
        ArraySpec("metric", (METRICS, NAME_BYTES), "uint8"),
        ArraySpec("metric_value", (METRICS,), "float64"),
        ArraySpec("learner", (), "int64"),
        ArraySpec("step", (), "int64"),
        ArraySpec("version", (), "int64"),
    )


def own_batch_slot_specs(
    shared: Sequence[ArraySpec],
    rollouts: int,
    compression: Decoder | None = None,
) -> tuple[ArraySpec, ...]:
    """The slot of a learner that has batches of its own, of ``rollouts`` rollouts.

    - ``rollouts``: the sequences of the batch's rollouts; -1 for each rollout that is missing.
    - ``last``: this is the batch's last gradient. Its learner reads these rollouts no more.
    - ``stale``: the rollouts are too old to learn from. The slot has no gradient.
    """
    return (
        *slot_specs(shared, compression),
        ArraySpec("rollouts", (rollouts,), "int64"),
        ArraySpec("last", (), "bool"),
        ArraySpec("stale", (), "bool"),
    )


def ranked_specs(rows: int) -> tuple[ArraySpec, ...]:
    """More fields of a slot, if its learner samples a copy of the table: the new priorities of its minibatch's rows.

    They are already raised to the power alpha, as the sum tree holds them.
    """
    return tuple(ArraySpec(name, (rows,), dtype) for name, dtype in RANKED.items())


def vector_specs(state: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The shared arrays of learners that apply their own gradients: the state but ``gradient_steps``, ``progress``."""
    return tuple(part for part in state if part.name not in {"gradient_steps", "progress"})


def plain(key: str, vector: Array, weight: float, into: Array) -> int:
    """Write a vector as it is; see `Write`."""
    del key, weight
    into[: vector.nbytes].view(np.float32)[:] = vector
    return vector.nbytes


class Filling:
    """Fills one slot with the gradients of one step.

    Args:
        slot: the slot.
        places: network -> its place in ``AlgorithmSpec.shared``.
        write: writes a gradient into the slot.
    """

    def __init__(self, slot: Arrays, places: Mapping[str, int], write: Write = plain) -> None:
        self._slot = slot
        self._places = places
        self._write = write
        for name in ("parts", "weight", "sent"):
            slot[name][...] = 0

    def put(self, phase: str, gradients: Mapping[str, Array], weight: float) -> None:
        """Write the gradients of a phase, computed on a minibatch of this weight."""
        slot = self._slot
        for network, vector in gradients.items():
            part, filled = int(slot["parts"]), int(slot["sent"])
            slot["phase"][part] = name_bytes(phase)
            slot["network"][part] = self._places[network]
            slot["sent"][...] = filled + self._write(f"{phase}.{network}", vector, weight, slot["values"][filled:])
            slot["parts"][...] = part + 1
        slot["weight"][...] = weight

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


def gradients_in(
    slot: Arrays,
    shared: Sequence[ArraySpec],
    compression: Decoder | None = None,
) -> dict[str, Arrays]:
    """Phase -> network -> gradient. Views of the slot, unless gradients are encoded."""
    found: dict[str, Arrays] = {}
    first = 0
    for part in range(int(slot["parts"])):
        phase = _name(slot["phase"][part])
        network = shared[int(slot["network"][part])]
        nbytes = _nbytes(compression, network.size)
        found.setdefault(phase, {})[network.name] = _decoded(
            slot["values"][first : first + nbytes], network.size, compression
        ).reshape(network.shape)
        first += nbytes
    return found


def step_metrics_in(slot: Arrays) -> dict[str, float]:
    """The metrics of the learner's phases."""
    named = zip(slot["metric"], slot["metric_value"].tolist(), strict=True)
    return {_name(name): value for name, value in named if name[0]}


def name_bytes(name: str) -> Array:
    """The name of a phase or a metric as bytes of a slot: uint8 ``[NAME_BYTES]``."""
    content = name.encode()
    if len(content) > NAME_BYTES:
        raise PenstockError(f"{name}: the name of a phase or a metric has at most {NAME_BYTES} bytes")
    return np.frombuffer(content.ljust(NAME_BYTES, b"\0"), np.uint8)


def _nbytes(compression: Decoder | None, size: int) -> int:
    """Bytes of a vector with ``size`` numbers. A multiple of 4, so that the next one begins at a float32."""
    return 4 * size if compression is None else -(-compression.nbytes(size) // 4) * 4


def _decoded(content: Array, size: int, compression: Decoder | None) -> Array:
    if compression is None:
        return content.view(np.float32)
    vector = np.empty(size, np.float32)
    compression.decode(content[: compression.nbytes(size)], vector)
    return vector


def _name(held: Array) -> str:
    return str(held.tobytes().rstrip(b"\0").decode())
