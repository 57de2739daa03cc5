"""APPO as one native update: PPO's, on the advantages that V-trace gives a rollout under the learner's own policy.

Imports no torch. Does not run images, shared trunks, policies with memory, a target network, a penalty on the
divergence and devices: those run ``learn.py``.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from penstock.algorithm import Fused, StreamShape, Tensors
from penstock.algorithms.appo.rollouts import corrected
from penstock.algorithms.appo.spec import APPOConfig
from penstock.algorithms.ppo.fused import ScheduledUpdate, objective, parameters_of
from penstock.algorithms.ppo.fused import supports as supports_plain
from penstock.algorithms.ppo.rollouts import statistics
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.pace import Pace
from penstock.kernels.policy import PolicyKernel
from penstock.kernels.update import ActorCriticUpdate
from penstock.policies import PolicyGraph
from penstock.policies.native import layout_of
from penstock.types import Array, Arrays, Spaces

__all__ = ["ProximalUpdate", "Recomputed", "build", "supports"]


def supports(graph: PolicyGraph, config: APPOConfig) -> bool:
    """True if the native update can train ``graph`` with ``config``. It keeps no target network."""
    return supports_plain(graph, config) and not config.target_every


def build(spaces: Spaces, config: APPOConfig) -> Fused:
    """APPO on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    graph = policy_graph(spaces, config)

    def update(shape: StreamShape, threads: int) -> ScheduledUpdate:
        kernel = ActorCriticUpdate(layout_of(graph), objective(config), shape.rows, weighed=True)
        work = parameters_of(graph)
        return ProximalUpdate(kernel, config, Pace(threads), work, normalizes=config.normalize_advantage)

    return Fused(Recomputed(graph, config).targets, partial(statistics, graph), update)


class Recomputed:
    """Runs the learner's policy over rollouts, and gives their targets.

    Args:
        graph: the policy.
        config: the bounds and discounts of V-trace.

    Raises:
        ValueError: the kernels cannot run the policy.
    """

    def __init__(self, graph: PolicyGraph, config: APPOConfig) -> None:
        self._fields = (*graph.fields, "action")
        self._kernel = PolicyKernel(layout_of(graph))
        self._config = config

    def targets(self, state: Tensors, rollout: Mapping[str, Array]) -> Arrays:
        """Advantages, value targets and proximal log-probabilities ``[T, B]`` of one slot, from the state's policy."""
        self._kernel.load(state)
        shape = rollout["reward"].shape
        rows = {name: rollout[name].reshape(-1, *rollout[name].shape[2:]) for name in self._fields}
        log_prob, value = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._kernel.judge(rows, log_prob.reshape(-1), value.reshape(-1))
        return corrected(self._config, rollout, log_prob[:-1], value)


class ProximalUpdate(ScheduledUpdate):
    """PPO's native update, with ratios to the policy before the batch."""

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch."""
        super().pack(state, {**rows, "log_prob": rows["proximal_log_prob"]}, first, count)
