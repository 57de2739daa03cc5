"""Opponents: frozen policies, one of which is chosen for each episode. Reads the versions of a run as they come.

It chooses the opponent of an episode, and lets it act on a lane. It steps no environment: `opposed.py` does.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from penstock.config.opponents import RANDOM, SELF
from penstock.envs.opponent_lane import OpponentLane
from penstock.errors import CheckpointError, EnvError
from penstock.kernels.actions import environment_array, generate_actions, to_environment
from penstock.policies.acting import PolicySettings, bound_rows
from penstock.policies.acting_session import ActingSession
from penstock.policies.critic_fields import Deployed
from penstock.registry import load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_to_play
from penstock.types import Array, PolicyBackend, Spaces

__all__ = ["Candidate", "NamedOpponent", "Opponent", "Pool", "PoolSettings", "Versions"]

log = logging.getLogger("penstock.envs")

KEPT_VERSIONS = 32
"""Versions that one process keeps in memory."""
_LEAST_WEIGHT = 1e-6
"""Of an opponent that is always beaten: it still plays now and then."""


class Candidate(NamedTuple):
    """One that may be chosen."""

    label: str
    """`SELF`, `RANDOM`, or the label of a named one."""
    update: int = -1
    """Of a version of the run."""


@dataclass(frozen=True, eq=False)
class NamedOpponent:
    """A named opponent. Not compared by value, because arrays are not."""

    label: str
    settings: PolicySettings
    parameters: Mapping[str, Array]


@dataclass(frozen=True)
class Versions:
    """The versions of the run itself, which become more while it learns."""

    run: Path
    """The run folder."""
    every: int
    """A version's update is a multiple of this. Such checkpoints are never removed by the run."""
    delay: int
    """For how many updates a new version waits: that of update u may play once the learner is past update u + this.

    By then its checkpoint is on the disk: see `Pool.take_version`."""
    settings: PolicySettings
    deployed: Deployed
    """Makes the parameters of ``settings`` from those of a checkpoint."""


@dataclass(frozen=True)
class PoolSettings:
    """The opponents that may be chosen, and the rule: plain data.

    Before a run is planned no opponent is known: then episodes begin, and no step is taken.
    """

    rule: str
    """As ``--opponent_rule``."""
    spaces: Spaces | None = None
    """Of the run; ``None`` before it is planned."""
    random: bool = False
    """One that moves at random is among the opponents."""
    named: tuple[NamedOpponent, ...] = ()
    versions: Versions | None = None


class Opponent(Protocol):
    """An opponent in this process."""

    def begin(self, lane: OpponentLane, seed: int) -> Callable[[int], Array]:
        """Begin an episode on a lane. Returns ``step -> action``, ``[1, ...]`` in the environment's units."""
        ...


