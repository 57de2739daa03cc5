"""Distributed prioritised replay, Ape-X DQN (Horgan et al. 2018, https://arxiv.org/abs/1803.00933).

    epsilon_i = base^(1 + power i / (N - 1)) for lane i of N                                            (section 4.1)
    y         = sum_{k<n} gamma^k r_k + gamma^n Q'(s', argmax_a Q(s', a)),   n = 3                       (equation 1)
    L(theta)  = E[ w huber(Q(s, a) - y) ]
    priority  = |Q(s, a) - y|                                                                       (algorithms 1 and 2)

An environment node computes a row's first priority when it writes the row, from the values that the policy gave while
acting (``priorities.py``). A learner computes it anew each time it learns from the row.

All else is DQN with these settings.

Deviations:

- All deviations of DQN.
- Q is dueling only if ``dueling`` is on.
- The first priority of a row near the end of its slot counts only the steps within the slot.
- With atoms, the first priority is the largest priority so far.
- The correction by importance weights grows to its full strength in the course of a run.

Functions here know no process, environment, loop or device.
"""

from penstock.algorithm import Algorithm
from penstock.algorithms.apex.spec import ApexConfig
from penstock.algorithms.dqn.learn import phases
from penstock.algorithms.dqn.spec import policy_graph
from penstock.algorithms.off_policy.learn import algorithm_of
from penstock.torch_networks.policy import Policy
from penstock.types import Spaces

__all__ = ["build"]


def build(spaces: Spaces, config: ApexConfig) -> Algorithm:
    """Ape-X on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config, "apex"), config.precision)
    return algorithm_of(policy, spaces, *phases(policy, config))
