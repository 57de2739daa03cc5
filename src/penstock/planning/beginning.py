"""The first state of a run that begins with the policy of another run (``--begin_with``). Writes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.algorithm.first_state import first_state
from penstock.algorithm_lookup import find_algorithm
from penstock.config.opponents import named_run
from penstock.errors import ConfigError
from penstock.planning.prepared import Prepared
from penstock.policies import Network, PolicyGraph
from penstock.registry import load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import Checkpoint, load_to_play
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays

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
    policy: PolicyGraph = load(find_algorithm(theirs.run.algo).spec)(spaces, theirs.algorithm).policy
    for what, own, other in _parts(prepared.spec.policy, policy):
        if own != other:
            raise ConfigError(
                f"--begin_with {named}: its policy has another {what} than this run's; give the settings of networks "
                f"that it was trained with, and an algorithm with such policies: it is of {theirs.run.algo}"
            )
    return _Chosen(saved, folder.path, policy)


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
