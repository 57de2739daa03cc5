"""The fields of a rollout's slot: rows in time order, side areas, and what identifies it."""

from penstock.types import ArraySpec, Spaces

__all__ = ["rollout_specs", "table_specs"]


def rollout_specs(
    spaces: Spaces, row: tuple[ArraySpec, ...], num_steps: int, lanes: int, *, same_step: bool, shaped: bool = False
) -> tuple[ArraySpec, ...]:
    """The arrays of one slot that holds a rollout of ``num_steps`` steps of ``lanes`` lanes.

    Args:
        spaces: of one lane.
        row: the algorithm's own row fields, per lane.
        num_steps: T. There are T + 1 rows; row T is the bootstrap.
        lanes: lanes in the slot.
        same_step: the source resets in the same step, so last observations of truncated episodes need a side area.
        shaped: rewards are the user's own, so that episodes have two returns.
    """
    steps, ends = num_steps + 1, num_steps * lanes
    rows = (
        *spaces.obs_specs(),
        spaces.action_spec(),
        ArraySpec("reward", (), "float32"),
        ArraySpec("terminated", (), "bool"),
        ArraySpec("truncated", (), "bool"),
        ArraySpec("valid", (), "bool"),
        ArraySpec("policy_version", (), "int64"),
        *row,
    )
    # Side areas are filled from the front: pages that no episode end reaches are never touched and cost no memory.
    final = tuple(ArraySpec(f"final.{s.name}", (ends, *s.shape), s.dtype) for s in spaces.obs_specs() if same_step)
    return (
        *(spec.within(steps, lanes) for spec in rows),
        *final,
        ArraySpec("final_count", (), "int64"),
        ArraySpec("final_t", (ends,), "int64"),
        ArraySpec("final_lane", (ends,), "int64"),
        ArraySpec("final_value", (ends,), "float32"),
        ArraySpec("episode_count", (), "int64"),
        ArraySpec("episode_return", (ends,), "float64"),
        ArraySpec("episode_length", (ends,), "int64"),
        *(ArraySpec(name, (ends,), "float64") for name in ("shaped_return",) if shaped),
        ArraySpec("first_lane", (), "int64"),
        ArraySpec("rollout", (), "int64"),
        ArraySpec("lane_position", (lanes, 4), "int64"),
        # All that each lane has given in the whole run, this rollout included, and what of it held bad numbers.
        ArraySpec("lane_collected", (lanes,), "int64"),
        ArraySpec("lane_spoilt", (lanes,), "int64"),
    )


def table_specs(
    spaces: Spaces, row: tuple[ArraySpec, ...], num_steps: int, lanes: int, *, same_step: bool, shaped: bool = False
) -> tuple[ArraySpec, ...]:
    """The arrays of one slot of a table: those of a rollout, and how its lanes go on from the slot before.

    Of observations that are stacks, the newest frame alone: the others stand in the rows before.
    """
    return (
        *rollout_specs(spaces.newest(), row, num_steps, lanes, same_step=same_step, shaped=shaped),
        # Whether row 0 goes on where row T of the writer's slot before stopped, and how many steps of its episode each
        # lane has behind it there.
        ArraySpec("continues", (lanes,), "bool"),
        ArraySpec("steps_before", (lanes,), "int64"),
    )
