"""Continual learning: goes on with a run's policy from the episodes that were kept while it was served.

A new version is published only if it is no worse on held-out episodes. Plays no environment, and serves nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.algorithm import UpdaterSettings
from penstock.envs.given import given_of
from penstock.errors import BadDataError, ConfigError
from penstock.experiments.best import prune_checkpoints
from penstock.experiments.checkpoints import load_checkpoint, load_table, save_checkpoint
from penstock.experiments.episodes import KeptEpisode, episode_number, list_episodes, read_episode
from penstock.experiments.run_folder import RunFolder
from penstock.kernels.actions import from_environment
from penstock.ops.offline import Transitions, fitted_values, largest_shift, random_features
from penstock.planning import Prepared
from penstock.processes.starts import Processes
from penstock.program.rollout import table_specs
from penstock.registry import UPDATES, load
from penstock.replay.episodes import steps_of, table_of
from penstock.replay.sampler import Sampler
from penstock.serving.run_policy import RunPolicy
from penstock.serving.server.acceptance import fault_of
from penstock.trained import Trained, open_trained, policy_of
from penstock.types import Array, Arrays, Box, Discrete, EnvFactory, Spaces
from penstock.updates.contract import ReplayUpdater

__all__ = ["Retrained", "retrain"]

LEAST_HELD_OUT = 5
"""So many held-out episodes are needed: fewer tell too little."""
_SHIFT_ROWS, _SHIFT_COLUMNS = 4096, 256
_WIDTH = 256
"""Wider observations are projected to so many numbers, for the estimate of a version."""
_FEATURES = 512
_CHUNK = 1024
_LEARNED_FROM = "retrained_from_episode"
"""Fact of a checkpoint's manifest: the newest episode that it was learned from."""
_OF_THE_FILE = frozenset({"format", "created", "files", "update", "evaluation_asked", "return_mean"})
"""Facts of a manifest that a new version does not take over."""


@dataclass(frozen=True)
class Retrained:
    """What became of one attempt."""

    version: str | None
    """Name of the checkpoint that was published; ``None``: the present version stays."""
    text: str
    """What was found, and why, in one line."""
    newest: int
    """Number of the newest episode that was looked at; 0: there is none."""
    drift: float | None = None
    """How far the new episodes differ from those that the present version has learned from; ``None``: unknown."""
    before: float | None = None
    """Estimated return of the present version on held-out episodes; ``None``: no estimate was made."""
    after: float | None = None
    """The same of the new version."""


class _Kept(NamedTuple):
    """The episodes of a folder, by their numbers."""

    learned: dict[int, KeptEpisode]
    """For gradient steps."""
    held_out: dict[int, KeptEpisode]
    """For the estimate alone."""

    @property
    def numbers(self) -> list[int]:
        """Of all of them."""
        return [*self.learned, *self.held_out]


