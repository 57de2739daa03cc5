"""What a policy is worth: greedy episodes once its run is over. While it runs, the evaluator node judges."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.config.schema import RunConfig
from penstock.envs.deadline import deadline
from penstock.envs.sources import open_source
from penstock.errors import EnvError
from penstock.nodes.evaluator import EVALUATION_LANE, Episode, play
from penstock.planning import Prepared
from penstock.serving.policy import Policy

__all__ = ["Evaluation", "judge"]


@dataclass(frozen=True)
class Evaluation:
    """Greedy episodes of one policy. Returns are undiscounted sums of the environment's own rewards."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    env: str
    seed: int
    checkpoint: str | None = field(default=None, compare=False)
    """The name of the checkpoint that played; ``None``: what a run had learned at its end."""


def judge(prepared: Prepared, policy: Policy, episodes: int, seed: int) -> Evaluation:
    """Greedy episodes in environments of their own.

    Raises:
        EnvError: a step takes too long, none of the episodes has ended for too long, or the environment fails.
    """
    run, spaces = prepared.config.run, prepared.profile.spaces
    source = open_source(
        prepared.env,
        run.vector_env,
        min(run.num_envs, episodes),
        seed=seed + EVALUATION_LANE,
        ignore_obs=run.ignore_obs or (),
    )
    with contextlib.closing(source):
        playing = play(
            source,
            policy.backend,
            spaces,
            noise=prepared.spec.noise,
            name=prepared.profile.name,
            episodes=episodes,
            seed=seed,
            bad_numbers=run.bad_numbers,
        )
        played = _played(playing, run, prepared.profile.name)
    returns = np.array([episode.episode_return for episode in played])
    lengths = np.array([episode.length for episode in played])
    return Evaluation(
        float(returns.mean()), float(returns.std()), float(lengths.mean()), len(played), prepared.profile.name, seed
    )


def _played(playing: Iterator[Episode | None], run: RunConfig, env: str) -> list[Episode]:
    """The episodes as they end.

    Raises:
        EnvError: a step takes too long, or none has ended for too long.
    """
    played: list[Episode] = []
    latest = time.monotonic()
    limit = run.env_timeout * max(1, run.num_envs)
    while time.monotonic() - latest < run.stall_timeout:
        with deadline(limit, f"a step of environment {env} in its evaluation"):
            try:
                episode = next(playing)
            except StopIteration:
                return played
        if episode is not None:
            played.append(episode)
            latest = time.monotonic()
    waited = f"no episode of {env} has ended for {run.stall_timeout:g} s (--stall_timeout)"
    raise EnvError(f"the evaluation was given up: {waited}; {len(played)} had before")