class Pool:
    """The opponents of one process.

    Args:
        whose: begins an error's text.
        of: the opponents, and the rule.
    """

    def __init__(self, whose: str, of: PoolSettings) -> None:
        self._whose = whose
        self._of = of
        self._named: Mapping[str, Opponent] = {}
        self._versions: dict[int, Opponent] = {}
        """By update, the one that was used last at the end."""
        self._version: int | None = None
        self._among: Sequence[Candidate] | None = None
        """The opponents that may be chosen now; ``None``: not looked up yet."""
        self._unusable: set[int] = set()
        """Updates of versions that could not be read."""

    @property
    def spaces(self) -> Spaces:
        """The spaces of the run.

        Raises:
            EnvError: it is not planned.
        """
        if self._of.spaces is None:
            raise EnvError(f"{self._whose}: its opponents are known to a run only, so nobody else can step it")
        return self._of.spaces

    def take_version(self, version: int) -> None:
        """From now on, the policy that learns has this version. Before the first call its version is not known.

        In lock step, the checkpoint of update u is on the disk once the policy is past update u + 2 s, where s is
        ``save_interval``:

        1. The learner hands over the checkpoints of updates u and u + s. They may fill both slots of the stream to the
           checkpointer (``CHECKPOINT_SLOTS``).
        2. The checkpoint of update u + 2 s needs a free slot. Slots become free in order, each once its checkpoint is
           written. So the checkpoint of u is written by then.
        3. Only after that does the learner learn and publish the next update.
        """
        newest = self._newest_update
        self._version = version
        if self._newest_update != newest:
            self._among = None

    def candidates(self) -> Sequence[Candidate]:
        """The opponents that may be chosen now: at least one. The versions come last, oldest first."""
        if self._among is None:
            of = self._of
            named = [Candidate(RANDOM)] if of.random else []
            named += [Candidate(one.label) for one in of.named]
            self._among = [*named, *self._playing_versions()] or [Candidate(RANDOM)]
        return self._among

    def choose(self, random: np.random.Generator, scores: Mapping[Candidate, float]) -> tuple[Candidate, Opponent]:
        """Choose the opponent of an episode.

        Args:
            random: is used once, or once more for each version that cannot be used.
            scores: the learner's mean score against those that it has met. The others count as equals: 0.5.
        """
        while True:
            among = self.candidates()
            chosen = self._chosen(among, random.random(), scores)
            try:
                return chosen, self._opponent(chosen)
            except CheckpointError as error:
                # A user may remove a version, or a disk damage it. The others are there.
                log.warning("%s: an opponent is left out: %s", self._whose, error)
                self._unusable.add(chosen.update)
                self._among = None

    def _chosen(self, among: Sequence[Candidate], at: float, scores: Mapping[Candidate, float]) -> Candidate:
        """The candidate at a place of ``[0, 1)``, where each takes as much room as the rule gives it."""
        if self._of.rule == "latest":
            return among[-1]
        weights = np.ones(len(among))
        if self._of.rule == "hard":
            beaten = np.array([scores.get(one, 0.5) for one in among])
            weights = np.maximum((1.0 - beaten) ** 2, _LEAST_WEIGHT)
        ends = np.cumsum(weights)
        return among[int(np.searchsorted(ends, at * ends[-1], side="right"))]

    @property
    def _newest_update(self) -> float:
        """No version of a later update plays now. Infinite: all play."""
        of, now = self._of.versions, self._version
        if of is None or now is None:
            return math.inf
        return (now - of.delay - 1) // of.every * of.every

    def _playing_versions(self) -> Sequence[Candidate]:
        of, newest = self._of.versions, self._newest_update
        if of is None:
            return []
        updates = [int(path.name.removeprefix("update-")) for path in list_checkpoints(of.run)]
        return [
            Candidate(SELF, update)
            for update in updates
            if update % of.every == 0 and update <= newest and update not in self._unusable
        ]

    def _opponent(self, chosen: Candidate) -> Opponent:
        """The opponent, loaded.

        Raises:
            CheckpointError: it is a version that cannot be used.
        """
        if chosen.label == RANDOM:
            return _RandomOpponent(self)
        versions = self._of.versions
        if chosen.label == SELF and versions is not None:
            return self._loaded(versions, chosen.update)
        if not self._named:
            self._named = {one.label: _FrozenOpponent(one.settings, one.parameters) for one in self._of.named}
        return self._named[chosen.label]

    def _loaded(self, of: Versions, update: int) -> Opponent:
        opponent = self._versions.pop(update, None)
        if opponent is None:
            opponent = _read(of, update)
        self._versions[update] = opponent
        while len(self._versions) > KEPT_VERSIONS:
            del self._versions[next(iter(self._versions))]
        return opponent


class _FrozenOpponent:
    """A policy with its parameters."""

    def __init__(self, settings: PolicySettings, parameters: Mapping[str, Array]) -> None:
        self._settings = settings
        self._backend: PolicyBackend = load(settings.backend.build)(*settings.backend.arguments)
        self._backend.load(parameters)

    def begin(self, lane: OpponentLane, seed: int) -> Callable[[int], Array]:
        settings = replace(self._settings, seed=seed)
        space = settings.spaces.action
        session = ActingSession(settings.policy, space, lane.number, exploration=settings.exploration, seed=seed)
        rows = bound_rows(self._backend, session, settings, lane.rows, {})

        def act(step: int) -> Array:
            rows.act(0, step)
            return session.environment_action

        return act


class _RandomOpponent:
    """Uniformly random actions, among those that the mask allows."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def begin(self, lane: OpponentLane, seed: int) -> Callable[[int], Array]:
        spaces = self._pool.spaces
        stored, given = lane.rows["action"][0], environment_array(spaces.action, 1)
        allowed = None if spaces.mask is None else lane.rows[spaces.mask][0]

        def act(step: int) -> Array:
            generate_actions(spaces.action, seed, lane.number, step, stored, mask=allowed)
            return to_environment(stored, spaces.action, given)

        return act


def _read(of: Versions, update: int) -> Opponent:
    """Load a version of the run.

    Raises:
        CheckpointError: it is gone, or damaged.
    """
    saved = load_to_play(find_checkpoint(of.run, str(update))).arrays
    published = {spec.name: saved[spec.name] for spec in of.deployed.trained.published()}
    return _FrozenOpponent(of.settings, of.deployed.record(published))
