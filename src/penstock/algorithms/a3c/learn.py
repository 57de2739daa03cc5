"""Asynchronous advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, algorithm S3).

    d theta   = sum_t grad log pi(a_t | s_t) (R_t - V(s_t)) + c2 grad S[pi(. | s_t)]
    d theta_v = sum_t grad (R_t - V(s_t))^2,    R_t = r_t + gamma R_t+1,   R_T = V(s_T), or 0 if s_T is terminal

The mathematics is A2C's. What makes it A3C is the topology: each environment process computes the gradients of its own
rollouts, and a node applies them to the shared parameters one by one, with one optimizer for all (section 4),
by default RMSprop.

Deviations:

- The gradient is a mean over the rows of a rollout, not a sum.
- It is found with the latest parameters at the end of the rollout, which was played with those at its beginning.
- The parameters have one owner, so no gradient is half overwritten by another.
- Actor and critic share layers only if the observation is an image.
- A time limit bootstraps from the value of the last observation.

Functions here know no process, environment, loop or device.
"""

from penstock.algorithms.a2c.learn import build

__all__ = ["build"]
