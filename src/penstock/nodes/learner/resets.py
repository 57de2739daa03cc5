"""Resets: at every n-th gradient step all networks begin anew, and the table stays.

Source: Nikishin et al. 2022, https://arxiv.org/abs/2205.07802. Knows neither what is learned nor how.
"""

from penstock.algorithm.first_state import first_state
from penstock.seeding import reset_seed
from penstock.types import Arrays
from penstock.updates.settings import UpdaterSettings

__all__ = ["Resets"]

GO_ON = frozenset({"gradient_steps", "progress"})
"""Arrays of a state that a reset leaves as they are, besides the running statistics."""


class Resets:
    """When the networks of a run begin anew, and with which values. Both depend on seed and gradient step only.

    Args:
        initial: ``module:init_state`` of the algorithm.
        updater: settings of the updater whose state is reset.
    """

    def __init__(self, initial: str, updater: UpdaterSettings) -> None:
        schedule, _ = updater.spec.replay()
        self._every = schedule.reset_every
        self._initial = initial
        self._updater = updater

    def due(self, step: int) -> bool:
        """True if the networks begin anew before gradient step ``step``, which is counted from 0."""
        return self._every > 0 and step > 0 and step % self._every == 0

    def until(self, step: int, last: int) -> int:
        """The number of gradient steps from ``step`` to the next reset, but not beyond ``last``."""
        return last - step if self._every == 0 else min(last - step, self._every - step % self._every)

    def state(self, step: int) -> Arrays:
        """The arrays of a state that begin anew before gradient step ``step``: networks, targets, optimizers."""
        updater = self._updater
        seed = reset_seed(updater.seed, step // self._every)
        first = first_state(self._initial, updater.spec, updater.spaces, updater.config, seed)
        kept = GO_ON | {part.name for part in updater.spec.policy.statistics()}
        return {name: values for name, values in first.items() if name not in kept}
