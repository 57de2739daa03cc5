"""Environment variables that Ray reads, for as long as they are needed."""

import contextlib
import os
from collections.abc import Iterator, Mapping

__all__ = ["ray_variables"]


@contextlib.contextmanager
def ray_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the ``with`` block. Afterwards they are as they were before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
