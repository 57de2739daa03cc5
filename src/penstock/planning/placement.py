"""Where actions are computed with ``--policy_placement auto``: by a table of measured ratios. Starts nothing.

    python -m benchmarks.central_inference

measures the table: steps/s of CartPole-v1 with a policy node, at the best of its settings, over those in place. The
policy is two native MLPs on the CPU. Policies by torch on a GPU have a rule of their own. Others were not
measured, and act in place.
"""

import math
from typing import Literal, NamedTuple

__all__ = ["MEASURED", "Measured", "Place", "placed", "placed_on_gpu"]

Place = Literal["env", "node"]
MARGIN = 1.1
"""A policy node has to be so much faster: it is one process more, and the ratio differs from day to day."""


class Measured(NamedTuple):
    """One row of the table."""

    parameters: int
    """Of all networks together."""
    lanes: int
    ratio: float
    """Steps/s with a policy node over those in place."""


MEASURED: tuple[Measured, ...] = (
    Measured(9_155, 8, 0.38),
    Measured(9_155, 64, 0.71),
    Measured(134_915, 8, 0.39),
    Measured(134_915, 64, 0.69),
    Measured(531_971, 8, 0.47),
    Measured(531_971, 64, 0.69),
    Measured(2_112_515, 8, 0.47),
    Measured(2_112_515, 64, 0.51),
)
"""On two cores with AVX2 and nothing else to do: ``benchmarks/results/central_inference.json``."""


def placed(parameters: int, lanes: int) -> Place:
    """Where a policy of native MLPs acts, by the row of the table that is nearest in powers of two.

    Args:
        parameters: of all networks that act.
        lanes: of all environment processes together.
    """

    def distance(row: Measured) -> float:
        return math.hypot(math.log2(row.parameters / parameters), math.log2(row.lanes / lanes))

    return "node" if min(MEASURED, key=distance).ratio >= MARGIN else "env"


def placed_on_gpu(*, one_process: bool, sync_mode: str) -> Place:
    """Where a policy acts that torch computes on a GPU.

    Processes that use one GPU take turns on it, and each holds a context of some 500 MB there. With 16 of them, 64
    lanes of Pong and IMPALA, a policy node was 1.4 times as fast (``docs/performance/gpu.md``).

    In lock step a policy acts in place all the same, so that a seed gives the same bits. In a policy node the batch of
    a row depends on time, and the bits of a row depend on its batch.

    Args:
        one_process: whether a single process has all environments.
        sync_mode: of the run.
    """
    return "env" if one_process or sync_mode == "blocking" else "node"
