"""What runs the policy and the update of a run: decided by its networks, its device and the machine.

Starts nothing.
"""

import contextlib
from dataclasses import replace
from typing import Any

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm_package import (
    AlgorithmPackage,
    load_functions,
)
from penstock.config.agreement import shards_of, sync_mode_of
from penstock.config.fields import fields_of
from penstock.config.resolve import Demand
from penstock.config.schema import AUTO, Config
from penstock.config.sources import shown
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError, PenstockError
from penstock.policies.native import supports
from penstock.registry import INFERENCE, TOPOLOGIES, UPDATES, load
from penstock.types import BackendSpec, Spaces
from penstock.updates.calls import UsersFunction

__all__ = ["EACH_COMPILES", "backend_of", "demand", "inference_of"]

EACH_COMPILES = "actor_learners"
"""The topology with a learner in each environment process. All of these would compile the update at once."""


def demand(config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec, spaces: Spaces) -> Demand:
    """The work of an update, and its sync mode. A lower bound: convolutions use each parameter more than once."""
    steps = None
    if spec.table is not None:
        schedule, _ = spec.replay()
        steps = int(config.run.timesteps * schedule.updates_per_step)
    rows = spec.rows(spec.schedule.mini_batch_size, config.algorithm.num_steps)
    multiplications = rows * spec.policy.actor.num_parameters
    # The first mode of a topology is the one that `auto` takes.
    mode = sync_mode_of(config.run, next(iter(TOPOLOGIES[spec.topology])))
    settled = replace(config.run, sync_mode=mode) if config.run.sync_mode == AUTO else config.run
    sharing = config.run.learners if spec.table is None else shards_of(settled)
    eager = spec.topology == EACH_COMPILES
    return Demand(_fused_applies(config, algorithm, spec, spaces), multiplications, steps, mode, eager, sharing)


def _fused_applies(config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec, spaces: Spaces) -> bool:
    """Whether the update can run without torch.

    Raises:
        ConfigError: the user asked for it, and it cannot.
    """
    on_cpu = config.run.device == "cpu"
    serves = _fused_serves(algorithm, spec, config.algorithm)
    name = config.run.backend
    if name != AUTO and UPDATES[name].native and not (on_cpu and serves):
        refused = f"--device {config.run.device}"
        if on_cpu:
            which = _too_much(config.algorithm, algorithm, spaces) or "this model and this optimizer"
            refused = f"--algo {config.run.algo} with {which}"
        raise ConfigError(f"--backend {name} does not run {refused}; try --backend auto")
    return on_cpu and serves


def _fused_serves(algorithm: AlgorithmPackage, spec: AlgorithmSpec, settings: Any) -> bool:  # noqa: ANN401
    """Whether the native update can run this policy with the algorithm's ``settings``.

    Raises:
        ConfigError: ``supports`` of a user's ``fused.py`` fails, or gives no bool.
    """
    if algorithm.supports is None:
        return False
    users = UsersFunction(algorithm.name, *algorithm.supports.split(":"))
    found = users.call(load_functions(algorithm.supports), spec.policy, settings)
    if not isinstance(found, bool):
        raise users.wrong(f"gives {found!r}; return True or False")
    return found


def _too_much(settings: Any, algorithm: AlgorithmPackage, spaces: Spaces) -> str:  # noqa: ANN401
    """The one setting that the native update cannot run, as the user types it; empty if it is not one alone."""
    for field in fields_of(type(settings)):
        value = getattr(settings, field.name)
        if value != field.default:
            with contextlib.suppress(PenstockError):
                without = replace(settings, **{field.name: field.default})
                if _fused_serves(algorithm, load(algorithm.spec)(spaces, without), without):
                    return f"--{field.name} {shown(value)}"
    return ""


def inference_of(config: Config, spec: AlgorithmSpec) -> str:
    """Name of the policy backend: native where it can, then ONNX Runtime on the CPU, then torch.

    Raises:
        ConfigError: the user asked for a backend that cannot run this policy.
    """
    name = config.run.inference
    if name == AUTO:
        name = "native" if supports(spec.policy) else "onnx" if config.run.device == "cpu" else "torch"
    if name == "native" and not supports(spec.policy):
        raise ConfigError("--inference native runs policies of linear layers only; try --inference onnx")
    return name


def backend_of(
    name: str, config: Config, profile: EnvProfile, algorithm: AlgorithmPackage, spec: AlgorithmSpec
) -> BackendSpec:
    """What a process needs to build the policy backend ``name``. A user's own module is exported for ONNX Runtime."""
    backend = INFERENCE[name]
    if backend.torch:
        return BackendSpec(backend.build, (algorithm.learn, profile.spaces, config.algorithm, config.run.device))
    own = spec.policy.actor.own
    if own is None:
        return BackendSpec(backend.build, (spec.policy,))
    return BackendSpec(backend.build, (spec.policy, load("penstock.torch_networks.own_export:exported")(own)))
