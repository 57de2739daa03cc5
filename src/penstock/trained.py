"""Opens a trained run: its settled config, and the arrays of one of its checkpoints. Runs and writes nothing."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from penstock.config.opponents import RANDOM, SELF, NamedRun, named_runs
from penstock.config.schema import RunConfig
from penstock.config.sources import line_of, shown
from penstock.envs.fields import one_line
from penstock.envs.given import Given
from penstock.envs.opponents import NamedOpponent, PoolSettings, Versions
from penstock.errors import ConfigError, EnvError, NoEffectError, UsageError
from penstock.nodes.evaluation import PlaySettings
from penstock.planning import Prepared, check_fits, prepare
from penstock.planning.opponents import version_delay, version_interval
from penstock.policies.acting import PolicySettings
from penstock.policies.critic_fields import Deployed, deployed
from penstock.policies.exploration import IN_FULL, Constant, Exploration
from penstock.policies.native import supports
from penstock.processes.starts import Processes
from penstock.registry import INFERENCE, load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_to_play
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.run_policy import RunPolicy
from penstock.topologies.play_settings import play_settings
from penstock.types import Arrays, BackendSpec, EnvRecipe, EnvReference, Spaces

__all__ = [
    "Trained",
    "asking_for_objects",
    "open_trained",
    "pointing_to_line",
    "policy_of",
    "published_of",
    "whole_policy_of",
    "with_opponents",
]


@dataclass(frozen=True)
class Trained:
    """A run as one of its checkpoints left it."""

    prepared: Prepared
    arrays: Arrays
    """The state of the checkpoint."""
    checkpoint: Path

    @property
    def published(self) -> Arrays:
        """The parameters and statistics that the policy acts with."""
        return published_of(self.prepared, self.arrays)

    def play_settings(self, env: EnvReference, lanes: int, seed: int) -> PlaySettings:
        """What it takes to let the policy play.

        Args:
            env: mostly that of the run.
            lanes: how many episodes are played side by side.
            seed: of the episodes.
        """
        prepared = self.prepared
        return play_settings(
            prepared.config.run,
            env,
            prepared.profile.spaces,
            prepared.spec.policy,
            prepared.inference,
            lanes=lanes,
            seed=seed,
        )


def open_trained(
    processes: Processes, folder: RunFolder, checkpoint: str | int | None, given: Given, call: str
) -> Trained:
    """Settle the config of a run and read one of its checkpoints.

    Args:
        processes: one of them probes the environment.
        folder: of the run.
        checkpoint: its name, its update number, ``best`` or ``latest``; ``None``: the latest.
        given: environment and wrappers that the caller passed as objects.
        call: the function of ``penstock`` that the user called, for error texts.

    Raises:
        UsageError: a checkpoint that cannot be used, or an environment that cannot be made.
    """
    config = folder.read_config()
    # On the CPU: the machine that plays need not have the device that the run was trained on.
    with asking_for_objects(folder, config.run, given, call), pointing_to_line(folder):
        prepared = prepare(replace(config, run=replace(config.run, device="cpu")), processes, given)
    path = find_checkpoint(folder.path, checkpoint)
    saved = load_to_play(path, prepared.identity())
    check_fits(prepared, saved)
    return Trained(prepared, saved.arrays, path)


def with_opponents(prepared: Prepared, run: Path) -> Prepared:
    """The same with the opponents that play in its environments, if it has any: needed before a step is taken.

    Args:
        prepared: of the run.
        run: its folder. It need not be there yet.

    Raises:
        ConfigError: the policy of another run has other spaces, or there is no such run, or it cannot be opened.
    """
    asked = prepared.config.run
    if not asked.opponents or not isinstance(prepared.env, EnvRecipe):
        return prepared
    versions = None
    if SELF in asked.opponents:
        every, delay, acting = version_interval(asked), version_delay(asked), _acting(prepared)
        versions = Versions(run.resolve(), every, delay, acting.settings, acting.deployed)
    pool = PoolSettings(
        asked.opponent_rule,
        prepared.profile.spaces,
        random=RANDOM in asked.opponents,
        named=tuple(_named_opponent(named, prepared.profile.spaces, run) for named in named_runs(asked.opponents)),
        versions=versions,
    )
    return replace(prepared, env=replace(prepared.env, opponents=pool))


class _Acting(NamedTuple):
    """A policy as an opponent acts with it."""

    settings: PolicySettings
    deployed: Deployed


def _acting(prepared: Prepared) -> _Acting:
    """A run's policy without its critic, on the native kernel or ONNX Runtime. It samples if it does in training."""
    found = deployed(prepared.spec.policy, prepared.profile.spaces)
    own = found.graph.actor.own
    if supports(found.graph):
        backend = BackendSpec(INFERENCE["native"].build, (found.graph,))
    else:
        exported = b"" if own is None else load("penstock.torch_networks.own_export:exported")(own)
        backend = BackendSpec(INFERENCE["onnx"].build, (found.graph, exported))
    explore = IN_FULL if prepared.spec.explore == IN_FULL else Constant(0.0)
    exploration = Exploration(explore, warmup=0, num_lanes=1, horizon=1.0)
    settings = PolicySettings(backend, found.graph, found.spaces, row=(), seed=0, exploration=exploration)
    return _Acting(settings, found)


