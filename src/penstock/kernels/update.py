"""The native minibatch updates of an actor-critic: losses, gradients, clip, optimizer and metrics of many minibatches.

One is given advantages and targets. The other takes whole lanes, and computes both by V-trace. Owns no schedule and
generates no permutation. Sources:

- Loss: PPO with the clipped surrogate (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equations 7 and 9), or
  the plain policy gradient.
- Optimizers: `penstock.ops.optimizers`.
- V-trace: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, equations 1 and 4 and remark 2.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.kernels import _native
from penstock.kernels.optimizer import MIN_EPSILON, Optimizer
from penstock.kernels.policy import PolicyLayout
from penstock.types import Array, Arrays

__all__ = ["ActorCriticLoss", "ActorCriticUpdate", "CorrectedUpdate", "LaneCorrection", "Moments"]


class ActorCriticLoss(NamedTuple):
    """The loss, the clip of its gradient, and the optimizer.

    ``-E[min(r A, clip(r, 1 - clip_param, 1 + clip_param) A)] + value_coef E[(V - target)^2] - entropy_coef E[S]``
    """

    clip_param: float | None
    """``None``: the first term is ``-E[A log pi(a | s)]``, and the rows' old log-probabilities are not read."""
    value_coef: float
    entropy_coef: float
    max_grad_norm: float
    """The gradient is scaled down to this norm."""
    clip_apart: bool
    """Whether that is the norm of each network by itself, and not of both together."""
    normalize_advantage: bool
    """Shift and scale the advantages of each minibatch by their mean and deviation (plus 1e-8). Advantages of lanes are
    only scaled, by the root mean square of the rows' ``size`` (plus 1e-8)."""
    optimizer: Optimizer


class Moments(NamedTuple):
    """Of the advantages of a whole minibatch, by weight."""

    mean: float
    deviation: float


class LaneCorrection(NamedTuple):
    """How the lanes of a minibatch lie, and how V-trace weighs their rows: see `penstock.ops.vtrace`."""

    steps: int
    """Rows of a lane that are learned from; one more follows."""
    stride: int
    """From a row of a lane to its next one."""
    gamma: float
    gae_lambda: float
    rho_bar: float
    c_bar: float
    reward_limit: float
    """Rewards are cut to it on both sides."""


