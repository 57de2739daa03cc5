"""Takes gradient steps of a run's algorithm on kept episodes. Judges nothing, and plays nothing."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import BadDataError
from penstock.planning import Prepared
from penstock.program.rollout import table_specs
from penstock.registry import UPDATES, load
from penstock.replay.episodes import steps_of, table_of
from penstock.replay.sampler import Sampler
from penstock.saved_runs.episodes import KeptEpisode
from penstock.types import Arrays, Box, Discrete
from penstock.updates.contract import ReplayUpdater
from penstock.updates.settings import UpdaterSettings

__all__ = ["Learned", "learned_from"]


class Learned(NamedTuple):
    """A record after gradient steps on kept episodes."""

    arrays: Arrays
    """The whole record: what the steps changed, and the rest as it was."""
    gradient_steps: int
    """How many it took."""


def learned_from(
    episodes: Sequence[KeptEpisode], prepared: Prepared, state: Arrays, space: Box | Discrete, epochs: float
) -> Learned:
    """Learn from kept episodes.

    Args:
        episodes: all rows are equally likely.
        prepared: the run.
        state: its record.
        space: its action space.
        epochs: how often each step is learned from, on average.

    Raises:
        BadDataError: published parameters are infinite or NaN.
    """
    size = prepared.spec.schedule.mini_batch_size
    steps = max(1, math.ceil(epochs * sum(map(steps_of, episodes)) / size))
    sampler, updater = _sampler(episodes, prepared, space), _updater(prepared)
    updater.load({part.name: state[part.name] for part in prepared.spec.state})
    rows, places = updater.buffers(), {name: np.zeros(size, np.int64) for name in ("index", "stamp")}
    for number in range(steps):
        sampler.sample((prepared.config.run.seed, number), rows | places)
        # Learning rates are those of the run's beginning, also where they fall towards its end.
        updater.learn(rows, 0.0)
    found = {**state, **{name: values.copy() for name, values in updater.state().items()}}
    for part in prepared.spec.published():
        if not np.isfinite(found[part.name]).all():
            raise BadDataError(f"learning made the parameters of {part.name} infinite or NaN; fewer --epochs may help")
    return Learned(found, steps)


def _sampler(episodes: Sequence[KeptEpisode], prepared: Prepared, space: Box | Discrete) -> Sampler:
    """Samples minibatches from a table of these episodes."""
    spaces, (_, kept) = prepared.profile.spaces, prepared.spec.replay()
    specs = table_specs(spaces, (), prepared.config.algorithm.num_steps, 1, same_step=False)
    return Sampler(
        table_of(episodes, spaces, space, specs),
        1,
        tuple(name for name, _ in spaces.obs),
        n_step=kept.n_step,
        gamma=kept.gamma,
        stack=spaces.stacks(),
        reward_limit=kept.reward_limit,
    )


def _updater(prepared: Prepared) -> ReplayUpdater:
    """The update of the run's backend, without a state."""
    run = prepared.config.run
    settings = UpdaterSettings(
        learn=prepared.functions(),
        config=prepared.config.algorithm,
        spec=prepared.spec,
        spaces=prepared.profile.spaces,
        device=run.device,
        threads=run.threads if isinstance(run.threads, int) else 1,
        seed=run.seed,
    )
    updater: ReplayUpdater = load(str(UPDATES[run.backend].replay))(settings, None)
    return updater
