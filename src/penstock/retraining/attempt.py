"""One attempt to go on with a run's policy: look, learn, try, judge, publish. `retrain` has the steps in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.config.commands import RetrainOptions
from penstock.config.fields import field_table
from penstock.config.values import from_value
from penstock.envs.given import given_of
from penstock.errors import ConfigError
from penstock.paths import expanded
from penstock.processes.starts import Processes
from penstock.retraining.estimate import estimated_return
from penstock.retraining.judged import Newest, judged_up_to, known_newest, newest_of, remember_judged
from penstock.retraining.kept import LEAST_HELD_OUT, Kept, read_kept
from penstock.retraining.learning import learned_from
from penstock.retraining.suitable import action_space, check_seen
from penstock.saved_runs.best import prune_checkpoints
from penstock.saved_runs.checkpoints import load_checkpoint, load_table, save_checkpoint
from penstock.saved_runs.episodes import list_episodes
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.server.policy.acceptance import fault_of
from penstock.trained import Trained, open_trained, policy_of
from penstock.types import Arrays, Box, Discrete, EnvFactory

__all__ = ["Retrained", "retrain"]

_LEARNED_FROM = "retrained_from"
"""Fact of a checkpoint's manifest: folder of episodes -> the newest one that it was learned from, as `Newest`."""
_OF_THE_FILE = frozenset({"format", "created", "files", "update", "evaluation_asked", "return_mean"})
"""Facts of a manifest that a new version does not take over."""


@dataclass(frozen=True)
class Retrained:
    """What became of one attempt to retrain a run.

    Attributes:
        version: name of the checkpoint that was published; ``None``: the present version stays.
        text: what was found, and why, in one line.
        newest: number of the newest episode that was looked at; 0: there is none.
        drift: how far the new episodes differ from those that the present version has learned from; ``None``: unknown.
        before: estimated return of the present version on held-out episodes; ``None``: no estimate was made.
        after: the same of the new version.
    """

    version: str | None
    text: str
    newest: int
    drift: float | None = None
    before: float | None = None
    after: float | None = None