class _StreamUpdate:
    """Many minibatches in one call, or the gradients and the step of one in two. Subclasses pack the rows."""

    _update: _native.Update | _native.CorrectedUpdate

    def __init__(self, layout: PolicyLayout, loss: ActorCriticLoss) -> None:
        if layout.critic is None:
            raise ValueError("the native update trains a policy whose critic is a network of its own")
        self._layout = layout
        self._critic = layout.critic.name
        if not loss.optimizer.safe:
            raise ValueError(f"the optimizer's epsilon is {loss.optimizer.epsilon}; it must be at least {MIN_EPSILON}")
        self._optimizer = loss.optimizer
        self._found: Arrays = {}
        self._graph = (
            layout.encoding,
            layout.actor.layers,
            layout.critic.layers,
            layout.head.kind == "Gaussian",
            layout.outputs,
            layout.normalize_obs,
            layout.normalize_value,
        )

    def run(self, state: Mapping[str, Array], indices: Array, weights: Array, lr: float, threads: int = 1) -> None:
        """Run one gradient step for each minibatch ``indices[i]``, changing ``state`` in place. The GIL is released.

        Args:
            state: the networks' flat vectors and the optimizer's arrays: ``<moment>.<network>``, and ``adam_step`` if
                it counts its steps.
            indices: ``[n, m]`` int64, packed flat rows; for lanes, row 0 of each.
            weights: ``[n, m]`` float32; 0 is padding. A minibatch of only padding changes nothing.
            lr: learning rate.
            threads: 1, or 2 to run actor and critic side by side.

        Raises:
            IndexError: an index is outside the packed rows.
        """
        step = state["adam_step"] if self._optimizer.counts else None
        after = self._update.run(
            self._vectors(state, self._layout.actor.name),
            self._vectors(state, self._critic),
            indices,
            weights,
            0 if step is None else int(step),
            lr,
            threads,
        )
        if step is not None:
            step[...] = after

    def gradients(
        self, state: Mapping[str, Array], indices: Array, weights: Array, whole: Moments | None, threads: int = 1
    ) -> tuple[Arrays, float]:
        """Compute the gradients of one minibatch, or of one learner's share of it. The GIL is released.

        Args:
            state: the networks' flat vectors; nothing else of it is read.
            indices: ``[m]`` int64, as those of `run`.
            weights: ``[m]`` float32; 0 is padding.
            whole: moments of the advantages of the whole minibatch, if it is a share; ``None``: those of these rows.
            threads: as in `run`.

        Returns:
            Network -> float32 ``[n]``, the mean over the rows, valid until the next call; zero if all are padding.
            And the sum of the weights of the rows that count.

        Raises:
            IndexError: an index is outside the packed rows.
        """
        actor, critic = self._layout.actor.name, self._critic
        if not self._found:
            self._found = {name: np.empty_like(state[name]) for name in (actor, critic)}
        found = self._found
        weight = self._update.compute_gradients(
            state[actor], state[critic], indices, weights, whole, found[actor], found[critic], threads
        )
        return found, weight

    def descend(self, state: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> None:
        """Clip these gradients and take a step down them, changing ``state`` in place. The GIL is released.

        Args:
            state: as that of `run`.
            gradients: network -> float32 ``[n]``.
            lr: learning rate.
        """
        actor, critic = self._layout.actor.name, self._critic
        if self._optimizer.counts:
            state["adam_step"][...] += 1
        self._update.descend(
            self._vectors(state, actor),
            self._vectors(state, critic),
            gradients[actor],
            gradients[critic],
            int(state["adam_step"]) if self._optimizer.counts else 1,
            lr,
        )

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call; empty if there were none."""
        return self._update.metrics()

    def _vectors(self, state: Mapping[str, Array], network: str) -> list[Array]:
        return [state[network], *(state[f"{moment}.{network}"] for moment in self._optimizer.moments)]

    def _statistics(self, state: Mapping[str, Array]) -> tuple[Array | None, Array | None, float, float]:
        layout = self._layout
        return (
            state["obs_mean"] if layout.normalize_obs else None,
            state["obs_var"] if layout.normalize_obs else None,
            float(state["value_mean"]) if layout.normalize_value else 0.0,
            float(state["value_var"]) if layout.normalize_value else 1.0,
        )


class ActorCriticUpdate(_StreamUpdate):
    """Trains one policy on the rows of a batch. Not for several threads at once.

    Results are bit-identical for one and two threads, and for any split of the minibatches over calls. Bits are
    promised for each instruction-set level.

    Args:
        layout: layout of a policy whose critic is a network of its own.
        loss: the loss and the optimizer's numbers.
        rows: number of flat rows in a batch.
        level: instruction-set level; ``None``: the fastest of this processor.
        weighed: each row has a weight ``importance``, by which its normalised advantage is multiplied.

    Raises:
        ValueError: the policy has no critic network, or the optimizer's epsilon is too small.
    """

    def __init__(
        self, layout: PolicyLayout, loss: ActorCriticLoss, rows: int, level: str | None = None, *, weighed: bool = False
    ) -> None:
        super().__init__(layout, loss)
        self._weighed = weighed
        self._update: _native.Update = _native.Update(*self._graph, *loss, rows, level, weighed)

    def pack(self, state: Mapping[str, Array], rows: Mapping[str, Array], first: int, count: int) -> None:
        """Copy rows ``first .. first + count - 1`` into records, one for each row. Minibatches are gathered from them.

        Args:
            state: holds the running statistics if the policy normalises.
            rows: observation fields, ``action``, ``log_prob``, ``advantage`` and ``target``: ``[rows, ...]``; also
                ``importance`` if rows are weighed.
            first: first flat row.
            count: number of rows. Rows that are not valid may hold anything.
        """
        self._update.pack(
            [rows[field] for field in self._layout.fields],
            rows["action"],
            rows["log_prob"],
            rows["advantage"],
            rows["target"],
            first,
            count,
            *self._statistics(state),
            rows["importance"] if self._weighed else None,
        )


class CorrectedUpdate(_StreamUpdate):
    """Trains one policy on whole lanes that older policies collected. Not for several threads at once.

    Before each gradient step one pass of the networks gives the importance weights and the values of the minibatch, and
    V-trace its advantages and targets. Results are as bit-identical as those of `ActorCriticUpdate`.

    Args:
        layout: layout of a policy whose critic is a network of its own.
        loss: the plain policy gradient, and the optimizer's numbers.
        lanes: how the lanes lie, and V-trace's numbers.
        rows: number of flat rows in a batch.
        level: instruction-set level; ``None``: the fastest of this processor.

    Raises:
        ValueError: the policy has no critic network, another loss, or the optimizer's epsilon is too small.
    """

    def __init__(
        self,
        layout: PolicyLayout,
        loss: ActorCriticLoss,
        lanes: LaneCorrection,
        rows: int,
        level: str | None = None,
    ) -> None:
        super().__init__(layout, loss)
        self._update: _native.CorrectedUpdate = _native.CorrectedUpdate(*self._graph, *loss, lanes, rows, level)

    def pack(self, state: Mapping[str, Array], rows: Mapping[str, Array], first: int, count: int) -> None:
        """Copy rows ``first .. first + count - 1``, among them the one behind each lane.

        Args:
            state: holds the running statistics if the policy normalises.
            rows: observation fields, ``action``, ``log_prob``, ``reward``, ``terminated``, ``truncated``, ``valid``,
                ``bootstrap`` and ``size``: ``[rows, ...]``.
            first: first flat row.
            count: number of rows. Of a row that is not valid, only the observation counts.
        """
        self._update.pack(
            [rows[field] for field in self._layout.fields],
            rows["action"],
            rows["log_prob"],
            rows["reward"],
            rows["terminated"],
            rows["truncated"],
            rows["valid"],
            rows["bootstrap"],
            rows["size"],
            first,
            count,
            *self._statistics(state),
        )