def _named_opponent(named: NamedRun, spaces: Spaces, run: Path) -> NamedOpponent:
    """The policy of another run.

    Raises:
        ConfigError: it has other spaces, or there is no such run, or it cannot be opened.
    """
    try:
        folder = RunFolder.open(named.folder)
        # Other processes than those of this run, whose runtime may need none.
        with Processes() as processes:
            trained = open_trained(processes, folder, named.checkpoint, Given(), "load_policy")
    except UsageError as error:
        config = RunFolder(run).config_path
        moved = f"; if it was moved, change opponents in {config}" if config.is_file() else ""
        raise ConfigError(f"--opponents {named}: {error}{moved}") from error
    found = trained.prepared.profile.spaces
    if found != spaces:
        raise ConfigError(f"--opponents {named}: that run has other spaces, {one_line(found)}, than {one_line(spaces)}")
    acting = _acting(trained.prepared)
    return NamedOpponent(named.label, acting.settings, acting.deployed.record(trained.published))


def published_of(prepared: Prepared, record: Arrays) -> Arrays:
    """The parameters and statistics that the policy acts with."""
    return {spec.name: record[spec.name] for spec in prepared.spec.published()}


def policy_of(prepared: Prepared, record: Arrays) -> RunPolicy:
    """The policy as production takes it, with the parameters and statistics of ``record``.

    It is `whole_policy_of`, unless the critic sees fields that the actor does not see. Then ONNX Runtime runs the actor
    alone: the policy backend of the run runs both.
    """
    found = deployed(prepared.spec.policy, prepared.profile.spaces)
    if not found.spaces.unread:
        return whole_policy_of(prepared, record)
    backend = load(INFERENCE["onnx"].build)(found.graph)
    return RunPolicy(found.spaces, found.graph, backend, found.record(record), _origin(prepared, "onnx"))


def whole_policy_of(prepared: Prepared, record: Arrays) -> RunPolicy:
    """The policy as the run acts with it, on its policy backend, with the parameters and statistics of ``record``."""
    backend = load(prepared.inference.build)(*prepared.inference.arguments)
    origin = _origin(prepared, prepared.config.run.inference)
    return RunPolicy(prepared.profile.spaces, prepared.spec.policy, backend, record, origin)


def _origin(prepared: Prepared, backend: str) -> str:
    return f"{prepared.config.run.algo} on {prepared.profile.name}, run by {backend}"


@contextlib.contextmanager
def asking_for_objects(folder: RunFolder, run: RunConfig, given: Given, call: str) -> Iterator[None]:
    """Let an EnvError ask for the environment, wrappers or reward again, if the run got them as objects without a name.

    Args:
        folder: of the run.
        run: its config.
        given: the objects that the caller passed.
        call: the function of ``penstock`` that the user called, for the error text.
    """
    try:
        yield
    except EnvError as error:
        saved = list_checkpoints(folder.path)
        manifest = load_to_play(saved[-1]).manifest if saved else {}
        told = {"env": "the environment", "wrap": "the wrappers", "reward": "the reward"}
        for name, what in told.items():
            if manifest.get(f"{name}_by_value") and getattr(given, name) is None:
                has, it, form = ("have", "them", "[...]") if name == "wrap" else ("has", "it", "...")
                raise EnvError(
                    f"{what} of run {folder.name}, {shown(getattr(run, name))}, {has} no name to find {it} by; in "
                    f"Python, pass {it} again: penstock.{call}({str(folder.path)!r}, {name}={form})"
                ) from error
        raise


@contextlib.contextmanager
def pointing_to_line(folder: RunFolder) -> Iterator[None]:
    """Let a NoEffectError name the setting's line in the run's config, if there is one.

    An older version, which did not refuse such a setting, has written the line.
    """
    try:
        yield
    except NoEffectError as error:
        place = line_of(folder.config_path, error.setting)
        if place is None:
            raise
        raise ConfigError(f"{error}; take {place} out of {folder.config_path}") from error
