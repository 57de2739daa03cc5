"""The first state of a run that begins with the policy of another run (``--begin_with``). Writes nothing."""

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm.first_state import first_state
from penstock.algorithm_lookup import find_algorithm
from penstock.config.opponents import named_run
from penstock.config.sources import shown
from penstock.config.whole import Config
from penstock.errors import ConfigError, UsageError
from penstock.planning.prepared import Prepared
from penstock.policies import Network, PolicyGraph
from penstock.registry import load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import Checkpoint, load_to_play
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays, Spaces

__all__ = ["Beginning", "beginning", "check_beginning"]


class Beginning(NamedTuple):
    """A first state with the policy of another run."""

    state: Arrays
    """All arrays of the state."""
    remark: str
    """A line on what was taken from where."""


class _Chosen(NamedTuple):
    """The checkpoint whose policy a run begins with. It fits the run."""

    checkpoint: Checkpoint
    of: Path
    """Its run folder."""
    policy: PolicyGraph


def check_beginning(prepared: Prepared) -> None:
    """Check that a new run can begin with the policy that it names, if it names one.

    Raises:
        UsageError: as `beginning`.
    """
    if prepared.config.run.begin_with is not None:
        _chosen(prepared, prepared.config.run.begin_with)


def beginning(prepared: Prepared) -> Beginning | None:
    """The first state of a new run, if it begins with the policy of another run; else ``None``.

    The actor is taken with its statistics, and the critic if it is one of the same shape. Targets begin equal to their
    networks. The optimizer begins anew.

    Raises:
        CheckpointError: there is no such checkpoint, or it cannot be used.
        ConfigError: that run's environment has other spaces, or its policy other layers.
        RunFolderError: there is no such run.
    """
    config, spec = prepared.config, prepared.spec
    if config.run.begin_with is None:
        return None
    checkpoint, folder, policy = _chosen(prepared, config.run.begin_with)
    state = first_state(prepared.algorithm.initial, spec, prepared.profile.spaces, config.algorithm, config.run.seed)
    for name in (taken := _taken(spec.policy, policy)):
        for own in {name, f"target.{name}"} & state.keys():
            state[own] = checkpoint.arrays[name].copy()
    return Beginning(state, f"begins with {', '.join(taken)} of {folder}, {checkpoint.path.name}")


def _chosen(prepared: Prepared, begin_with: str) -> _Chosen:
    named, spaces = named_run(begin_with), prepared.profile.spaces
    folder = RunFolder.open(named.folder)
    saved = load_to_play(find_checkpoint(folder.path, named.checkpoint))
    if saved.manifest["spaces"] != repr(spaces):
        why = f"it is of {saved.manifest['env']}, whose observations or actions are not of this run's kind"
        raise ConfigError(f"--begin_with {named}: {why}")
    theirs = folder.read_config()
    policy = _policy(theirs.run.algo, spaces, theirs.algorithm)
    if (what := _difference(prepared.spec.policy, policy)) is not None:
        begins = f"--begin_with {named}: its policy has another {what} than this run's"
        settings = _deciding(prepared, theirs)
        if settings:
            raise ConfigError(f"{begins}; give what it was trained with: {' '.join(settings)}")
        raise ConfigError(
            f"{begins}; give the settings of networks that it was trained with, and an algorithm with such policies: "
            f"it is of {theirs.run.algo}"
        )
    return _Chosen(saved, folder.path, policy)


def _policy(algorithm: str, spaces: Spaces, settings: Any) -> PolicyGraph:  # noqa: ANN401 - of any algorithm
    spec: AlgorithmSpec = load(find_algorithm(algorithm).spec)(spaces, settings)
    return spec.policy


def _deciding(prepared: Prepared, theirs: Config) -> list[str]:
    """The other run's settings, as flags, without which its policy would be of this run's kind.

    Empty if it is of another kind for another reason: the algorithm.
    """
    own, settings, spaces = prepared.config.algorithm, theirs.algorithm, prepared.profile.spaces

    def with_own(*names: str) -> PolicyGraph:
        values = {name: getattr(own, name) for name in names}
        return _policy(theirs.run.algo, spaces, replace(settings, **values))

    shared = [field.name for field in fields(settings) if hasattr(own, field.name)]
    # Not every value of one algorithm is one of another.
    with contextlib.suppress(UsageError):
        if _difference(prepared.spec.policy, with_own(*shared)) is None:
            policy = with_own()
            deciding = [name for name in shared if _difference(policy, with_own(name)) is not None]
            return [f"--{name} {shown(getattr(settings, name))}" for name in deciding]
    return []


def _difference(own: PolicyGraph, other: PolicyGraph) -> str | None:
    """What first differs in two policies; ``None`` if one can begin with the other."""
    return next((what for what, one, another in _parts(own, other) if one != another), None)


def _parts(own: PolicyGraph, other: PolicyGraph) -> Iterator[tuple[str, object, object]]:
    """What must be equal in both policies, with its name."""
    yield "encoding of observations", own.encoding, other.encoding
    yield "head", (own.head, own.mask), (other.head, other.mask)
    yield "normalisation of observations", own.normalize_obs, other.normalize_obs
    yield "stack of layers", _layers(own.actor), _layers(other.actor)


def _layers(network: Network | None) -> object:
    """What makes two networks alike, whatever their first values were."""
    return None if network is None else (network.branches, network.layers, [part[:2] for part in network.free])


def _taken(own: PolicyGraph, other: PolicyGraph) -> tuple[str, ...]:
    """The published arrays that one policy takes from the other.

    A critic is taken if values are in the same units, with their statistics.
    """
    judging = {part.name for part in own.published()} - {own.actor.name, "obs_mean", "obs_var", "obs_count"}
    alike = own.normalize_value == other.normalize_value and _layers(own.critic) == _layers(other.critic)
    return tuple(part.name for part in own.published() if alike or part.name not in judging)
