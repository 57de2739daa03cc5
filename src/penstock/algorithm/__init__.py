"""The contract of an algorithm: plain data in ``spec.py``, pure functions in ``learn.py``, native ones in ``fused.py``.

An algorithm knows no process, environment, loop, logger or device. ``docs/architecture/algorithms.md`` has its rules.
``algorithms-on-paper.md`` tests them on PPO, SAC, TD3, Ape-X, IMPALA with an LSTM, and MAPPO.

No file here imports torch. The arrays of ``learn.py`` are torch tensors, which are called ``Tensors`` here.
"""

from penstock.algorithm.functions import Algorithm, Gradients, Phase, Tensors
from penstock.algorithm.fused import Fused, FusedReplay, FusedReplayUpdate, FusedUpdate, StreamShape
from penstock.algorithm.spec import (
    APPROX_KL,
    DEMONSTRATED,
    HELD_OUT,
    KL,
    KL_COEF,
    AlgorithmSpec,
    Cloning,
    Priorities,
    ReplaySchedule,
    Schedule,
    Sequences,
    TableSpec,
)

__all__ = [
    "APPROX_KL",
    "DEMONSTRATED",
    "HELD_OUT",
    "KL",
    "KL_COEF",
    "Algorithm",
    "AlgorithmSpec",
    "Cloning",
    "Fused",
    "FusedReplay",
    "FusedReplayUpdate",
    "FusedUpdate",
    "Gradients",
    "Phase",
    "Priorities",
    "ReplaySchedule",
    "Schedule",
    "Sequences",
    "StreamShape",
    "TableSpec",
    "Tensors",
]
