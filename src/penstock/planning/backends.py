"""What runs the policy and the update of a run: decided by its networks, its device and the machine.

Starts nothing, save a process that asks a user's ``fused.py``.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm_lookup import AlgorithmPackage, ships
from penstock.config.agreement import shards_of, sync_mode_of
from penstock.config.fields import AUTO, fields_of
from penstock.config.resolve import Demand
from penstock.config.sources import shown
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError, PenstockError
from penstock.policies.native import supports
from penstock.processes.errand import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.registry import INFERENCE, RUNTIMES, TOPOLOGIES, UPDATES, load
from penstock.types import BackendSpec, Spaces
from penstock.updates.fused.asking import serves

__all__ = ["backend_of", "demand", "inference_of"]

ASKING = "penstock.updates.fused.asking:serves"
ASKING_LIMIT_S = 60.0

Ask: TypeAlias = Callable[[AlgorithmSpec, Any], bool]
"""``(spec, settings of the algorithm) -> whether the native update runs them``."""


def demand(
    config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec, spaces: Spaces, processes: Processes
) -> Demand:
    """The work of an update, and its sync mode. A lower bound: convolutions use each parameter more than once."""
    steps = None
    if spec.table is not None:
        schedule, _ = spec.replay()
        steps = int(config.run.timesteps * schedule.updates_per_step)
    rows = spec.rows(spec.schedule.mini_batch_size, config.algorithm.num_steps)
    multiplications = rows * spec.policy.actor.num_parameters
    topology = TOPOLOGIES[spec.topology]
    # The first mode of a topology is the one that `auto` takes.
    mode = sync_mode_of(config.run, next(iter(topology.modes)))
    settled = replace(config.run, sync_mode=mode) if config.run.sync_mode == AUTO else config.run
    sharing = config.run.learners if spec.table is None else shards_of(settled)
    apart = not ships(algorithm) and RUNTIMES[config.run.runtime].processes
    ask = partial(_fused_serves, algorithm, processes if apart else None)
    return Demand(
        fused=_fused_applies(config, algorithm, spec, spaces, ask),
        multiplications=multiplications,
        gradient_steps=steps,
        sync_mode=mode,
        eager=topology.learns_in_envs,
        sharing=sharing,
    )


def _fused_applies(config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec, spaces: Spaces, ask: Ask) -> bool:
    """Whether the update can run without torch.

    Raises:
        ConfigError: the user asked for it, and it cannot.
    """
    on_cpu = config.run.device == "cpu"
    runs_natively = ask(spec, config.algorithm)
    name = config.run.backend
    if name != AUTO and UPDATES[name].native and not (on_cpu and runs_natively):
        refused = f"--device {config.run.device}"
        if on_cpu:
            which = _too_much(config.algorithm, algorithm, spaces, ask) or "these settings"
            refused = f"--algo {config.run.algo} with {which}"
        raise ConfigError(f"--backend {name} does not run {refused}; try --backend auto")
    return on_cpu and runs_natively


def _fused_serves(
    algorithm: AlgorithmPackage,
    processes: Processes | None,
    spec: AlgorithmSpec,
    settings: Any,  # noqa: ANN401 - of any class
) -> bool:
    """Whether the native update can run this policy with the algorithm's ``settings``.

    Args:
        algorithm: its ``fused.py`` is asked.
        processes: one of them asks, because native code of a user may end its process; ``None``: this process asks.
        spec: of the policy.
        settings: of the algorithm.

    Raises:
        ConfigError: ``supports`` of a user's ``fused.py`` fails, ends its process, or gives no bool.
    """
    if algorithm.supports is None:
        return False
    asked = algorithm.name, algorithm.supports, spec.policy, settings
    if processes is None:
        return serves(*asked)
    subject = f"supports of algorithm {algorithm.name}"
    errand = Errand("supports", ASKING, subject, "called", "calling", ConfigError)
    return bool(call_apart(processes, errand, ASKING_LIMIT_S, *asked))


def _too_much(settings: Any, algorithm: AlgorithmPackage, spaces: Spaces, ask: Ask) -> str:  # noqa: ANN401
    """The setting that the native update cannot run, as the user types it; empty if no single one is the reason."""
    for field in fields_of(type(settings)):
        value = getattr(settings, field.name)
        if value != field.default:
            with contextlib.suppress(PenstockError):
                without = replace(settings, **{field.name: field.default})
                if ask(load(algorithm.spec)(spaces, without), without):
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
        run = config.run
        arguments = (algorithm.learn, profile.spaces, config.algorithm, run.device, run.pad_batches)
        return BackendSpec(backend.build, arguments)
    own = spec.policy.actor.own
    if own is None:
        return BackendSpec(backend.build, (spec.policy,))
    return BackendSpec(backend.build, (spec.policy, load("penstock.torch_networks.own_export:exported")(own)))
