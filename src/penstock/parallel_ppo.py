"""PPO as an object: `ParallelPPO` on all cores of one machine, `DistributedPPO` on all machines of a Ray cluster.

Each makes a config from its arguments, calls ``run.train`` and keeps the trained policy.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, ParamSpec

from penstock.algorithms.ppo.spec import PPOConfig
from penstock.config.fields import field_table
from penstock.config.runtimes import CLUSTER
from penstock.config.schema import RunConfig
from penstock.config.sources import Setting, from_settings
from penstock.config.values import count_of, from_value
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

    Raises:
        ConfigError: the constructor gets ``env`` in place of ``env_name``.
    """

    def declared(init: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(init)

        @functools.wraps(init)
        def begun(*args: P.args, **settings: P.kwargs) -> None:
            own, *others = args
            if "env" in settings and not others and "env_name" not in settings:
                name = type(own).__name__
                raise ConfigError(f"the environment is called env_name here, not env; write {name}(env_name=...)")
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

    _OF_CONSTRUCTOR: ClassVar[tuple[str, ...]] = ("env_name",)
    """Arguments of the constructor that `train` cannot change."""

    def _begin(self, env_name: str | EnvFactory, settings: Mapping[str, Any]) -> None:
        _check(settings)
        self._settings = {"env": env_name, "algo": "ppo", **settings}
        self._policy: Policy | None = None
        _known(self._settings, _arguments(type(self)))

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

    def _check_of_train(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that `train` does not take.

        Raises:
            ConfigError: there is one.
        """
        _check(settings)
        if "timesteps" in settings:
            raise ConfigError("train takes timesteps as total_timesteps; leave timesteps out")
        for name in self._OF_CONSTRUCTOR:
            if name in settings:
                own = type(self).__name__
                raise ConfigError(f"{name} is an argument of the constructor, not of train; give it to {own}(...)")

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """Train from the beginning, evaluate, and return the result.

        Args:
            total_timesteps: environment steps, all lanes together.
            settings: ``log_interval``, ``save_interval`` (both in updates), or any other setting for this run.

        Returns:
            The run folder, the final evaluation and the trained policy. `policy` uses this policy from now on.

        Raises:
            UsageError: the environment, its spaces or the device cannot be used; or ``settings`` name another
                environment, another algorithm, ``timesteps``, or an argument that only the constructor takes.
            NodeError: a node of the run failed.
        """
        self._check_of_train(settings)
        timesteps = from_value(field_table(RunConfig)["timesteps"], total_timesteps, "total_timesteps")
        result = train({**self._settings, "timesteps": timesteps, **settings})
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


def _known(settings: Mapping[str, Any], arguments: Iterable[str]) -> None:
    """Refuse unknown settings, and values out of range.

    Args:
        settings: of the run.
        arguments: further names to suggest for an unknown one.

    Raises:
        ConfigError: see `penstock.from_mapping`.
    """
    plain, _ = named(settings)
    from_settings({name: Setting(value, name, text=False) for name, value in plain.items()}, arguments)


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
        steps_per_worker: steps that each process gives to an update. With ``num_envs``, the environments of a process
            share them.
        sync_mode: ``blocking``: collecting and learning take turns, in lock step; ``non_blocking``: they overlap, and
            experience older than ``max_policy_lag`` updates is dropped.
        buffer_size: rows of an update. ``None``: ``num_workers * steps_per_worker``. It may take the place of
            ``steps_per_worker``: each environment then gives its share of them.
        settings: any other setting of ``penstock train`` by its name, with the same defaults: ``epochs``,
            ``mini_batch_size``, ``lr``, ``device``, ``address`` of the cluster, ... ``num_steps`` is none of them: it
            follows from ``steps_per_worker`` or ``buffer_size``. ``distributed=False`` and another ``runtime`` are
            refused: `ParallelPPO` is for one machine.

    Raises:
        ConfigError: an unknown setting, a value out of range, a buffer or steps that cannot be shared out evenly, or a
            buffer that is not what the workers give.

    Example:
        ppo = penstock.DistributedPPO("Pendulum-v1", num_workers=16, steps_per_worker=512, address="auto")
        result = ppo.train(total_timesteps=1_000_000)
    """

    _OF_CONSTRUCTOR: ClassVar[tuple[str, ...]] = (
        "env_name",
        "num_workers",
        "num_envs",
        "steps_per_worker",
        "buffer_size",
    )

    def _begin_on_cluster(self, env_name: str | EnvFactory, settings: Mapping[str, Any]) -> None:
        _check_on_cluster(settings)
        given = {**_arguments(DistributedPPO), **settings, "env_name": env_name}
        workers = count_of(given["num_workers"], "num_workers")
        lanes = given["num_envs"] = count_of(given.get("num_envs", workers), "num_envs")
        steps = count_of(given.pop("steps_per_worker"), "steps_per_worker")
        wanted = workers * steps
        if (buffer := given.pop("buffer_size")) is not None:
            rows = count_of(buffer, "buffer_size")
            if "steps_per_worker" in settings and rows != wanted:
                raise ConfigError(
                    f"buffer_size {rows} does not go with steps_per_worker {steps}: {workers} workers give "
                    f"{wanted} rows to an update; leave out one of the two"
                )
            steps = _share(rows, f"buffer_size {rows}", lanes)
        elif not lanes % workers:
            # Other numbers of environments are refused below.
            steps = _share(steps, f"steps_per_worker {steps}", lanes // workers)
        super().__init__(**{"runtime": CLUSTER, "num_steps": steps, **given})

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

    def _check_of_train(self, settings: Mapping[str, Any]) -> None:
        _check_on_cluster(settings)
        super()._check_of_train(settings)

    def train(self, total_timesteps: int, **settings: Any) -> Result:  # noqa: ANN401 - as above
        """As `ParallelPPO.train`. Errors of a wrong call name this class."""
        return super().train(total_timesteps, **settings)


def _check_on_cluster(settings: Mapping[str, object]) -> None:
    """Refuse the steps of each environment, which follow from other arguments, and a run on one machine.

    Raises:
        ConfigError: they are given.
    """
    if "num_steps" in settings:
        raise ConfigError(
            "num_steps follows from steps_per_worker or buffer_size; give DistributedPPO(...) one of these, and leave "
            "num_steps out"
        )
    for name, wanted in (("distributed", True), ("runtime", CLUSTER)):
        if settings.get(name, wanted) != wanted:
            raise ConfigError(
                f"{name} {settings[name]} does not go with DistributedPPO, which trains on a Ray cluster; leave {name} "
                "out, or use ParallelPPO for one machine"
            )


def _share(steps: int, label: str, lanes: int) -> int:
    """The steps of each of so many environments, if all together take so many.

    Raises:
        ConfigError: they cannot be shared out evenly.
    """
    if steps % lanes:
        raise ConfigError(f"{label} cannot be shared out evenly among {lanes} environments; give a multiple of {lanes}")
    return steps // lanes
