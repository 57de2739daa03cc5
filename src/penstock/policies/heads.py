"""Heads: how a network's last outputs, noise and ``explore`` become an action. Plain data.

``outputs`` counts the network's outputs that a head takes. ``noise`` describes its noise input. ``gives`` names its
outputs besides ``action``.

``Categorical``, ``Composed`` and ``EpsilonGreedy`` take an action mask, if the policy has one: uint8
``[n, sum(choices)]``. In the first two, before everything else, ``FORBIDDEN`` replaces the logit of each choice that is
not possible. So the probability of such a choice is exactly 0, it gets no gradient, and the entropy counts possible
choices only.

Where a mask leaves no choice at all, the first choice is taken, number 0: by every backend, and in exported policies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, NamedTuple, TypeAlias

from penstock.types import NoiseSpec

__all__ = [
    "FORBIDDEN",
    "Categorical",
    "Composed",
    "Deterministic",
    "EpsilonGreedy",
    "Gaussian",
    "Head",
    "SquashedGaussian",
    "Stretch",
]

FORBIDDEN = -1e9
"""The logit of a masked choice: finite, so that rows that nobody acts on (all choices masked) hold no NaN."""


@dataclass(frozen=True)
class _Continuous:
    """A head whose action has ``size`` elements."""

    size: int

    @property
    def outputs(self) -> int:
        """One output for each element of the action: its mean, before tanh if the head has one."""
        return self.size

    @property
    def noise(self) -> NoiseSpec:
        """One normal number for each element of the action."""
        return NoiseSpec("normal", (self.size,))


@dataclass(frozen=True)
class Gaussian(_Continuous):
    """A diagonal Gaussian with a state-independent ``log_std`` (a free vector of the actor).

    A stored action is the sample itself, ``mean + explore * exp(log_std) * noise``. If the action space is bounded, the
    environment gets ``low + (clip(sample, -1, 1) + 1) / 2 * (high - low)``. Otherwise it gets the sample, clipped at
    the bounds that are finite.
    """

    gives: ClassVar[tuple[str, ...]] = ("log_prob",)
    choices: ClassVar[tuple[int, ...]] = ()

    @property
    def deviations(self) -> int:
        """Length of ``log_std``."""
        return self.size


@dataclass(frozen=True)
class Categorical:
    """Logits over ``n`` actions, sampled as ``argmax(logits + explore * gumbel)``. Stored actions count from 0."""

    n: int
    gives: ClassVar[tuple[str, ...]] = ("log_prob",)
    size: ClassVar[int] = 1
    deviations: ClassVar[int] = 0

    @property
    def outputs(self) -> int:
        """The logits."""
        return self.n

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of actions."""
        return (self.n,)

    @property
    def noise(self) -> NoiseSpec:
        """One Gumbel number for each action."""
        return NoiseSpec("gumbel", (self.n,))


class Stretch(NamedTuple):
    """Neighbouring parts of one kind in a composed head."""

    choices: tuple[int, ...]
    """The number of choices of each part; empty for Gaussian parts."""
    outputs: slice
    """Their place among the network's outputs, and among the noise."""
    elements: slice
    """Their place among the elements of the action."""


@dataclass(frozen=True)
class Composed:
    """Independent heads for the elements of one action: its parts.

    Outputs, noise and elements of the action are those of the parts, one after the other. ``log_prob`` is the sum of
    those of the parts. All Gaussian parts share one free vector ``log_std``, in their order. A stored action is
    ``[n, size]``; choices count from 0.
    """

    parts: tuple[Gaussian | Categorical, ...]
    gives: ClassVar[tuple[str, ...]] = ("log_prob",)

    def stretches(self) -> Iterator[Stretch]:
        """The parts, neighbours of one kind together."""
        output = element = 0
        for _, group in groupby(self.parts, type):
            parts = tuple(group)
            outputs, size = sum(part.outputs for part in parts), sum(part.size for part in parts)
            choices = tuple(choice for part in parts for choice in part.choices)
            yield Stretch(choices, slice(output, output + outputs), slice(element, element + size))
            output, element = output + outputs, element + size

    @property
    def outputs(self) -> int:
        """The outputs of all parts."""
        return sum(part.outputs for part in self.parts)

    @property
    def size(self) -> int:
        """Number of elements of the action."""
        return sum(part.size for part in self.parts)

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of choices of each categorical part."""
        return tuple(choice for part in self.parts for choice in part.choices)

    @property
    def deviations(self) -> int:
        """Length of ``log_std``."""
        return sum(part.deviations for part in self.parts)

    @property
    def noise(self) -> NoiseSpec:
        """One number for each output: Gumbel for a logit, normal for a mean."""
        lengths = ((stretch.choices, stretch.outputs.stop - stretch.outputs.start) for stretch in self.stretches())
        parts = tuple(NoiseSpec("gumbel" if choices else "normal", (length,)) for choices, length in lengths)
        return parts[0] if len(parts) == 1 else NoiseSpec("composed", (self.outputs,), parts)


@dataclass(frozen=True)
class SquashedGaussian(_Continuous):
    """``tanh(mean + explore * exp(log_std) * noise)``. The outputs are ``size`` means, then ``size`` ``log_std``.

    ``log_std`` is clipped to its bounds. Source: Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290, appendix C.
    """

    log_std_min: float = -20.0
    log_std_max: float = 2.0
    gives: ClassVar[tuple[str, ...]] = ()

    @property
    def outputs(self) -> int:
        """Means, then log-deviations."""
        return 2 * self.size


@dataclass(frozen=True)
class Deterministic(_Continuous):
    """``clip(tanh(output) + explore * noise, -1, 1)``: only the added noise explores."""

    gives: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class EpsilonGreedy:
    """Action values ``q``. Takes a random one of ``n`` actions with probability ``explore``, else the best one.

    If ``noise[0] < explore``, the action is ``min(floor(noise[1] * n), n - 1)``, in float32. Of equal values, the first
    is the best. With a mask, n counts the possible actions, and only these are taken; ``q`` holds the values of all.

    With several ``atoms`` the outputs are logits ``[n, atoms]``, and ``q`` is the mean of ``softmax`` over
    ``atoms`` values, evenly spaced from ``low`` to ``high``: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887.
    """

    n: int
    atoms: int = 1
    low: float = 0.0
    high: float = 0.0
    gives: ClassVar[tuple[str, ...]] = ("q",)

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of actions."""
        return (self.n,)

    @property
    def outputs(self) -> int:
        """Action values, or the logits of each action's atoms, action after action."""
        return self.n * self.atoms

    @property
    def noise(self) -> NoiseSpec:
        """Two uniform numbers: whether to explore, and which action to take then."""
        return NoiseSpec("uniform", (2,))


Head: TypeAlias = Gaussian | Categorical | Composed | SquashedGaussian | Deterministic | EpsilonGreedy
