"""MPPI: a planner that samples plans in a model of the environment, and needs no training. Learns nothing.

G. Williams, N. Wagener, B. Goldfain et al., *Information Theoretic MPC for Model-Based Reinforcement Learning*, 2017,
algorithm 2.
"""

import math
from collections.abc import Callable

import gymnasium
import numpy as np

from penstock.config.values import count_of
from penstock.errors import BadDataError, ConfigError
from penstock.kernels.noise import normal
from penstock.types import Array

__all__ = ["MPPI"]

Model = Callable[[Array, Array], tuple[Array, Array, Array]]
"""Observations ``[samples, ...]`` and actions ``[samples, ...]`` in the environment's units -> the next observations,
rewards ``[samples]`` and whether the episodes have terminated ``[samples]``."""


class MPPI:
    """Model-predictive path integral control (MPPI) of one environment.

    Each call samples plans around the present one, plays them in the model, and moves the plan towards those with
    large returns. It returns the plan's first action.

    Args:
        model: predicts one step of many samples at once. It takes observations ``[samples, ...]`` and actions
            ``[samples, ...]`` in the environment's units, and returns the next observations, rewards ``[samples]``, and
            whether the episodes have terminated ``[samples]``.
        action_space: a Box of floats whose bounds are finite.
        horizon: steps of a plan.
        samples: plans that are tried at each call.
        temperature: in units of returns. A plan that is worse by this much counts 1/e as much; small: the best plan
            counts alone.
        deviation: standard deviation of the sampled plans, in halves of each action's range.
        gamma: discount of rewards within a plan.
        value: observations ``[samples, ...]`` -> the value of what comes behind a plan, ``[samples]``; ``None``: 0.
        seed: of the samples. Calls with the same seed, in the same order, return the same actions.

    Raises:
        ConfigError: the action space is no Box of floats with finite bounds, or a number is out of its range.

    Example:
        planner = penstock.MPPI(model, env.action_space, horizon=30, samples=256)
        obs, _ = env.reset()
        planner.begin()
        action = planner(obs)
    """

    def __init__(
        self,
        model: Model,
        action_space: gymnasium.Space[Array],
        *,
        horizon: int = 30,
        samples: int = 256,
        temperature: float = 1.0,
        deviation: float = 0.5,
        gamma: float = 0.99,
        value: Callable[[Array], Array] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(action_space, gymnasium.spaces.Box) or not action_space.is_bounded():
            raise ConfigError(f"MPPI needs a Box of actions whose bounds are finite, not {action_space}")
        if not np.issubdtype(action_space.dtype, np.floating):
            raise ConfigError(
                f"MPPI needs a Box of floats, not of {action_space.dtype}; give one with dtype=np.float32"
            )
        if not callable(model):
            raise ConfigError(f"the model of MPPI is a function of states and actions, not {model!r}")
        if seed < 0:
            raise ConfigError(f"seed is {seed}; give a whole number of at least 0")
        for name, number in {"temperature": temperature, "deviation": deviation}.items():
            if not 0.0 < number < math.inf:
                raise ConfigError(f"{name} is {number}; give a number above 0")
        if not 0.0 <= gamma <= 1.0:
            raise ConfigError(f"gamma is {gamma}; give a number from 0 to 1")
        self._model, self._value, self._space, self._seed = model, value, action_space, seed
        self._samples, self._temperature, self._deviation = count_of(samples, "samples"), temperature, deviation
        self._discounts = gamma ** np.arange(count_of(horizon, "horizon") + 1)
        self._middle = (action_space.high.astype(np.float64) + action_space.low) / 2.0
        self._half = action_space.high.astype(np.float64) - self._middle
        self._calls = 0
        self.plan: Array = np.zeros((horizon, *action_space.shape))
        """``[horizon, ...]``: the actions that are planned, in halves of their range: from -1 to 1."""

    def begin(self) -> None:
        """Forget the plan, because an episode begins."""
        self.plan[...] = 0.0

    def __call__(self, obs: Array) -> Array:
        """Plan from this observation.

        Args:
            obs: one observation, as the environment gives it.

        Returns:
            The next action, in the environment's units and dtype.

        Raises:
            BadDataError: the model gave a reward that is NaN or infinite, or ``value`` a value; or the model gave
                other arrays than three of a row for each plan.
        """
        size = self._samples * self.plan.size
        noise = normal(self._seed, np.zeros(1, np.int64), self._calls, size).reshape(self._samples, *self.plan.shape)
        self._calls += 1
        plans = np.clip(self.plan + self._deviation * noise, -1.0, 1.0)
        weights = path_weights(self._returns(np.asarray(obs), plans), self._temperature)
        self.plan = np.tensordot(weights, plans, 1)
        action = self._in_units(self.plan[0])
        # The next call plans from one step later. Nothing is known of the step that is new.
        self.plan = np.concatenate([self.plan[1:], np.zeros_like(self.plan[:1])])
        return action

    def _returns(self, obs: Array, plans: Array) -> Array:
        """``[samples]``: the return of each plan, as the model predicts it."""
        state = np.repeat(obs[None], self._samples, axis=0)
        found, goes_on = np.zeros(self._samples), np.ones(self._samples, np.bool_)
        for step in range(plans.shape[1]):
            state, reward, terminated = self._predicted(state, self._in_units(plans[:, step]))
            if not np.isfinite(reward[goes_on]).all():
                raise BadDataError(f"the model of MPPI gave a reward that is NaN or infinite, {step} steps ahead")
            found += self._discounts[step] * np.where(goes_on, reward, 0.0)
            goes_on &= ~terminated
        if self._value is not None:
            value = np.asarray(self._value(state))
            if not np.isfinite(value[goes_on]).all():
                raise BadDataError("value of MPPI is NaN or infinite for some plan")
            found += self._discounts[-1] * np.where(goes_on, value, 0.0)
        return found

    def _predicted(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        """What the model returns, with rewards and ends as arrays ``[samples]``."""
        found = self._model(state, action)
        if not isinstance(found, tuple) or len(found) != 3:
            raise BadDataError("the model of MPPI returns three arrays: the next states, rewards and terminated")
        following, *others = found
        reward, terminated = np.asarray(others[0], np.float64), np.asarray(others[1], np.bool_)
        for name, values in {"rewards": reward, "terminated": terminated}.items():
            if values.shape != (self._samples,):
                raise BadDataError(f"{name} of the model of MPPI are {list(values.shape)}, not [{self._samples}]")
        return following, reward, terminated

    def _in_units(self, action: Array) -> Array:
        return (self._middle + self._half * action).astype(self._space.dtype)


def path_weights(returns: Array, temperature: float) -> Array:
    """``[samples]``: how much each plan counts; they add up to 1. ``returns`` ``[samples]``."""
    weights = np.exp((returns - returns.max()) / temperature)
    shares: Array = weights / weights.sum()
    return shares
