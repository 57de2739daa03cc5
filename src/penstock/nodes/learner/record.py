"""What a learner commits: its state, its counters, where each lane stands, and the slots that this used up."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.config.schema import RunConfig
from penstock.nodes.ports import StreamReader
from penstock.types import Array, Arrays, ArraySpec

__all__ = [
    "RETURN_WINDOW",
    "VERDICT",
    "account",
    "begin_anew",
    "drop",
    "follow",
    "parameter_record_specs",
    "record_specs",
    "replay_record_specs",
    "why_done",
]

RETURN_WINDOW = 100
"""The mean return is over this many last training episodes."""
VERDICT = (ArraySpec("best_evaluation", (), "float64"), ArraySpec("since_best", (), "int64"))
"""The best mean return of an evaluation, and how many evaluations have come after it."""

_EPISODES = {"returns": "episode_return", "lengths": "episode_length", "shaped_returns": "shaped_return"}
"""What a record keeps of the last episodes -> where a rollout lists it."""


def record_specs(
    spec: AlgorithmSpec, num_envs: int, rollouts_per_batch: int, *, shaped: bool = False
) -> tuple[ArraySpec, ...]:
    """The arrays of a commit record.

    ``returns`` and ``lengths`` hold the last training episodes, the latest at the end; ``lane_rollout`` the number of
    each lane's next rollout, ``lane_position`` where the lane stood at the end of its last one, ``lane_collected`` and
    ``lane_spoilt`` how many rows it had given by then, and what of them had been dropped for bad numbers. ``steps``
    counts the rows that were learned, ``stale`` those dropped for their age. Where rewards are the user's own
    (``shaped``), ``shaped_returns`` holds their sums over the episodes that ``returns`` are of.
    """
    return (
        *_common(spec, num_envs, shaped=shaped),
        ArraySpec("consumed_slot", (rollouts_per_batch,), "int64"),
        ArraySpec("consumed_sequence", (rollouts_per_batch,), "int64"),
    )


def replay_record_specs(
    spec: AlgorithmSpec, num_envs: int, writers: int, *, shaped: bool = False
) -> tuple[ArraySpec, ...]:
    """The arrays of a commit record of who learns from a table.

    ``taken`` holds how many slots of each writer are accounted for; the rest is as in `record_specs`.
    """
    return (*_common(spec, num_envs, shaped=shaped), ArraySpec("taken", (writers,), "int64"))


def parameter_record_specs(
    spec: AlgorithmSpec, num_envs: int, writers: int, learners: int, *, shaped: bool = False
) -> tuple[ArraySpec, ...]:
    """The arrays of a commit record of who applies the gradients of learners from a table.

    ``settled`` holds the number of each learner's last step that was applied or dropped, ``applied`` and ``too_old``
    count both; ``owed`` gradient steps are due and not applied yet. The rest is as in `replay_record_specs`.
    """
    return (
        *replay_record_specs(spec, num_envs, writers, shaped=shaped),
        ArraySpec("settled", (learners,), "int64"),
        *(ArraySpec(name, (), "int64") for name in ("applied", "too_old", "owed")),
    )


def _common(spec: AlgorithmSpec, num_envs: int, *, shaped: bool) -> tuple[ArraySpec, ...]:
    return (
        *spec.state,
        ArraySpec("update", (), "int64"),
        ArraySpec("steps", (), "int64"),
        ArraySpec("episodes", (), "int64"),
        ArraySpec("elapsed_s", (), "float64"),
        ArraySpec("returns", (RETURN_WINDOW,), "float64"),
        ArraySpec("lengths", (RETURN_WINDOW,), "int64"),
        *(ArraySpec(name, (RETURN_WINDOW,), "float64") for name in ("shaped_returns",) if shaped),
        *VERDICT,
        ArraySpec("lane_rollout", (num_envs,), "int64"),
        ArraySpec("lane_position", (num_envs, 4), "int64"),
        ArraySpec("lane_collected", (num_envs,), "int64"),
        ArraySpec("lane_spoilt", (num_envs,), "int64"),
        ArraySpec("stale", (), "int64"),
    )


def begin_anew(record: Arrays) -> None:
    """Fill a record with nothing learned yet; the state comes from the updater."""
    for values in record.values():
        values[...] = 0
    if "consumed_slot" in record:
        record["consumed_slot"][:] = -1
    record["best_evaluation"][...] = -np.inf


def why_done(record: Arrays, run: RunConfig) -> Literal["timesteps", "target_return", "early_stop"] | None:
    """The setting that ends a run whose learner has committed ``record``; ``None`` while it goes on."""
    if record["steps"] >= run.timesteps:
        return "timesteps"
    enough = run.target_return is not None and record["episodes"] >= RETURN_WINDOW
    if enough and record["returns"].mean() >= run.target_return:
        return "target_return"
    if run.early_stop and record["since_best"] >= run.early_stop:
        return "early_stop"
    return None


def follow(new: Arrays, old: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    """Fill ``new`` with what the rollouts in ``slots`` make of ``old``; the state comes from the updater."""
    account(new, old, [rollouts.slot(index) for index in slots])
    _name_consumed(new, rollouts, slots)


def drop(new: Arrays, old: Arrays, rollouts: StreamReader, index: int) -> None:
    """Fill ``new`` with what dropping the rollout in slot ``index`` makes of ``old``."""
    for name, values in new.items():
        values[...] = old[name]
    rollout = rollouts.slot(index)
    new["stale"] += int(rollout["valid"][:-1].sum())
    _place_lanes(new, rollout)
    _name_consumed(new, rollouts, [index])


def account(new: Arrays, old: Arrays, rollouts: Sequence[Arrays]) -> None:
    """Fill ``new`` with ``old``, one update on, and with the steps, episodes and positions of these rollouts."""
    for name, values in new.items():
        values[...] = old[name]
    new["update"] += 1
    for rollout in rollouts:
        new["steps"] += int(rollout["valid"][:-1].sum())
        _place_lanes(new, rollout)
    _add_episodes(new, rollouts)


def _name_consumed(new: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    new["consumed_slot"][:] = -1
    for position, index in enumerate(slots):
        new["consumed_slot"][position] = index
        new["consumed_sequence"][position] = rollouts.sequence(index)


def _place_lanes(new: Arrays, rollout: Arrays) -> None:
    first, lanes = int(rollout["first_lane"]), len(rollout["lane_position"])
    new["lane_rollout"][first : first + lanes] = rollout["rollout"] + 1
    for name in ("lane_position", "lane_collected", "lane_spoilt"):
        new[name][first : first + lanes] = rollout[name]


def _add_episodes(new: Arrays, rollouts: Sequence[Arrays]) -> None:
    """Enter the episodes that ended, by time and then by lane: an order that no number of workers changes."""
    order = np.concatenate([np.empty((0, 2), np.int64), *(_episode_ends(rollout) for rollout in rollouts)])
    sequence = np.lexsort((order[:, 1], order[:, 0]))
    new["episodes"] += len(order)
    for name, field in _EPISODES.items():
        if name not in new:
            continue
        parts = [rollout[field][: int(rollout["episode_count"])] for rollout in rollouts]
        ended = np.concatenate([new[name][:0], *parts])
        new[name][:] = np.concatenate([new[name], ended[sequence]])[-RETURN_WINDOW:]


def _episode_ends(rollout: Arrays) -> Array:
    """Step and lane of each episode that ended, in the order in which the rollout lists them: int64 ``[n, 2]``."""
    ended = (rollout["terminated"] | rollout["truncated"]) & rollout["valid"]
    t, lane = np.nonzero(ended[:-1])
    return np.stack([t, lane + int(rollout["first_lane"])], axis=1)
