"""Where the served policy comes from, as plain data: a worker process gets it as JSON and loads the same policy."""

from typing import NamedTuple

from penstock.registry import load
from penstock.serving.server.answering import ServedPolicy

__all__ = ["Source"]


class Source(NamedTuple):
    """One checkpoint of a run."""

    loader: str
    """``module:function`` of ``(run, checkpoint=name)``."""
    run: str
    checkpoint: str

    @property
    def version(self) -> int:
        """The checkpoint's update."""
        return int(self.checkpoint.removeprefix("update-"))

    def policy(self) -> ServedPolicy:
        """Load it.

        Raises:
            UsageError: there is no such run, or its checkpoint cannot be used.
        """
        found: ServedPolicy = load(self.loader)(self.run, checkpoint=self.checkpoint)
        return found
