"""Plays greedy episodes and keeps what the policy was given and what it answered. Counts no episode, judges nothing."""

import contextlib
import itertools
from collections.abc import Mapping
from functools import partial

import numpy as np

from penstock.envs.deadline import deadline
from penstock.nodes.evaluation.episodes import PlaySettings, play
from penstock.policies.contract import PolicySpec
from penstock.seeding import final_seed
from penstock.types import Array, Arrays, PolicyBackend

__all__ = ["INPUT", "OUTPUT", "record"]

INPUT, OUTPUT = "input.", "output."
"""Before the names of the policy's inputs and outputs in a recording."""


def record(settings: PlaySettings, published: Mapping[str, Array], rows: int, play_limit_s: float) -> Arrays:
    """Play until the policy has answered ``rows`` times.

    Args:
        settings: what is played, by which policy, in how many lanes; their rows stand one after the other.
        published: the policy's parameters and statistics.
        rows: at least 1.
        play_limit_s: longest time for all steps, in seconds.

    Returns:
        The policy's inputs (fields, ``first``, carry) under `INPUT`, its outputs and next carry under `OUTPUT`:
        ``[rows, ...]``. Actions are in the policy's units.

    Raises:
        EnvError: the environment cannot be made, or its steps take too long.
        BadDataError: it gave NaN or infinity.
    """
    backend = settings.make_backend()
    backend.load(published)
    with deadline(settings.work_limit_s, f"making environment {settings.name}"):
        source = settings.open_source(settings.lanes, settings.seed)
    recorder = _Recorder(backend, settings.policy, settings.spaces.action.choices)
    numbers = itertools.count()
    try:
        with deadline(play_limit_s, f"playing {rows} steps of environment {settings.name}"):
            playing = play(
                settings,
                source,
                recorder,
                seed_of=partial(final_seed, settings.seed),
                next_number=lambda _lane: next(numbers),
            )
            while recorder.rows < rows:
                next(playing)
    finally:
        # A simulator that cannot close takes no finished recording away, and hides no error.
        with contextlib.suppress(Exception):
            source.close()
    return recorder.found(rows)


class _Recorder:
    """Runs a policy and keeps each answer with its question."""

    def __init__(self, backend: PolicyBackend, policy: PolicySpec, choices: tuple[int, ...]) -> None:
        self.rows = 0
        self._backend = backend
        self._policy = policy
        self._choices = choices
        self._kept: list[Arrays] = []

    def load(self, published: Mapping[str, Array]) -> None:
        self._backend.load(published)

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        policy, lanes = self._policy, len(inputs["explore"])
        given = [*policy.fields, *(("first", *(spec.name for spec in policy.carry)) if policy.carry else ())]
        # Copied before the answer: a carry is written where it was read.
        kept = {f"{INPUT}{name}": inputs[name].copy() for name in given}
        shapes = {name: (lanes, *self._choices) if name == "q" else (lanes,) for name in policy.outputs}
        more = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name not in out}
        self._backend.act(inputs, {**out, **more})
        kept |= {f"{OUTPUT}{name}": values.copy() for name, values in {**out, **more}.items()}
        self._kept.append(kept)
        self.rows += lanes

    def found(self, rows: int) -> Arrays:
        return {name: np.concatenate([kept[name] for kept in self._kept])[:rows] for name in self._kept[0]}
