"""PPO as one native update: the mathematics of ``learn.py`` in ``kernels``, for separate perceptrons on the CPU.

Imports no torch. What it does not serve (images, shared trunks, devices) keeps ``learn.py``.
"""

from functools import partial

from penstock.algorithm import Fused, Tensors
from penstock.algorithms.ppo.rollouts import statistics, targets
from penstock.algorithms.ppo.spec import ActorCriticConfig, PPOConfig, init_state, policy_graph
from penstock.kernels.update import ActorCriticLoss, ActorCriticUpdate, supports_update
from penstock.network import PolicyGraph
from penstock.types import Array, Spaces

__all__ = ["PPOUpdate", "build", "supports"]


def supports(graph: PolicyGraph, config: PPOConfig) -> bool:
    """True if `build` serves a policy like ``graph`` with ``config``: every setting does."""
    del config
    return supports_update(graph)


def build(spaces: Spaces, config: PPOConfig) -> Fused:
    """PPO on ``spaces`` without torch.

    Raises:
        ValueError: when an update is made of a policy for which `supports` is false.
    """
    graph = policy_graph(spaces, config)
    return Fused(
        init_state=partial(init_state, spaces, config),
        targets=partial(targets, config),
        statistics=partial(statistics, graph),
        update=partial(PPOUpdate, graph, config),
    )


class PPOUpdate:
    """The native update with PPO's loss and schedule of the step size."""

    def __init__(self, graph: PolicyGraph, config: PPOConfig, rows: int, threads: int) -> None:
        self._config = config
        self._lr = config.lr
        loss = ActorCriticLoss(
            clip_param=config.clip_param,
            value_coef=config.value_coef,
            entropy_coef=config.entropy_coef,
            max_grad_norm=config.max_grad_norm,
            adam_eps=config.adam_eps,
            normalize_advantage=config.normalize_advantage,
        )
        self._kernel = ActorCriticUpdate(graph, loss, rows, threads)

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch."""
        self._kernel.pack(state, rows, first, count)

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices[n, m]``, changing ``state`` in place."""
        self._lr = learning_rate(self._config, state)
        self._kernel.run(state, indices, weights, self._lr)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call, and the step size of the last."""
        found = self._kernel.metrics()
        return {**found, "lr": self._lr} if found else found


def learning_rate(config: ActorCriticConfig, state: Tensors) -> float:
    """The step size at ``state["progress"]`` of the run."""
    if config.lr_schedule == "linear":
        return config.lr * (1.0 - float(state["progress"]))
    return config.lr
