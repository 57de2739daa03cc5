"""Where the served policy comes from, as plain data: a worker process gets it as JSON and loads the same policy."""

from typing import NamedTuple

from penstock.registry import load
from penstock.serving.server.policy.answering import ServedPolicy

__all__ = ["Source"]


class Source(NamedTuple):
    """One checkpoint of a run, or a bundle."""

    loader: str
    """``module:function`` of ``(path, checkpoint=name)``."""
    path: str
    """The folder of the run or of the bundle."""
    checkpoint: str | None
    """Name of the checkpoint. ``None``: of a bundle, which holds one only."""
    version: int
    """The checkpoint's update."""

    @classmethod
    def of_checkpoint(cls, loader: str, run: str, checkpoint: str) -> "Source":
        """A checkpoint by its name, of the run in the folder ``run``."""
        return cls(loader, run, checkpoint, int(checkpoint.removeprefix("update-")))

    def policy(self) -> ServedPolicy:
        """Load it.

        Raises:
            UsageError: there is no such run or bundle, or it cannot be used.
        """
        found: ServedPolicy = load(self.loader)(self.path, checkpoint=self.checkpoint)
        return found
