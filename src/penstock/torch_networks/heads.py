"""From a network's outputs to the action distribution of its head, for heads of policies that give a value."""

from torch import Tensor

from penstock.ops.distributions import (
    CategoricalDistribution,
    CategoricalRow,
    DiagonalGaussian,
    Distribution,
    Joint,
    JointPart,
    masked,
)
from penstock.policies import Categorical, Composed, Gaussian, Head

__all__ = ["distribution_of"]


def distribution_of(head: Head, outputs: Tensor, log_std: Tensor | None, mask: Tensor | None) -> Distribution:
    """The action distribution of n rows.

    Args:
        head: a head of a policy that gives a value.
        outputs: ``[n, head.outputs]``.
        log_std: ``[head.deviations]``; ``None`` if the head has no Gaussian part.
        mask: ``[n, sum(head.choices)]``, 0 where a choice is not possible; ``None``: every choice is possible.

    Raises:
        TypeError: a head of another kind, or one without its ``log_std``.
    """
    if isinstance(head, Composed):
        return _joint(head, outputs, log_std, mask)
    if isinstance(head, Categorical):
        return CategoricalDistribution(outputs if mask is None else masked(outputs, mask))
    if isinstance(head, Gaussian) and log_std is not None:
        return DiagonalGaussian(outputs, log_std)
    raise TypeError(f"a head {type(head).__name__} with log_std {log_std} describes no distribution")


def _joint(head: Composed, outputs: Tensor, log_std: Tensor | None, mask: Tensor | None) -> Joint:
    parts, chosen, spread = [], 0, 0
    for stretch in head.stretches():
        own, width = outputs[:, stretch.outputs], stretch.outputs.stop - stretch.outputs.start
        distribution: Distribution
        if stretch.choices:
            own = own if mask is None else masked(own, mask[:, chosen : chosen + width])
            distribution = CategoricalRow(own, stretch.choices)
            chosen += width
        elif log_std is not None:
            distribution = DiagonalGaussian(own, log_std[spread : spread + width])
            spread += width
        else:
            raise TypeError("a composed head with Gaussian parts has no distribution without its log_std")
        parts.append(JointPart(distribution, stretch.outputs, stretch.elements))
    return Joint(tuple(parts))