def retrain(
    run: Path | str,
    *,
    experience: Path | str,
    drift: float = RetrainOptions.drift,
    held_out: float = RetrainOptions.held_out,
    epochs: float = RetrainOptions.epochs,
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
        held_out: share of the episodes that nothing is learned from, at most 0.5. Which they are does not change.
        epochs: how often each step is learned from, on average.
        after: episodes up to this number are not new: an earlier attempt has looked at them. The run folder remembers
            by itself which episodes an attempt has judged by, also if nothing was published.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        processes: as in `penstock.train`.

    Returns:
        Whether a version was published, and why.

    Raises:
        UsageError: no such run or folder; ``drift``, ``held_out`` or ``epochs`` is out of range; an algorithm that
            cannot learn from kept episodes; episodes of a game that its agent has not seen; another process writes the
            run.
        BadDataError: a file is no episode of the run's spaces, or learning ended in numbers that are infinite or NaN.
            Nothing is published.

    Example:
        attempt = penstock.retrain("logs/pendulum", experience="kept/policy", drift=0.1)
        print(attempt.text)
    """
    drift, held_out, epochs = (
        _checked(name, value) for name, value in (("drift", drift), ("held_out", held_out), ("epochs", epochs))
    )
    folder, place = RunFolder.open(run), expanded(experience)
    _check_place(place)
    with folder.claim(), processes or Processes() as opened:
        trained = open_trained(opened, folder, None, given_of(env, wrap), "retrain")
        space = action_space(trained.prepared)
        kept = read_kept(place, trained.prepared.profile.spaces, held_out)
        # What a run itself keeps is what its agent saw. An older penstock has not written whose it is.
        if place.resolve() != folder.episodes.resolve():
            check_seen(trained.prepared.env, kept, place)
        newest = newest_of(place, kept.newest)
        attempt = _Attempt(folder, trained, load_checkpoint(trained.checkpoint).manifest, space, place, kept, newest)
        judged = judged_up_to(folder, place).known(place)
        found = _look(attempt, max(after if after <= kept.newest else 0, judged), drift)
        if found.text:
            return found
        found = _learn(attempt, epochs, found)
        remember_judged(folder, place, attempt.newest)
        return found


def _checked(name: str, value: float) -> float:
    """A number in the bounds of the command's option."""
    return cast("float", from_value(field_table(RetrainOptions)[name], value, name))


def _check_place(place: Path) -> None:
    """Refuse what is no folder, and the folder that holds those of several policies."""
    if not place.is_dir():
        raise ConfigError(f"--experience {place} is no folder; penstock serve --collect makes one for each policy")
    if list_episodes(place):
        return
    below = sorted(path for path in place.iterdir() if list_episodes(path))
    if below:
        raise ConfigError(f"--experience {place} holds no episodes, but folders of policies; give {below[0]}")


class _Attempt(NamedTuple):
    """A run that no other process writes meanwhile, and the episodes that it may learn from."""

    folder: RunFolder
    trained: Trained
    """The present version."""
    manifest: Mapping[str, Any]
    """Of the present version."""
    space: Box | Discrete
    place: Path
    kept: Kept
    newest: Newest
    """Of the kept ones."""

    @property
    def learned_from(self) -> dict[str, Any]:
        """Folder of episodes -> the newest one that the present version has learned from."""
        found: dict[str, Any] = self.manifest.get(_LEARNED_FROM, {})
        return found

    def stays(self, found: Retrained, why: str) -> Retrained:
        """The outcome that nothing is published."""
        return replace(found, text=f"{self.trained.checkpoint.name} stays: {why}")


def _look(attempt: _Attempt, after: int, drift: float) -> Retrained:
    """Look whether there is enough to learn from. The text says what is missing; it is empty if nothing is."""
    kept, since = attempt.kept, known_newest(attempt.learned_from, attempt.place).known(attempt.place)
    found = Retrained(None, "", kept.newest)
    new = kept.since(max(since, after))
    if not new:
        return attempt.stays(found, "no new episodes")
    if not kept.suffice():
        return attempt.stays(found, f"{len(kept.held_out)} of {LEAST_HELD_OUT} held-out episodes are there yet")
    shift = kept.shift_since(since)
    found = replace(found, drift=shift)
    if shift is not None and shift < drift:
        return attempt.stays(found, f"{new} new episodes differ by {shift:.3f}, less than {drift:g}")
    return found


def _learn(attempt: _Attempt, epochs: float, found: Retrained) -> Retrained:
    """Learn, try the result, judge it, and publish it."""
    prepared, present, kept = attempt.trained.prepared, attempt.trained.arrays, attempt.kept
    learned = learned_from([*kept.learned.values()], prepared, present, attempt.space, epochs)
    fault = fault_of(policy_of(prepared, learned.arrays))
    if fault:
        return attempt.stays(found, f"the new version {fault}")
    held_out = [*kept.held_out.values()]
    before, after = (estimated_return(prepared, state, attempt.space, held_out) for state in (present, learned.arrays))
    found = replace(found, before=before, after=after)
    compared = f"estimated return on {len(held_out)} held-out episodes {after:,.4g}, before {before:,.4g}"
    if after < before:
        return attempt.stays(found, f"the new version is worse: {compared}")
    version = _publish(attempt, learned.arrays)
    steps = f"learned from {len(kept.learned)} episodes, {learned.gradient_steps:,} gradient steps"
    return replace(found, version=version, text=f"{version} published: {steps}; {compared}")


def _publish(attempt: _Attempt, arrays: Arrays) -> str:
    """Write a new version as the run's next checkpoint, and give its name."""
    facts = {key: value for key, value in attempt.manifest.items() if key not in _OF_THE_FILE}
    update = int(attempt.manifest["update"]) + 1
    learned = attempt.learned_from | {str(attempt.place.resolve()): list(attempt.newest)}
    own = {"update": update, "return_mean": None, "evaluation_asked": False, _LEARNED_FROM: learned}
    arrays = {**arrays, "update": np.array(update, np.int64)}
    path = save_checkpoint(attempt.folder.path, arrays, {**facts, **own}, load_table(attempt.trained.checkpoint))
    run = attempt.trained.prepared.config.run
    prune_checkpoints(attempt.folder.path, run.keep_checkpoints, run.keep_every)
    return path.name