def retrain(
    run: Path | str,
    *,
    experience: Path | str,
    drift: float = 0.0,
    held_out: float = 0.2,
    epochs: float = 10.0,
    after: int = 0,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    processes: Processes | None = None,
) -> Retrained:
    """Learn from kept episodes, and publish a new version of the run if it is no worse on held-out ones.

    The new version is a checkpoint. A server with ``--follow`` takes it.

    Args:
        run: the run folder. It must not be training. The algorithm must learn off policy, from single rows.
        experience: folder of kept episodes (``penstock serve --collect``, ``--keep_episodes``).
        drift: learn only if observations or rewards differ so much from those learned from before, see
            `penstock.ops.offline.largest_shift`; 0: whenever there is a new episode.
        held_out: share of the episodes that nothing is learned from, in (0, 0.5]. Which they are does not change.
        epochs: how often each step is learned from, on average.
        after: episodes up to this number are not new: an earlier attempt has looked at them.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        processes: as in `penstock.train`.

    Raises:
        UsageError: no such run or folder; an algorithm that cannot learn from kept episodes; another process writes the
            run.
        BadDataError: learning ended in numbers that are infinite or NaN. Nothing is published.
    """
    folder, place = RunFolder.open(Path(run)), Path(experience)
    if not place.is_dir():
        raise ConfigError(f"--experience {place} is no folder; penstock serve --collect makes one for each policy")
    with folder.claim(), processes or Processes() as opened:
        trained = open_trained(opened, folder, None, given_of(env, wrap), "retrain")
        space = _learnable(trained.prepared)
        manifest = load_checkpoint(trained.checkpoint).manifest
        since = int(manifest.get(_LEARNED_FROM, 0))
        kept = _kept(place, trained.prepared.profile.spaces, held_out)
        newest = max(kept.numbers, default=0)
        new = [number for number in kept.numbers if number > max(since, after)]
        if not new or len(kept.held_out) < LEAST_HELD_OUT or not kept.learned:
            return _too_few(trained, kept, len(new), newest)
        shift = _shift(kept, since)
        if shift is not None and shift < drift:
            text = (
                f"{trained.checkpoint.name} stays: {len(new)} new episodes differ by {shift:.3f}, less than {drift:g}"
            )
            return Retrained(None, text, newest, shift)
        return _attempt(folder, trained, space, kept, manifest, epochs, Retrained(None, "", newest, shift))


def _attempt(  # noqa: PLR0917 - one attempt, in one place
    folder: RunFolder,
    trained: Trained,
    space: Box | Discrete,
    kept: _Kept,
    manifest: Mapping[str, Any],
    epochs: float,
    found: Retrained,
) -> Retrained:
    """Learn, try the result, compare it, and publish it."""
    prepared, name = trained.prepared, trained.checkpoint.name
    arrays, steps = _learned(prepared, trained.arrays, space, [*kept.learned.values()], epochs)
    fault = fault_of(policy_of(prepared, arrays))
    if fault:
        return replace(found, text=f"{name} stays: the new version {fault}")
    before, after = (
        float(_estimates(prepared, state, space, [*kept.held_out.values()]).mean())
        for state in (trained.arrays, arrays)
    )
    found = replace(found, before=before, after=after)
    compared = f"estimated return on {len(kept.held_out)} held-out episodes {after:,.4g}, before {before:,.4g}"
    if after < before:
        return replace(found, text=f"{name} stays: the new version is worse: {compared}")
    facts = {key: value for key, value in manifest.items() if key not in _OF_THE_FILE}
    update = int(manifest["update"]) + 1
    arrays["update"] = np.array(update, np.int64)
    own = {"update": update, "return_mean": None, "evaluation_asked": False, _LEARNED_FROM: found.newest}
    path = save_checkpoint(folder.path, arrays, {**facts, **own}, load_table(trained.checkpoint))
    run = prepared.config.run
    prune_checkpoints(folder.path, run.keep_checkpoints, run.keep_every)
    learned = f"learned from {len(kept.learned)} episodes, {steps:,} gradient steps"
    return replace(found, version=path.name, text=f"{path.name} published: {learned}; {compared}")


def _learnable(prepared: Prepared) -> Box | Discrete:
    """The action space of a run whose algorithm can learn from kept episodes.

    Raises:
        ConfigError: it cannot. The text says why.
    """
    spec, run, space = prepared.spec, prepared.config.run, prepared.profile.spaces.action
    can = "dqn, apex, sac, td3, ddpg, dsac and dsact can"
    if spec.table is None:
        raise ConfigError(
            f"{run.algo} learns from rollouts of its present policy, and kept episodes are of others; {can}"
        )
    if spec.table.sequences is not None or spec.policy.carry:
        raise ConfigError(f"{run.algo} learns with a memory here, which kept episodes do not hold; without one {can}")
    missing = [part.name for part in spec.row if part.name in spec.minibatch]
    if missing or not isinstance(space, Box | Discrete):
        what = f"{missing[0]} of the policy that acted" if missing else "actions of another kind"
        raise ConfigError(f"{run.algo} learns from {what}, which kept episodes do not hold; {can}")
    if prepared.reward is not None:
        raise ConfigError("the run has learned from a --reward of its own, and kept episodes hold those of the clients")
    if UPDATES[run.backend].replay is None:
        raise ConfigError(f"--backend {run.backend} does not learn from a table")
    return space


