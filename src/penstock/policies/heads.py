"""Heads: how an action comes out of a network's last outputs, noise and ``explore``. Plain data.

``outputs`` counts the network's outputs that a head takes, ``noise`` says what it draws, and ``gives`` names what it
gives beside ``action``.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from penstock.types import NoiseSpec

__all__ = ["Categorical", "Deterministic", "EpsilonGreedy", "Gaussian", "Head", "SquashedGaussian"]


@dataclass(frozen=True)
class _Continuous:
    """A head whose action is ``size`` numbers."""

    size: int

    @property
    def outputs(self) -> int:
        """A number for each element of the action: its mean, or what tanh makes it of."""
        return self.size

    @property
    def noise(self) -> NoiseSpec:
        """A number for each element of the action."""
        return NoiseSpec("normal", (self.size,))


@dataclass(frozen=True)
class Gaussian(_Continuous):
    """A diagonal Gaussian with a state-independent ``log_std`` (a free vector of the actor).

    A stored action is the sample itself, ``mean + explore * exp(log_std) * noise``. Where the action space is bounded,
    the environment receives ``low + (clip(sample, -1, 1) + 1) / 2 * (high - low)``; otherwise the sample.
    """

    gives: ClassVar[tuple[str, ...]] = ("log_prob",)


@dataclass(frozen=True)
class Categorical:
    """Logits over ``n`` actions, sampled as ``argmax(logits + explore * gumbel)``; a stored action counts from 0."""

    n: int
    gives: ClassVar[tuple[str, ...]] = ("log_prob",)

    @property
    def outputs(self) -> int:
        """The logits."""
        return self.n

    @property
    def noise(self) -> NoiseSpec:
        """A Gumbel number for each action."""
        return NoiseSpec("gumbel", (self.n,))


@dataclass(frozen=True)
class SquashedGaussian(_Continuous):
    """``tanh(mean + explore * exp(log_std) * noise)``; the outputs are ``size`` means, then ``size`` ``log_std``.

    ``log_std`` is clipped to its bounds. Source: Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290, appendix C.
    """

    log_std_min: float = -20.0
    log_std_max: float = 2.0
    gives: ClassVar[tuple[str, ...]] = ()

    @property
    def outputs(self) -> int:
        """Means and log-deviations."""
        return 2 * self.size


@dataclass(frozen=True)
class Deterministic(_Continuous):
    """``clip(tanh(output) + explore * noise, -1, 1)``: what explores is the noise alone."""

    gives: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class EpsilonGreedy:
    """Action values ``q``: any of the ``n`` actions with probability ``explore``, else the best, the first of equals.

    ``noise[0] < explore`` takes ``min(floor(noise[1] * n), n - 1)``, in float32. With several ``atoms`` the outputs are
    logits ``[n, atoms]``, and ``q`` is the mean of ``softmax`` over ``atoms`` values evenly from ``low`` to ``high``:
    Bellemare et al. 2017, https://arxiv.org/abs/1707.06887.
    """

    n: int
    atoms: int = 1
    low: float = 0.0
    high: float = 0.0
    gives: ClassVar[tuple[str, ...]] = ("q",)

    @property
    def outputs(self) -> int:
        """Values, or logits of values, action-major."""
        return self.n * self.atoms

    @property
    def noise(self) -> NoiseSpec:
        """Whether to explore, and what to take then."""
        return NoiseSpec("uniform", (2,))


Head: TypeAlias = Gaussian | Categorical | SquashedGaussian | Deterministic | EpsilonGreedy
