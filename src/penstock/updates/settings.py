"""Settings of an updater, as plain data. A topology writes them; a learner hands them to a backend. Builds nothing."""

from dataclasses import dataclass
from typing import Any

from penstock.algorithm import AlgorithmSpec
from penstock.types import Spaces

__all__ = ["UpdaterSettings"]


@dataclass(frozen=True)
class UpdaterSettings:
    """Settings of an updater. The arrays of a stream are a separate argument."""

    learn: str
    """``module:attribute`` of the function that builds the algorithm's pure functions, or its fused ones."""
    config: Any
    """The algorithm's config."""
    spec: AlgorithmSpec
    """The algorithm's spec for these spaces."""
    spaces: Spaces
    """The spaces of one lane."""
    device: str
    """Device of the state: ``cpu``, ``cuda:n``, or ``cuda`` for the present GPU of the thread that runs the node."""
    threads: int
    """Number of threads of the update, in this process."""
    seed: int
    """The run's seed."""
    learner: int = 0
    """Number of this learner in the run. The rows of each learner get noise of their own."""
    compress: str = "none"
    """How gradients are compressed on their way to other learners: a name of the registry, with its argument."""
    pull_after: int = 0
    """If another node applies the gradients: how many gradient steps a learner's parameters may be behind before it
    takes newer ones."""
    waits: bool = False
    """If another node applies the gradients: after each gradient the learner waits for newer parameters."""
    sharing: int = 1
    """Number of learners that share a minibatch. It holds their shares one after the other. This learner finds the
    gradient of its own share."""
    accumulate: int = 1
    """Parts of a minibatch whose gradients are averaged, by weight, before a phase steps. The schedule's
    ``mini_batch_size`` is the number of rows of one part."""
