"""Calls functions of a user's algorithm on named arrays. What is wrong with a call becomes one line.

Does not know what the functions are for.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import ConfigError, UsageError
from penstock.registry import load

__all__ = ["Named", "UsersFunction"]

_TEXT = 300
"""Most characters of an error's own text."""


class _MissingError(KeyError):
    """A function asks for a name that it is not given."""


class Named(dict[str, Any]):
    """Named arrays for a function. If it asks for a name that is missing, the error says what to write.

    Args:
        values: the arrays.
        what: what they are, such as "the state".
        write: how to get one more.
    """

    def __init__(self, values: Mapping[str, Any], what: str, write: str) -> None:
        super().__init__(values)
        self._what = what
        self._write = write

    def __missing__(self, name: str) -> None:
        has = ", ".join(self) or "none"
        raise _MissingError(f"reads {name!r}, which {self._what} does not have; {self._write}. It has {has}")


class UsersFunction(NamedTuple):
    """A function of a user's algorithm."""

    algorithm: str
    """As the user gave it."""
    module: str
    name: str

    def wrong(self, text: str) -> ConfigError:
        """An error about this function."""
        return ConfigError(f"algorithm {self.algorithm}: {self.name} in {self.module} {text}")

    def call(self, function: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401 - whatever it returns
        """What the function returns.

        Raises:
            ConfigError: it raises anything. The text has the place in the user's files.
        """
        try:
            return function(*given)
        except UsageError:
            raise
        except _MissingError as error:
            raise self.wrong(f"{error.args[0]}{self._place(error)}") from error
        except Exception as error:
            text = " ".join(str(error).split())[:_TEXT]
            raise self.wrong(f"fails: {type(error).__name__}: {text}{self._place(error)}") from error

    def check(self, found: object, shapes: Mapping[str, tuple[int, ...]], what: str, *, whole: bool = False) -> None:
        """Check that arrays have these names and shapes.

        Args:
            found: what the function has returned.
            shapes: name -> shape.
            what: what has these arrays, such as "the state".
            whole: none may be missing.

        Raises:
            ConfigError: they do not.
        """
        if not isinstance(found, Mapping):
            raise self.wrong(f"gives a {type(found).__name__}; return a dict of arrays by name")
        for name, values in found.items():
            if name not in shapes:
                raise self.wrong(f"gives {name!r}, which {what} does not have; it has {', '.join(shapes) or 'none'}")
            shape = tuple(np.shape(values))
            if shape != shapes[name]:
                raise self.wrong(f"gives {name} with the shape {shape}; in {what} it has {shapes[name]}")
        for name in shapes if whole else ():
            if name not in found:
                raise self.wrong(f"does not give {name}, which {what} has; it gives {', '.join(found) or 'nothing'}")

    def check_networks(self, found: Mapping[str, object], networks: Sequence[str]) -> None:
        """Check that the parameters of every network are among the arrays of the first state.

        Raises:
            ConfigError: they are not. Arrays that are left out are zero, and a network of zeros learns nothing.
        """
        for name in networks:
            if name not in found:
                raise self.wrong(f"does not give {name}, the parameters of a network; give network.initial(generator)")

    def check_dtypes(self, found: Mapping[str, object], dtypes: Mapping[str, str], what: str) -> None:
        """Check that arrays have these dtypes; ``what`` as for `check`, which comes first.

        Raises:
            ConfigError: they do not.
        """
        for name, values in found.items():
            # Torch writes "torch.float32". A number of Python, or a list, has no dtype.
            dtype = str(getattr(values, "dtype", type(values).__name__)).removeprefix("torch.")
            if dtype != dtypes[name]:
                raise self.wrong(f"gives {name} as {dtype}; in {what} it is {dtypes[name]}")

    def _place(self, error: Exception) -> str:
        """The last line in the folder of the user's package that led to an error."""
        folder = Path(load(f"{self.module}:__file__")).parent
        own = [at for at in traceback.extract_tb(error.__traceback__) if Path(at.filename).parent == folder]
        return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
