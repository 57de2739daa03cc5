"""PPO as one native update: the mathematics of ``learn.py`` in ``kernels``, for separate MLPs on the CPU.

Imports no torch. Does not run images, shared trunks, a penalty on the divergence and devices: those run ``learn.py``.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from penstock.algorithm import Fused, StreamShape, Tensors
from penstock.algorithms.optimizer.fused import native_optimizer, steps_natively
from penstock.algorithms.ppo.rollouts import statistics, targets
from penstock.algorithms.ppo.spec import ActorCriticConfig, PPOConfig, policy_graph
from penstock.kernels.pace import Pace
from penstock.kernels.update import ActorCriticLoss, ActorCriticUpdate, CorrectedUpdate, Moments
from penstock.policies import PolicyGraph
from penstock.policies.native import layout_of, supports_update
from penstock.types import Array, Arrays, Spaces

__all__ = ["ScheduledUpdate", "build", "fused", "learning_rate", "loss_of", "objective", "parameters_of", "supports"]


def supports(graph: PolicyGraph, config: ActorCriticConfig) -> bool:
    """True if the native update can train ``graph`` with ``config``. It knows no penalty on the divergence."""
    if isinstance(config, PPOConfig) and config.kl_coef:
        return False
    return config.precision == "float32" and supports_update(graph) and steps_natively(config)


def build(spaces: Spaces, config: PPOConfig) -> Fused:
    """PPO on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    graph = policy_graph(spaces, config)
    return fused(graph, config, objective(config))


def objective(config: PPOConfig) -> ActorCriticLoss:
    """The clipped surrogate with its value and entropy terms, and the optimizer."""
    return loss_of(config, clip_param=config.clip_param, normalize_advantage=config.normalize_advantage)


def loss_of(config: ActorCriticConfig, *, clip_param: float | None, normalize_advantage: bool) -> ActorCriticLoss:
    """The loss of an actor-critic, and the optimizer. Without ``clip_param`` it is the plain policy gradient."""
    return ActorCriticLoss(
        clip_param=clip_param,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        max_grad_norm=config.max_grad_norm,
        clip_apart=config.clip_apart,
        normalize_advantage=normalize_advantage,
        optimizer=native_optimizer(config),
    )


def fused(graph: PolicyGraph, config: ActorCriticConfig, loss: ActorCriticLoss) -> Fused:
    """The fused functions of an on-policy actor-critic with this loss."""

    def update(shape: StreamShape, threads: int) -> ScheduledUpdate:
        kernel = ActorCriticUpdate(layout_of(graph), loss, shape.rows)
        return ScheduledUpdate(kernel, config, Pace(threads), parameters_of(graph), normalizes=loss.normalize_advantage)

    return Fused(partial(targets, config), partial(statistics, graph), update)


def parameters_of(graph: PolicyGraph) -> int:
    """The number of parameters of all networks."""
    return sum(network.num_parameters for network in graph.networks)


class ScheduledUpdate:
    """A native update, with a learning rate that depends on the progress of the run. A `FusedUpdate`.

    Args:
        kernel: the native update.
        config: gives the learning rate and its schedule.
        pace: gives the number of threads. The results are the same bit for bit.
        work: rows times parameters of one index of a minibatch.
        normalizes: the loss normalises advantages, so a share's gradients need the moments of the whole minibatch.
    """

    phase = "actor_critic"

    def __init__(
        self,
        kernel: ActorCriticUpdate | CorrectedUpdate,
        config: ActorCriticConfig,
        pace: Pace,
        work: int,
        *,
        normalizes: bool,
    ) -> None:
        self._kernel = kernel
        self._config = config
        self._pace = pace
        self._work = work
        self._normalizes = normalizes
        self._advantage: Array = np.empty(0, np.float32)
        self._lr = config.lr

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch."""
        if self._normalizes:
            self._advantage = rows["advantage"]
        self._kernel.pack(state, rows, first, count)

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices[n, m]``, changing ``state`` in place."""
        self._lr = learning_rate(self._config, state)
        with self._paced(indices.size) as threads:
            self._kernel.run(state, indices, weights, self._lr, threads)

    def across_minibatch(self, indices: Array, mean: Callable[[Array], float]) -> Moments | None:
        """The moments of a minibatch's advantages, if the loss normalises them."""
        if not self._normalizes:
            return None
        advantage = self._advantage[indices].astype(np.float64)
        centre = mean(advantage)
        return Moments(centre, math.sqrt(mean((advantage - centre) ** 2)))

    def gradients(self, state: Tensors, indices: Array, weights: Array, across: Moments | None) -> tuple[Arrays, float]:
        """The gradients of a minibatch or of a share of it, and its weight in rows."""
        self._lr = learning_rate(self._config, state)
        with self._paced(indices.size) as threads:
            return self._kernel.gradients(state, indices, weights, across, threads)

    def apply(self, state: Tensors, gradients: Tensors) -> None:
        """Take a step down these gradients, changing ``state`` in place."""
        self._kernel.descend(state, gradients, learning_rate(self._config, state))

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call, and the learning rate of the last minibatch."""
        found = self._kernel.metrics()
        return {**found, "lr": self._lr} if found else found

    @contextlib.contextmanager
    def _paced(self, units: int) -> Iterator[int]:
        """The number of threads for ``units`` units of a minibatch. What it encloses is measured."""
        work = units * self._work
        threads, begun = self._pace.threads(work), time.perf_counter()
        yield threads
        self._pace.took(threads, work, time.perf_counter() - begun)


def learning_rate(config: ActorCriticConfig, state: Tensors) -> float:
    """The learning rate at ``state["progress"]`` of the run."""
    if config.lr_schedule == "linear":
        return config.lr * (1.0 - float(state["progress"]))
    return config.lr
