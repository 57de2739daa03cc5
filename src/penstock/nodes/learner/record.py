"""The commit record of a learner: its state, its counters, the position of each lane, and the used slots."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.config.schema import RunConfig
from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.metrics.report import RETURN_WINDOW
from penstock.nodes.learner.gradient_slot import own_batch_board_specs
from penstock.nodes.ports import StreamReader
from penstock.types import Array, Arrays, ArraySpec

__all__ = [
    "VERDICT",
    "begin_anew",
    "carry_over",
    "consumed_sequences",
    "count_dropped",
    "count_learned",
    "fill_dropped",
    "fill_learned",
    "fill_learned_from_table",
    "parameter_record_specs",
    "record_specs",
    "replay_record_specs",
    "stream_parameter_record_specs",
    "why_done",
]

VERDICT = (ArraySpec("best_evaluation", (), "float64"), ArraySpec("since_best", (), "int64"))
"""The best mean return of an evaluation, and the number of evaluations after it."""

_EPISODES = {"returns": "episode_return", "lengths": "episode_length", "shaped_returns": "shaped_return"}
"""Array of the record for the latest episodes -> field of a rollout. Those of episode metrics have one name."""
_RECORDED = {field: name for name, field in _EPISODES.items()}
"""Field of a rollout -> array of the record."""


def record_specs(
    spec: AlgorithmSpec, num_envs: int, rollouts_per_batch: int, *, beside_return: tuple[str, ...] = ()
) -> tuple[ArraySpec, ...]:
    """The arrays of a commit record.

    - ``returns``, ``lengths``: of the latest training episodes, the last one at the end.
    - For each field ``beside_return`` of a rollout: its numbers of the same episodes. Sums of own rewards are
      ``shaped_returns``. Episode metrics have the name of the field, and NaN where an episode has no such number.
    - ``lane_rollout``: number of each lane's next rollout.
    - ``lane_position``: position of each lane at the end of its last rollout.
    - ``lane_collected``, ``lane_spoilt``: rows that each lane had given by then, and those dropped for bad numbers.
    - ``lane_carry.*``: the policy's carry of each lane then, if it has one.
    - ``steps``, ``stale``: rows that were learned, and rows that were dropped for their age.
    """
    return (
        *_common(spec, num_envs, beside_return=beside_return),
        ArraySpec("consumed_slot", (rollouts_per_batch,), "int64"),
        ArraySpec("consumed_sequence", (rollouts_per_batch,), "int64"),
    )


def replay_record_specs(
    spec: AlgorithmSpec, num_envs: int, writers: int, *, beside_return: tuple[str, ...] = ()
) -> tuple[ArraySpec, ...]:
    """The arrays of the commit record of a learner from a table.

    - ``taken``: number of slots of each writer that the record accounts for.
    - ``owed``: gradient steps that are due and not yet taken.

    The rest is as in `record_specs`.
    """
    return (
        *_common(spec, num_envs, beside_return=beside_return),
        ArraySpec("taken", (writers,), "int64"),
        ArraySpec("owed", (), "int64"),
    )


def parameter_record_specs(
    spec: AlgorithmSpec, num_envs: int, writers: int, learners: int, *, beside_return: tuple[str, ...] = ()
) -> tuple[ArraySpec, ...]:
    """The arrays of the commit record of a `ParameterNode`.

    - ``settled``: number of each learner's last step that was applied or dropped.
    - ``applied``, ``too_old``: how many steps were applied, and how many dropped.

    The rest is as in `replay_record_specs`.
    """
    return (
        *replay_record_specs(spec, num_envs, writers, beside_return=beside_return),
        ArraySpec("settled", (learners,), "int64"),
        *(ArraySpec(name, (), "int64") for name in ("applied", "too_old")),
    )


def stream_parameter_record_specs(
    spec: AlgorithmSpec, num_envs: int, learners: int, rollouts: int, *, beside_return: tuple[str, ...] = ()
) -> tuple[ArraySpec, ...]:
    """The arrays of the commit record of a `StreamParameterNode`, whose learners have batches of ``rollouts`` rollouts.

    - ``settled``: number of each learner's last step that was applied or dropped.
    - ``applied``, ``too_old``: how many steps were applied, and how many dropped.
    - ``batch``, ``batch_settled``, ``batch_applied``: each learner's batch, as
      `penstock.nodes.learner.gradient_slot.own_batch_board_specs` says.

    The rest is as in `record_specs`.
    """
    return (
        *record_specs(spec, num_envs, rollouts, beside_return=beside_return),
        *own_batch_board_specs((), learners, rollouts),
        *(ArraySpec(name, (), "int64") for name in ("applied", "too_old")),
    )


def _common(spec: AlgorithmSpec, num_envs: int, *, beside_return: tuple[str, ...]) -> tuple[ArraySpec, ...]:
    return (
        *spec.state,
        ArraySpec("update", (), "int64"),
        ArraySpec("steps", (), "int64"),
        ArraySpec("episodes", (), "int64"),
        ArraySpec("elapsed_s", (), "float64"),
        ArraySpec("returns", (RETURN_WINDOW,), "float64"),
        ArraySpec("lengths", (RETURN_WINDOW,), "int64"),
        *(ArraySpec(_RECORDED.get(field, field), (RETURN_WINDOW,), "float64") for field in beside_return),
        *VERDICT,
        ArraySpec("lane_rollout", (num_envs,), "int64"),
        ArraySpec("lane_position", (num_envs, 4), "int64"),
        ArraySpec("lane_collected", (num_envs,), "int64"),
        ArraySpec("lane_spoilt", (num_envs,), "int64"),
        *(ArraySpec(f"lane_{part.name}", (num_envs, *part.shape), part.dtype) for part in spec.policy.carry),
        ArraySpec("stale", (), "int64"),
    )


def begin_anew(record: Arrays) -> None:
    """Fill a record as if nothing was learned yet. The caller writes the state."""
    for name, values in record.items():
        values[...] = np.nan if name.startswith(METRIC_FIELD) else 0
    if "consumed_slot" in record:
        record["consumed_slot"][:] = -1
    record["best_evaluation"][...] = -np.inf


def why_done(record: Arrays, run: RunConfig) -> Literal["timesteps", "target_return", "early_stop"] | None:
    """The setting by which a run with this record is done; ``None`` if it is to go on."""
    if record["steps"] >= run.timesteps:
        return "timesteps"
    enough = run.target_return is not None and record["episodes"] >= RETURN_WINDOW
    if enough and record["returns"].mean() >= run.target_return:
        return "target_return"
    if run.early_stop and record["since_best"] >= run.early_stop:
        return "early_stop"
    return None


def carry_over(new: Arrays, old: Arrays) -> None:
    """Fill ``new`` with ``old``."""
    for name, values in new.items():
        values[...] = old[name]


def fill_learned(new: Arrays, old: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    """Fill ``new`` with ``old`` plus the update by the rollouts in ``slots``. The caller writes the state."""
    carry_over(new, old)
    count_learned(new, rollouts, slots)


def fill_dropped(new: Arrays, old: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    """Fill ``new`` with ``old`` plus the dropping of the rollouts in ``slots``."""
    carry_over(new, old)
    count_dropped(new, rollouts, slots)


def fill_learned_from_table(new: Arrays, old: Arrays, rollouts: Sequence[Arrays]) -> None:
    """Fill ``new`` with ``old`` plus one update, and the steps, episodes and positions of these rollouts."""
    carry_over(new, old)
    _count(new, rollouts)


def count_learned(new: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    """Count in ``new`` one update by the rollouts in ``slots``."""
    _count(new, [rollouts.slot(index) for index in slots])
    _name_consumed(new, rollouts, slots)


def count_dropped(new: Arrays, rollouts: StreamReader, slots: Sequence[int]) -> None:
    """Count in ``new`` that the rollouts in ``slots`` were dropped."""
    for index in slots:
        rollout = rollouts.slot(index)
        new["stale"] += int(rollout["valid"][:-1].sum())
        _place_lanes(new, rollout)
    _name_consumed(new, rollouts, slots)


def _count(new: Arrays, rollouts: Sequence[Arrays]) -> None:
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


def consumed_sequences(record: Arrays) -> list[int]:
    """Sequences of the rollouts that this commit has used up. Their slots are free, or to be freed."""
    sequences: list[int] = record["consumed_sequence"][record["consumed_slot"] >= 0].tolist()
    return sequences


def _place_lanes(new: Arrays, rollout: Arrays) -> None:
    first, lanes = int(rollout["first_lane"]), len(rollout["lane_position"])
    new["lane_rollout"][first : first + lanes] = rollout["rollout"] + 1
    for name in new:
        if name.startswith("lane_") and name in rollout:
            new[name][first : first + lanes] = rollout[name]


def _add_episodes(new: Arrays, rollouts: Sequence[Arrays]) -> None:
    """Add the episodes that ended, by time and then by lane. This order does not depend on the number of workers."""
    order = np.concatenate([np.empty((0, 2), np.int64), *(_episode_ends(rollout) for rollout in rollouts)])
    sequence = np.lexsort((order[:, 1], order[:, 0]))
    new["episodes"] += len(order)
    for name in new:
        if name not in _EPISODES and not name.startswith(METRIC_FIELD):
            continue
        field = _EPISODES.get(name, name)
        parts = [rollout[field][: int(rollout["episode_count"])] for rollout in rollouts]
        ended = np.concatenate([new[name][:0], *parts])
        new[name][:] = np.concatenate([new[name], ended[sequence]])[-RETURN_WINDOW:]


def _episode_ends(rollout: Arrays) -> Array:
    """Step and lane of the end of each episode, in the order of the rollout's list: int64 ``[n, 2]``."""
    ended = (rollout["terminated"] | rollout["truncated"]) & rollout["valid"]
    t, lane = np.nonzero(ended[:-1])
    return np.stack([t, lane + int(rollout["first_lane"])], axis=1)
