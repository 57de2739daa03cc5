# ruff: noqa: INP001 (it stands alone in its folder)
"""Puts the native module with fault points, beside this file, into the place of the package's own.

Python imports this file at its start where its folder is on ``PYTHONPATH``. A path alone would not do: an editable
install finds the package before it.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path


class FaultPoints:
    """Finds one module."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """The module with fault points, if that is what is imported."""
        if name != "penstock.memory._native":
            return None
        return spec_from_file_location(name, Path(__file__).with_name("_native" + EXTENSION_SUFFIXES[0]))


sys.meta_path.insert(0, FaultPoints)
