"""The fields of a slot that holds a rollout: rows in time order, side areas, and numbers that identify it."""

from collections.abc import Sequence

from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.types import ArraySpec, Spaces

__all__ = ["fields_beside_return", "rollout_specs", "row_specs", "table_specs"]


def fields_beside_return(metrics: Sequence[str], *, shaped: bool) -> tuple[str, ...]:
    """The fields with further numbers of each episode, beside its return and its length.

    Args:
        metrics: names in infos of the episode metrics.
        shaped: the run has an own reward. Its episodes then have two returns.
    """
    own = ("shaped_return",) if shaped else ()
    return (*own, *(f"{METRIC_FIELD}{name}" for name in metrics))


def row_specs(spaces: Spaces, row: tuple[ArraySpec, ...], carry: tuple[ArraySpec, ...] = ()) -> tuple[ArraySpec, ...]:
    """The fields of one row of one lane; arguments as for `rollout_specs`."""
    return (
        *spaces.obs_specs(),
        spaces.action_spec(),
        ArraySpec("reward", (), "float32"),
        ArraySpec("terminated", (), "bool"),
        ArraySpec("truncated", (), "bool"),
        ArraySpec("valid", (), "bool"),
        ArraySpec("policy_version", (), "int64"),
        *(ArraySpec("first", (), "bool") for _ in carry[:1]),
        *row,
    )


def rollout_specs(
    spaces: Spaces,
    row: tuple[ArraySpec, ...],
    num_steps: int,
    lanes: int,
    *,
    same_step: bool,
    beside_return: tuple[str, ...] = (),
    carry: tuple[ArraySpec, ...] = (),
) -> tuple[ArraySpec, ...]:
    """The arrays of one slot that holds a rollout of ``num_steps`` steps of ``lanes`` lanes.

    Args:
        spaces: the spaces of one lane.
        row: the algorithm's own row fields, for one lane.
        num_steps: T. There are T + 1 rows; row T is the bootstrap row.
        lanes: number of lanes in the slot.
        same_step: the source resets in the same step. Last observations of truncated episodes then need a side area.
        beside_return: as `fields_beside_return` gives them.
        carry: the arrays that the policy hands on from row to row, for one lane. A slot has them for row 0, for the
            row behind the rollout (``lane_carry``), and for the last observations of truncated episodes if rows have
            values.
    """
    steps, ends = num_steps + 1, num_steps * lanes
    # Side areas are filled from the front. Pages behind the last episode's end are never touched and cost no memory.
    # The carry before a last observation is needed for its value only.
    judged = carry if any(part.name == "value" for part in row) else ()
    lasts = (*spaces.obs_specs(), *judged) if same_step else ()
    final = tuple(ArraySpec(f"final.{s.name}", (ends, *s.shape), s.dtype) for s in lasts)
    return (
        *(spec.within(steps, lanes) for spec in row_specs(spaces, row, carry)),
        *final,
        ArraySpec("final_count", (), "int64"),
        ArraySpec("final_t", (ends,), "int64"),
        ArraySpec("final_lane", (ends,), "int64"),
        ArraySpec("final_value", (ends,), "float32"),
        ArraySpec("episode_count", (), "int64"),
        ArraySpec("episode_return", (ends,), "float64"),
        ArraySpec("episode_length", (ends,), "int64"),
        *(ArraySpec(name, (ends,), "float64") for name in beside_return),
        ArraySpec("first_lane", (), "int64"),
        ArraySpec("rollout", (), "int64"),
        ArraySpec("lane_position", (lanes, 4), "int64"),
        # Rows of each lane in the whole run, this rollout included, and how many of them were dropped for bad numbers.
        ArraySpec("lane_collected", (lanes,), "int64"),
        ArraySpec("lane_spoilt", (lanes,), "int64"),
        *(spec.within(lanes) for spec in carry),
        *(ArraySpec(f"lane_{s.name}", (lanes, *s.shape), s.dtype) for s in carry),
    )


def table_specs(
    spaces: Spaces,
    row: tuple[ArraySpec, ...],
    num_steps: int,
    lanes: int,
    *,
    same_step: bool,
    beside_return: tuple[str, ...] = (),
    carry: tuple[ArraySpec, ...] = (),
) -> tuple[ArraySpec, ...]:
    """The arrays of one slot of a table: those of a rollout, and how its lanes continue the writer's previous slot.

    A row keeps only the newest frame of a stack. The other frames are in the rows before.
    """
    return (
        *rollout_specs(
            spaces.newest(), row, num_steps, lanes, same_step=same_step, beside_return=beside_return, carry=carry
        ),
        # For each lane: whether row 0 continues row T of the writer's previous slot, and how many steps its episode has
        # before row 0.
        ArraySpec("continues", (lanes,), "bool"),
        ArraySpec("steps_before", (lanes,), "int64"),
    )