def _kept(place: Path, spaces: Spaces, held_out: float) -> _Kept:
    """Read the episodes of a folder. Which are held out depends on their numbers alone."""
    every = max(2, round(1.0 / held_out))
    found = _Kept({}, {})
    for path in list_episodes(place):
        try:
            episode = read_episode(path, spaces)
        except FileNotFoundError:
            # A server writes into the folder, and has removed it meanwhile.
            continue
        number = episode_number(path)
        if steps_of(episode):
            (found.learned if number % every else found.held_out)[number] = episode
    return found


def _too_few(trained: Trained, kept: _Kept, new: int, newest: int) -> Retrained:
    why = f"{len(kept.held_out)} of {LEAST_HELD_OUT} held-out episodes are there yet" if new else "no new episodes"
    return Retrained(None, f"{trained.checkpoint.name} stays: {why}", newest)


def _shift(kept: _Kept, since: int) -> float | None:
    """How far episodes after number ``since`` differ from those up to it; ``None``: there are none up to it."""
    sides: tuple[list[Array], list[Array]] = ([], [])
    for number, episode in (*kept.learned.items(), *kept.held_out.items()):
        sides[number > since].append(_outcomes(episode))
    if not sides[0]:
        return None
    before, after = (_thinned(np.concatenate(side)) for side in sides)
    return largest_shift(before, after)


