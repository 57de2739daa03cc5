"""What is done with minibatches of a table, whatever steps the state: learn from them, or hand their gradients on."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from penstock.types import Array, Arrays
from penstock.updates.contract import Exchange, HandOn
from penstock.updates.inbox import Inbox

__all__ = ["Applier", "Finder", "Learner", "Stepper"]

Parts = Sequence[Mapping[str, Tensor]]


class Stepper(Protocol):
    """Holds a state on its device, and goes through the phases of gradient steps."""

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        ...

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """The state's named arrays on its device; valid until the next call that changes the state."""
        ...

    def progress(self, progress: float) -> None:
        """How far the run is, in [0, 1]."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...

    def step(self, parts: Parts, weights: Sequence[float], exchange: Exchange | None) -> Arrays:
        """One gradient step: each phase that is due, over all parts of a minibatch; what it finds for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
            exchange: how several learners agree; ``None``: this one is alone.
        """
        ...

    def find(self, parts: Parts, weights: Sequence[float], hand_on: HandOn) -> Arrays:
        """The gradients of one step, each phase's handed on, all from the state as it is; what it finds for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
            hand_on: takes the gradients of a phase.
        """
        ...

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """One gradient step: phases with gradients step down these, those that never have any have their turn."""
        ...


class _Held:
    """A state that a stepper holds."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()


class _TableUpdater(_Held):
    """A state that is learned from what was drawn from a table."""

    def __init__(self, stepper: Stepper, inbox: Inbox) -> None:
        super().__init__(stepper)
        self._inbox = inbox

    @property
    def gradient_steps(self) -> int:
        """How many the state has seen."""
        return self._stepper.count

    def buffers(self) -> Arrays:
        """Arrays for a minibatch, in pinned memory where a GPU learns from it."""
        return self._inbox.buffers()

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._stepper.metrics()


class Learner(_TableUpdater):
    """Steps by what it finds.

    Args:
        stepper: holds the state.
        inbox: brings minibatches to its device.
        exchange: how it agrees with others, if there are any.
    """

    def __init__(self, stepper: Stepper, inbox: Inbox, exchange: Exchange | None) -> None:
        super().__init__(stepper, inbox)
        self._exchange = exchange

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """One gradient step: every phase that is due. As `penstock.updates.contract.ReplayUpdater.learn`."""
        self._stepper.progress(progress)
        return self._stepper.step(*self._inbox.weighed(minibatch), self._exchange)


class Finder(_TableUpdater):
    """Hands the gradients that it finds on, and steps by none.

    Args:
        stepper: holds the state.
        inbox: brings minibatches to its device.
        hand_on: takes the gradients of a phase.
    """

    def __init__(self, stepper: Stepper, inbox: Inbox, hand_on: HandOn) -> None:
        super().__init__(stepper, inbox)
        self._hand_on = hand_on

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """The gradients of every phase that is due, handed on. As `penstock.updates.contract.ReplayUpdater.learn`."""
        self._stepper.progress(progress)
        return self._stepper.find(*self._inbox.weighed(minibatch), self._hand_on)


class Applier(_Held):
    """Steps by gradients that others have found."""

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """One gradient step. As `penstock.updates.contract.Applier.apply`."""
        self._stepper.progress(progress)
        self._stepper.apply(gradients)
