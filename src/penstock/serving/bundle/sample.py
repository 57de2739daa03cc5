"""The sample of a bundle: observations of the run's environment, and what the trained policy answered to them.

A file of NumPy's (``.npz``) without pickled objects, so that NumPy alone reads it.
"""

import io
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.inference.onnx import leaf_name, next_name
from penstock.kernels.actions import environment_array, leaf_arrays, to_environment
from penstock.types import Array, Arrays, Composite, Spaces

__all__ = ["Sample", "pack_sample", "sample_of", "unpack_sample"]

_INPUT, _OUTPUT = "input.", "output."


class Sample(NamedTuple):
    """Questions and answers, under the names of the bundle's inputs and outputs: ``[rows, ...]``.

    Actions are in the environment's units. A carry among the inputs is the one that the policy had in that row, so rows
    stand alone.
    """

    inputs: Arrays
    outputs: Arrays

    @property
    def rows(self) -> int:
        """Number of questions."""
        return len(next(iter(self.inputs.values())))

    def part(self, rows: slice) -> "Sample":
        """Some rows."""
        return Sample(*({name: values[rows] for name, values in arrays.items()} for arrays in self))


def sample_of(recorded: tuple[Mapping[str, Array], Mapping[str, Array]], spaces: Spaces) -> Sample:
    """A sample from what a policy was given and what it answered, with the action as rows store it."""
    inputs, outputs = dict(recorded[0]), dict(recorded[1])
    action = outputs.pop("action")
    decoded = to_environment(action, spaces.action, environment_array(spaces.action, len(action)))
    actions: Arrays = {"action": decoded}
    if isinstance(spaces.action, Composite):
        arrays = leaf_arrays(decoded, spaces.action)
        actions = {leaf_name(path): array for (path, _), array in zip(spaces.action.leaves, arrays, strict=True)}
    return Sample(inputs, actions | {next_name(name): values for name, values in outputs.items()})


def pack_sample(sample: Sample) -> bytes:
    """The content of the file."""
    file = io.BytesIO()
    named: dict[str, Array] = {f"{_INPUT}{name}": values for name, values in sample.inputs.items()}
    named |= {f"{_OUTPUT}{name}": values for name, values in sample.outputs.items()}
    np.savez_compressed(file, allow_pickle=False, **named)
    return file.getvalue()


def unpack_sample(content: bytes) -> Sample:
    """Read the file.

    Raises:
        ValueError: it is not such a file.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            named = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, OSError, KeyError, EOFError) as error:
        raise ValueError("not a sample") from error
    return Sample(_named(named, _INPUT), _named(named, _OUTPUT))


def _named(arrays: Mapping[str, Array], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
