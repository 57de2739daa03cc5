"""Updaters of learners from a table, over any `Stepper`: one learns, one hands its gradients on, one applies them."""

from collections.abc import Mapping

from penstock.types import Array, Arrays
from penstock.updates.inbox import Inbox
from penstock.updates.stepper import Stepper
from penstock.updates.team import Exchange, HandOn

__all__ = ["GradientApplier", "ReplayFollower", "ReplayLearner"]


class _Held:
    """An updater whose state is held by a stepper."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def write_state(self, into: Arrays) -> None:
        """Write the state's arrays. As `penstock.updates.contract.ReplayUpdater.write_state`."""
        for name, values in self._stepper.arrays().items():
            into[name][...] = values


class _TableUpdater(_Held):
    """An updater that learns from minibatches of a table."""

    def __init__(self, stepper: Stepper, inbox: Inbox) -> None:
        super().__init__(stepper)
        self._inbox = inbox

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the state."""
        return self._stepper.count

    def buffers(self) -> Arrays:
        """New arrays for a minibatch, in pinned memory for a GPU."""
        return self._inbox.buffers()

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._stepper.metrics()


class ReplayLearner(_TableUpdater):
    """Computes gradients and applies them.

    Args:
        stepper: holds the state.
        inbox: brings minibatches to its device.
        exchange: how it agrees with other learners, if there are any.
    """

    def __init__(self, stepper: Stepper, inbox: Inbox, exchange: Exchange | None) -> None:
        super().__init__(stepper, inbox)
        self._exchange = exchange

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """Take one gradient step: every phase that is due. As `penstock.updates.contract.ReplayUpdater.learn`."""
        self._stepper.progress(progress)
        return self._stepper.step(*self._inbox.weighed(minibatch), self._exchange)


class ReplayFollower(_TableUpdater):
    """Computes gradients and hands them on. Applies none.

    Args:
        stepper: holds the state.
        inbox: brings minibatches to its device.
        hand_on: takes the gradients of a phase.
    """

    def __init__(self, stepper: Stepper, inbox: Inbox, hand_on: HandOn) -> None:
        super().__init__(stepper, inbox)
        self._hand_on = hand_on

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """Hand on the gradients of every phase that is due. As `penstock.updates.contract.ReplayUpdater.learn`."""
        self._stepper.progress(progress)
        return self._stepper.hand_on(*self._inbox.weighed(minibatch), self._hand_on)


class GradientApplier(_Held):
    """Applies gradients that other learners have computed."""

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Take one gradient step. As `penstock.updates.contract.Applier.apply`."""
        self._stepper.progress(progress)
        self._stepper.apply(gradients)