def _outcomes(episode: KeptEpisode) -> Array:
    """What a drift may show in: the reward of each step and, of many, some numbers of its observation: ``[n, d]``."""
    steps = steps_of(episode)
    fields = [episode.reward[:, None], *(values[:steps].reshape(steps, -1) for values in episode.obs.values())]
    found = np.concatenate(fields, axis=1, dtype=np.float64)
    return found[:, :: -(-found.shape[1] // _SHIFT_COLUMNS)]


def _thinned(rows: Array) -> Array:
    """At most `_SHIFT_ROWS` rows, evenly spread."""
    return rows[:: -(-len(rows) // _SHIFT_ROWS)]


def _learned(
    prepared: Prepared, state: Arrays, space: Box | Discrete, episodes: Sequence[KeptEpisode], epochs: float
) -> tuple[Arrays, int]:
    """The record after learning from these episodes, and how many gradient steps it took.

    Raises:
        BadDataError: published parameters are infinite or NaN.
    """
    spec, spaces, run = prepared.spec, prepared.profile.spaces, prepared.config.run
    schedule, kept = spec.replay()
    num_steps = prepared.config.algorithm.num_steps
    table = table_of(episodes, spaces, space, table_specs(spaces, (), num_steps, 1, same_step=False))
    sampler = Sampler(
        table,
        1,
        tuple(name for name, _ in spaces.obs),
        n_step=kept.n_step,
        gamma=kept.gamma,
        stack=spaces.stacks(),
        reward_limit=kept.reward_limit,
    )
    settings = UpdaterSettings(
        learn=prepared.learn(),
        config=prepared.config.algorithm,
        spec=spec,
        spaces=spaces,
        device=run.device,
        threads=run.threads if isinstance(run.threads, int) else 1,
        seed=run.seed,
    )
    updater: ReplayUpdater = load(str(UPDATES[run.backend].replay))(settings, None)
    updater.load({part.name: state[part.name] for part in spec.state})
    size = schedule.mini_batch_size
    steps = max(1, math.ceil(epochs * sum(map(steps_of, episodes)) / size))
    rows, places = updater.buffers(), {name: np.zeros(size, np.int64) for name in ("index", "stamp")}
    for number in range(steps):
        sampler.sample((run.seed, number), rows | places)
        # Step sizes are those of the run's beginning, also where they fall towards its end.
        updater.learn(rows, 0.0)
    found = {**state, **{name: values.copy() for name, values in updater.state().items()}}
    for part in spec.published():
        if not np.isfinite(found[part.name]).all():
            raise BadDataError(f"learning made the parameters of {part.name} infinite or NaN; fewer --epochs may help")
    return found, steps


def _estimates(prepared: Prepared, state: Arrays, space: Box | Discrete, episodes: Sequence[KeptEpisode]) -> Array:
    """The estimated discounted return of a version from the beginning of each episode: ``[episodes]``."""
    spaces, (_, kept) = prepared.profile.spaces, prepared.spec.replay()
    policy = policy_of(prepared, state)
    steps = [steps_of(episode) for episode in episodes]
    obs = {
        name: np.concatenate([episode.obs[name][: n + 1] for n, episode in zip(steps, episodes, strict=True)])
        for name, _ in spaces.obs
    }
    # Where each episode begins among all observations, and which observations have a step.
    begins = np.cumsum([0, *(n + 1 for n in steps[:-1])])
    has_step = np.ones(sum(steps) + len(steps), np.bool_)
    has_step[begins + np.array(steps)] = False
    chosen = from_environment(_chosen(policy, obs), space)
    played = from_environment(
        np.concatenate([episode.action[:n] for n, episode in zip(steps, episodes, strict=True)]), space
    )
    seen = _seen(spaces, obs)
    own = _features(seen, chosen, space)
    terminated = np.zeros(sum(steps), np.bool_)
    terminated[np.cumsum(steps) - 1] = [episode.terminated for episode in episodes]
    transitions = Transitions(
        _features(seen[has_step], played, space),
        own[np.flatnonzero(has_step) + 1],
        np.concatenate([episode.reward for episode in episodes]).astype(np.float64),
        terminated,
    )
    return fitted_values(transitions, own[begins], kept.gamma)


def _chosen(policy: RunPolicy, obs: Arrays) -> Array:
    """The policy's greedy actions ``[n, ...]`` in the environment's units."""
    count = len(next(iter(obs.values())))
    parts = []
    for first in range(0, count, _CHUNK):
        part = {name: np.ascontiguousarray(values[first : first + _CHUNK]) for name, values in obs.items()}
        parts.append(policy.session(min(_CHUNK, count - first)).answer(part).copy())
    return np.concatenate(parts)


def _seen(spaces: Spaces, obs: Arrays) -> Array:
    """Observations as numbers of deviation 1: float64 ``[n, d]``, d at most `_WIDTH`."""
    parts = []
    for name, space in spaces.seen:
        values = obs[name]
        if isinstance(space, Discrete):
            values = (values[:, None] == np.arange(space.start, space.start + space.n)).astype(np.float64)
        parts.append(values.reshape(len(values), -1).astype(np.float64))
    found = np.concatenate(parts, axis=1)
    if found.shape[1] > _WIDTH:
        generator = np.random.default_rng(0)
        found = found @ (generator.normal(0.0, 1.0, (found.shape[1], _WIDTH)) / math.sqrt(_WIDTH))
    deviation = found.std(axis=0)
    scaled: Array = (found - found.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return scaled


def _features(seen: Array, action: Array, space: Box | Discrete) -> Array:
    """Features ``[n, p]`` of observations and actions; each choice of a Discrete has features of its own."""
    if isinstance(space, Box):
        both = np.concatenate([seen, 2.0 * action.reshape(len(action), -1).astype(np.float64)], axis=1)
        return np.concatenate([both, random_features(both, _FEATURES, 1)], axis=1)
    of_each = np.concatenate(
        [np.ones((len(seen), 1)), seen, random_features(seen, max(8, _FEATURES // space.n), 1)], axis=1
    )
    is_chosen = action[:, None] == np.arange(space.n)
    found: Array = (is_chosen[:, :, None] * of_each[:, None, :]).reshape(len(seen), -1)
    return found
