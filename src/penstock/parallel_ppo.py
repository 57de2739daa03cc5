"""ParallelPPO: PPO on all cores of one machine, as an object.

Makes a config from its arguments, calls ``run.train`` and keeps the trained policy.
"""

from typing import Any

from penstock.config.sources import from_mapping
from penstock.envs.given import named
from penstock.errors import PenstockError
from penstock.run import Result, train
from penstock.serving.policy import Policy
from penstock.types import EnvFactory

__all__ = ["ParallelPPO"]


class ParallelPPO:
    """PPO with parallel environments.

    Args:
        env_name: a Gymnasium id, ``module:name``, or a callable that makes an environment.
        settings: any setting of ``penstock train`` by its name: ``num_envs``, ``num_steps``, ``epochs``,
            ``mini_batch_size``, ``lr``, ``gamma``, ``gae_lambda``, ``clip_param``, ``value_coef``, ``entropy_coef``,
            ``max_grad_norm``, ``seed``, ``device``, ``log_dir``, ... ``penstock train --help`` lists all of them with
            their defaults.

    Raises:
        ConfigError: an unknown setting, or a value out of range.
    """

    def __init__(self, env_name: str | EnvFactory, **settings: Any) -> None:  # noqa: ANN401 - a setting has its own type
        self._settings = {"env": env_name, "algo": "ppo", **settings}
        self._policy: Policy | None = None
        from_mapping(named(self._settings)[0])

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """Train from the beginning, evaluate, and return the result.

        Args:
            total_timesteps: environment steps, all lanes together.
            settings: ``log_interval``, ``save_interval`` (both in updates), or any other setting for this run.

        Raises:
            UsageError: the environment, its spaces or the device cannot be used.
            NodeError: a node of the run failed.
        """
        result = train({**self._settings, "timesteps": total_timesteps, **settings})
        self._policy = result.policy
        return result

    def policy(self, obs: Any) -> Any:  # noqa: ANN401 - whatever the spaces hold
        """Greedy actions for one observation or for a batch; see ``serving.policy.Policy``.

        Raises:
            PenstockError: nothing has been trained yet.
        """
        if self._policy is None:
            raise PenstockError("there is no policy yet; call train first")
        return self._policy(obs)
