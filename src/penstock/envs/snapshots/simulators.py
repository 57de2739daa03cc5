"""The states of simulators that are written in C: MuJoCo and the Arcade Learning Environment. Imports neither.

An object of a simulator exists only where its package was imported.
"""

import sys
from typing import Any

import numpy as np

from penstock.errors import SnapshotError
from penstock.types import Arrays

__all__ = ["apply_ale", "apply_mujoco", "is_ale", "is_mujoco", "of_ale", "of_mujoco"]

_STATE = "state"
_OF_CONSTRAINTS = (
    "efc_",
    "iefc_",
    "iM_",
    "contact",
    "dof_island",
    "island",
    "map_",
    "tendon_efc",
    "tree_",
    "flexelem_",
)
"""Beginnings of the names of arrays whose length changes: each step computes them anew."""


def is_mujoco(found: object) -> bool:
    """True for the data of a MuJoCo simulation."""
    return type(found).__name__ == "MjData" and type(found).__module__.startswith("mujoco")


def of_mujoco(data: Any) -> Arrays:
    """The state that is integrated, and the arrays that the last step has left: an environment may read them."""
    mujoco: Any = sys.modules["mujoco"]
    which = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    state = np.empty(mujoco.mj_stateSize(data.model, which))
    mujoco.mj_getState(data.model, data, state, which)
    return {_STATE: state, **{name: array.copy() for name, array in _left(data).items()}}


def apply_mujoco(data: Any, arrays: Arrays) -> None:
    """Bring a simulation of the same model into this state."""
    mujoco: Any = sys.modules["mujoco"]
    mujoco.mj_setState(data.model, data, arrays[_STATE], int(mujoco.mjtState.mjSTATE_INTEGRATION))
    for name, array in _left(data).items():
        if name in arrays:
            array[...] = arrays[name]


def _left(data: Any) -> Arrays:
    found = {}
    for name in dir(data):
        if name.startswith(("_", *_OF_CONSTRAINTS)):
            continue
        try:
            value = getattr(data, name)
        except Exception:  # noqa: BLE001 - an array that this model has not
            continue
        if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
            found[name] = value
    return found


def is_ale(found: object) -> bool:
    """True for an emulator of the Arcade Learning Environment."""
    return type(found).__name__ == "ALEInterface" and type(found).__module__.startswith("ale_py")


def of_ale(ale: Any) -> bytes:
    """The state of the emulator, with its random numbers."""
    state: bytes = ale.cloneState(include_rng=True).__getstate__()
    return state


def apply_ale(ale: Any, content: bytes) -> None:
    """Bring an emulator with the same game into this state."""
    kind: Any = type(ale.cloneState())
    state = kind.__new__(kind)
    try:
        state.__setstate__(content)
    except Exception as error:
        raise SnapshotError("the state of the Atari emulator is damaged") from error
    ale.restoreState(state)
