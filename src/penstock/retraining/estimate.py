"""Estimates what a version of a run's policy is worth, from episodes that it did not play. Learns no parameters."""

import math
from collections.abc import Sequence

import numpy as np

from penstock.kernels.actions import from_environment
from penstock.ops.offline import Transitions, fitted_values, random_features
from penstock.planning import Prepared
from penstock.replay.episodes import steps_of
from penstock.saved_runs.episodes import KeptEpisode
from penstock.serving.run_policy import RunPolicy
from penstock.trained import policy_of
from penstock.types import Array, Arrays, Box, Discrete, Spaces

__all__ = ["estimated_return"]

_WIDTH = 256
"""Most numbers of an observation; wider ones are projected to them."""
_FEATURES = 512
_CHUNK = 1024


def estimated_return(
    prepared: Prepared, state: Arrays, space: Box | Discrete, episodes: Sequence[KeptEpisode]
) -> float:
    """Estimate the mean discounted return of a version from the beginnings of these episodes on.

    Args:
        prepared: the run.
        state: the record of the version.
        space: the action space.
        episodes: nothing was learned from them.
    """
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
    return float(fitted_values(transitions, own[begins], kept.gamma).mean())


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
