"""PPO as an object: `ParallelPPO` on all cores of one machine, `DistributedPPO` on all machines of a Ray cluster.

Each makes a config from its arguments, calls ``run.train`` and keeps the trained policy.
"""

from collections.abc import Mapping
from typing import Any

from penstock.config.sources import from_mapping
from penstock.config.values import count_of
from penstock.envs.given import named
from penstock.errors import ConfigError, PenstockError
from penstock.run import Result, train
from penstock.serving.policy import Policy
from penstock.types import EnvFactory

__all__ = ["DistributedPPO", "ParallelPPO"]


class ParallelPPO:
    """PPO with parallel environments.

    Args:
        env_name: a Gymnasium id, ``module:name``, or a callable that makes an environment.
        settings: any setting of ``penstock train`` by its name: ``num_envs``, ``num_steps``, ``epochs``,
            ``mini_batch_size``, ``lr``, ``gamma``, ``gae_lambda``, ``clip_param``, ``value_coef``, ``entropy_coef``,
            ``max_grad_norm``, ``seed``, ``device``, ``log_dir``, ... ``penstock train --help`` lists all of them with
            their defaults.

    Raises:
        ConfigError: an unknown setting, a value out of range, or a second environment or algorithm.
    """

    def __init__(self, env_name: str | EnvFactory, **settings: Any) -> None:  # noqa: ANN401 - a setting has its own type
        _check(settings)
        self._settings = {"env": env_name, "algo": "ppo", **settings}
        self._policy: Policy | None = None
        from_mapping(named(self._settings)[0])

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """Train from the beginning, evaluate, and return the result.

        Args:
            total_timesteps: environment steps, all lanes together.
            settings: ``log_interval``, ``save_interval`` (both in updates), or any other setting for this run.

        Raises:
            UsageError: the environment, its spaces or the device cannot be used; or ``settings`` name another
                environment, another algorithm, or ``timesteps``.
            NodeError: a node of the run failed.
        """
        _check(settings)
        if "timesteps" in settings:
            raise ConfigError("train takes timesteps as total_timesteps; leave timesteps out")
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


def _check(settings: Mapping[str, object]) -> None:
    """Refuse settings that would take the place of ``env_name``, or of PPO.

    Raises:
        ConfigError: there is one.
    """
    if "env" in settings:
        raise ConfigError("the environment is given as env_name; leave env out")
    if settings.get("algo", "ppo") != "ppo":
        raise ConfigError(
            f"algo {settings['algo']} is not PPO; leave algo out, or call penstock.train({{'algo': ...}}) with it"
        )


class DistributedPPO(ParallelPPO):
    """PPO with one environment in each of ``num_workers`` processes, on the machines of a Ray cluster.

    Args:
        env_name: as in `ParallelPPO`.
        num_workers: environment processes. Each has one environment, unless ``num_envs`` says otherwise.
        steps_per_worker: steps that each environment gives to an update.
        sync_mode: ``blocking``: collecting and learning take turns, in lock step; ``non_blocking``: they overlap, and
            experience older than ``max_policy_lag`` updates is dropped.
        buffer_size: rows of an update. ``None``: ``num_workers * steps_per_worker``. Another number changes the steps
            that each environment gives.
        settings: any other setting of ``penstock train`` by its name, with the same defaults: ``epochs``,
            ``mini_batch_size``, ``lr``, ``device``, ``address`` of the cluster, ... ``num_steps`` is none of them: it
            follows from ``steps_per_worker`` or ``buffer_size``.

    Raises:
        ConfigError: an unknown setting, a value out of range, or a buffer that cannot be shared out evenly.
    """

    def __init__(
        self,
        env_name: str | EnvFactory,
        num_workers: int = 4,
        steps_per_worker: int = 512,
        *,
        sync_mode: str = "blocking",
        buffer_size: int | None = None,
        **settings: Any,  # noqa: ANN401 - a setting has its own type
    ) -> None:
        if "num_steps" in settings:
            raise ConfigError(
                "num_steps follows from steps_per_worker or buffer_size; give one of these, and leave num_steps out"
            )
        name = "num_envs" if "num_envs" in settings else "num_workers"
        lanes = count_of(settings.pop("num_envs", num_workers), name)
        steps = count_of(steps_per_worker, "steps_per_worker")
        rows = lanes * steps if buffer_size is None else count_of(buffer_size, "buffer_size")
        if rows % lanes:
            raise ConfigError(
                f"buffer_size {rows} cannot be shared out evenly among {lanes} environments; give a multiple of {lanes}"
            )
        own = {"num_workers": num_workers, "num_envs": lanes, "num_steps": rows // lanes, "sync_mode": sync_mode}
        super().__init__(env_name, **{"runtime": "ray", **own, **settings})
