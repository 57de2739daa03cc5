"""PPO as an object: `ParallelPPO` on all cores of one machine, `DistributedPPO` on all machines of a Ray cluster.

Each makes a config from its arguments, calls ``run.train`` and keeps the trained policy.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from penstock.algorithms.ppo.spec import PPOConfig
from penstock.config.schema import RunConfig
from penstock.config.sources import Setting, from_settings
from penstock.config.values import count_of
from penstock.envs.given import named
from penstock.errors import ConfigError, PenstockError
from penstock.run import Result, train
from penstock.serving.policy import Policy
from penstock.types import EnvFactory

__all__ = ["DistributedPPO", "ParallelPPO"]


P = ParamSpec("P")


def _begun_by(
    begin: Callable[[Any, str | EnvFactory, Mapping[str, Any]], None],
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let a constructor that only declares its parameters call ``begin`` with those that its caller gives.

    A default is for the reader. What is left out may follow from other settings, as ``num_envs`` does from
    ``num_workers``, so it must not arrive as if it had been given.
    """

    def declared(init: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(init)

        @functools.wraps(init)
        def begun(*args: P.args, **settings: P.kwargs) -> None:
            given = signature.bind(*args, **settings).arguments
            ppo, env_name, more = given.pop("self"), given.pop("env_name"), given.pop("settings", {})
            begin(ppo, env_name, {**given, **more})

        return begun

    return declared


class ParallelPPO:
    """PPO with parallel environments, on all cores of this machine.

    Args:
        env_name: a Gymnasium id, ``module:name``, or a callable that makes an environment.
        num_envs: environments that are stepped side by side. Left out beside ``num_workers``: the least multiple of
            that number that is at least the default.
        num_steps: steps of each environment in one batch.
        epochs: passes over each batch.
        mini_batch_size: rows of one gradient step. Left out with a memory: at most a quarter of all lanes.
        lr: learning rate.
        gamma: discount of later rewards.
        gae_lambda: how advantages are estimated, from 0 by the critic to 1 by the returns.
        clip_param: largest relative change of an action's probability in one update.
        value_coef: weight of the value loss.
        entropy_coef: weight of the policy's entropy.
        max_grad_norm: largest norm of a gradient.
        seed: of networks, episodes and noise.
        device: ``cpu``, ``cuda`` or ``cuda:N``, of the learner.
        log_dir: folder for run folders.
        settings: any other setting of ``penstock train`` by its name. ``penstock train --help`` lists all of them with
            their defaults.

    Raises:
        ConfigError: an unknown setting, a value out of range, or a second environment or algorithm.

    Example:
        ppo = penstock.ParallelPPO(env_name="Pendulum-v1", num_envs=8, seed=0)
        result = ppo.train(total_timesteps=1_000_000)
        print(result.evaluation.mean_return)
        action = ppo.policy([1.0, 0.0, 0.0])
    """

    def _begin(self, env_name: str | EnvFactory, settings: Mapping[str, Any]) -> None:
        _check(settings)
        self._settings = {"env": env_name, "algo": "ppo", **settings}
        self._policy: Policy | None = None
        plain, _ = named(self._settings)
        from_settings({name: Setting(value, name, text=False) for name, value in plain.items()}, _arguments(type(self)))

    @_begun_by(_begin)
    def __init__(  # noqa: PLR0917 - in the order of the published call
        self,
        env_name: str | EnvFactory,
        num_envs: int = RunConfig.num_envs,
        num_steps: int = PPOConfig.num_steps,
        epochs: int = PPOConfig.epochs,
        mini_batch_size: int = PPOConfig.mini_batch_size,
        lr: float = PPOConfig.lr,
        gamma: float = PPOConfig.gamma,
        gae_lambda: float = PPOConfig.gae_lambda,
        clip_param: float = PPOConfig.clip_param,
        value_coef: float = PPOConfig.value_coef,
        entropy_coef: float = PPOConfig.entropy_coef,
        max_grad_norm: float = PPOConfig.max_grad_norm,
        seed: int = RunConfig.seed,
        device: str = RunConfig.device,
        log_dir: str = RunConfig.log_dir,
        **settings: Any,  # noqa: ANN401 - a setting has its own type
    ) -> None: ...

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """Train from the beginning, evaluate, and return the result.

        Args:
            total_timesteps: environment steps, all lanes together.
            settings: ``log_interval``, ``save_interval`` (both in updates), or any other setting for this run.

        Returns:
            The run folder, the final evaluation and the trained policy. `policy` uses this policy from now on.

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
        """Greedy actions of the policy that `train` has trained last. See `penstock.Policy`.

        Args:
            obs: one observation as the environment gives it, or a batch ``[n, ...]``.

        Returns:
            One action of the environment's action space, or a batch ``[n, ...]``.

        Raises:
            PenstockError: nothing has been trained yet.
            BadDataError: the observation does not fit its space.
            UsageError: the policy has a memory; use ``result.policy.session(n)`` of what `train` returned.
        """
        if self._policy is None:
            raise PenstockError("there is no policy yet; call train first")
        return self._policy(obs)


def _arguments(ppo: "type[ParallelPPO]") -> dict[str, Any]:
    """Name -> default of each argument that its call declares."""
    declared = inspect.signature(ppo).parameters.values()
    return {one.name: one.default for one in declared if one.kind is not inspect.Parameter.VAR_KEYWORD}


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
        buffer_size: rows of an update. ``None``: ``num_workers * steps_per_worker``. It may take the place of
            ``steps_per_worker``: each environment then gives its share of them.
        settings: any other setting of ``penstock train`` by its name, with the same defaults: ``epochs``,
            ``mini_batch_size``, ``lr``, ``device``, ``address`` of the cluster, ... ``num_steps`` is none of them: it
            follows from ``steps_per_worker`` or ``buffer_size``.

    Raises:
        ConfigError: an unknown setting, a value out of range, a buffer that cannot be shared out evenly, or one that is
            not what the workers give.

    Example:
        ppo = penstock.DistributedPPO("Pendulum-v1", num_workers=16, steps_per_worker=512, address="auto")
        result = ppo.train(total_timesteps=1_000_000)
    """

    def _begin_on_cluster(self, env_name: str | EnvFactory, settings: Mapping[str, Any]) -> None:
        if "num_steps" in settings:
            raise ConfigError(
                "num_steps follows from steps_per_worker or buffer_size; give one of these, and leave num_steps out"
            )
        given = {**_arguments(DistributedPPO), **settings, "env_name": env_name}
        name = "num_envs" if "num_envs" in given else "num_workers"
        lanes = given["num_envs"] = count_of(given[name], name)
        steps = count_of(given.pop("steps_per_worker"), "steps_per_worker")
        if (rows := given.pop("buffer_size")) is not None:
            wanted, steps = steps, _share(count_of(rows, "buffer_size"), lanes)
            if "steps_per_worker" in settings and steps != wanted:
                raise ConfigError(
                    f"buffer_size {rows} does not go with steps_per_worker {wanted}: {lanes} environments give "
                    f"{lanes * wanted} rows to an update; leave out one of the two"
                )
        super().__init__(**{"runtime": "ray", "num_steps": steps, **given})

    @_begun_by(_begin_on_cluster)
    def __init__(
        self,
        env_name: str | EnvFactory,
        num_workers: int = 4,
        steps_per_worker: int = 512,
        *,
        sync_mode: str = "blocking",
        buffer_size: int | None = None,
        **settings: Any,  # noqa: ANN401 - a setting has its own type
    ) -> None: ...

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """As `ParallelPPO.train`. Errors of a wrong call name this class."""
        return super().train(total_timesteps, **settings)


def _share(rows: int, lanes: int) -> int:
    """The steps of each of so many environments in a buffer of so many rows.

    Raises:
        ConfigError: they cannot be shared out evenly.
    """
    if rows % lanes:
        raise ConfigError(
            f"buffer_size {rows} cannot be shared out evenly among {lanes} environments; give a multiple of {lanes}"
        )
    return rows // lanes
