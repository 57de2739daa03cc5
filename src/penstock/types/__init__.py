"""The glossary as types: plain data and contracts that packages share. Computes nothing but shapes.

Shapes are written ``[T, B, ...]``: time first, then lanes.
"""

from penstock.types.arrays import Array, Arrays, ArraySpec, NoiseSpec
from penstock.types.causes import Cause
from penstock.types.environments import (
    EnvFactory,
    EnvKind,
    EnvRecipe,
    EnvReference,
    EnvSource,
    Replayed,
    StepResult,
    Wrapper,
)
from penstock.types.policies import BackendSpec, PolicyBackend, Question, Wanted
from penstock.types.spaces import (
    ActionSpace,
    Box,
    Composite,
    Discrete,
    Leaf,
    LeafPath,
    MultiDiscrete,
    Space,
    Spaces,
    Stack,
)

__all__ = [
    "ActionSpace",
    "Array",
    "ArraySpec",
    "Arrays",
    "BackendSpec",
    "Box",
    "Cause",
    "Composite",
    "Discrete",
    "EnvFactory",
    "EnvKind",
    "EnvRecipe",
    "EnvReference",
    "EnvSource",
    "Leaf",
    "LeafPath",
    "MultiDiscrete",
    "NoiseSpec",
    "PolicyBackend",
    "Question",
    "Replayed",
    "Space",
    "Spaces",
    "Stack",
    "StepResult",
    "Wanted",
    "Wrapper",
]
