"""Heads: how a network's last outputs, noise and ``explore`` become an action. Plain data.

``outputs`` counts the network's outputs that a head takes. ``noise`` describes its noise input. ``gives`` names its
outputs besides ``action``.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from penstock.types import NoiseSpec

__all__ = ["Categorical", "Deterministic", "EpsilonGreedy", "Gaussian", "Head", "SquashedGaussian"]


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
    environment gets ``low + (clip(sample, -1, 1) + 1) / 2 * (high - low)``; otherwise it gets the sample.
    """

    gives: ClassVar[tuple[str, ...]] = ("log_prob",)


@dataclass(frozen=True)
class Categorical:
    """Logits over ``n`` actions, sampled as ``argmax(logits + explore * gumbel)``. Stored actions count from 0."""

    n: int
    gives: ClassVar[tuple[str, ...]] = ("log_prob",)

    @property
    def outputs(self) -> int:
        """The logits."""
        return self.n

    @property
    def noise(self) -> NoiseSpec:
        """One Gumbel number for each action."""
        return NoiseSpec("gumbel", (self.n,))


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
    is the best. With several ``atoms`` the outputs are logits ``[n, atoms]``, and ``q`` is the mean of ``softmax`` over
    ``atoms`` values, evenly spaced from ``low`` to ``high``: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887.
    """

    n: int
    atoms: int = 1
    low: float = 0.0
    high: float = 0.0
    gives: ClassVar[tuple[str, ...]] = ("q",)

    @property
    def outputs(self) -> int:
        """Action values, or the logits of each action's atoms, action after action."""
        return self.n * self.atoms

    @property
    def noise(self) -> NoiseSpec:
        """Two uniform numbers: whether to explore, and which action to take then."""
        return NoiseSpec("uniform", (2,))


Head: TypeAlias = Gaussian | Categorical | SquashedGaussian | Deterministic | EpsilonGreedy
