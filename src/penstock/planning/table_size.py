"""How many rows a replay table keeps, and whether they are enough for its minibatches."""

import bisect
import math
from dataclasses import replace

from penstock.algorithm import AlgorithmSpec, ReplaySchedule, TableSpec
from penstock.config.agreement import shards_of
from penstock.config.episode_metrics import info_names
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.program.rollout import fields_beside_return, table_specs
from penstock.replay.table_file import Rings

__all__ = ["check_sequences", "with_checked_table"]


def with_checked_table(config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> AlgorithmSpec:
    """The spec with a table of as many rows as ``capacity`` and ``table_bytes`` both allow.

    Raises:
        ConfigError: the table holds too few rows for its minibatches.
    """
    run, num_steps = config.run, config.algorithm.num_steps
    schedule, table = spec.replay()
    given = f"--capacity {table.capacity}"
    fits = table.capacity if run.table_bytes is None else _rows_within(run.table_bytes, config, spec, profile)
    if fits < table.capacity:
        table = replace(table, capacity=fits)
        given = f"--table_bytes {run.table_bytes}"
    if table.sequences is not None:
        # Learning begins once every lane has a sequence.
        least = run.num_envs * _reach(table, num_steps)
        schedule = replace(schedule, min_rows=max(schedule.min_rows, least))
        spec = replace(spec, schedule=schedule)
    sampled = spec.rows(schedule.mini_batch_size, num_steps)
    _check_table(schedule, table, run.num_envs, num_steps, given, sampled)
    return replace(spec, table=table)


def check_sequences(config: Config, spec: AlgorithmSpec) -> None:
    """Check that each row of a new run would be in a sequence.

    Raises:
        ConfigError: some would be in none.
    """
    num_steps, table = config.algorithm.num_steps, spec.table
    if table is not None and table.sequences is not None and num_steps > table.sequences.learned:
        raise ConfigError(
            f"--num_steps {num_steps} is more than --learned_steps {table.sequences.learned}: a sequence begins with a "
            "rollout, so some rows of each rollout would never be learned from; give --learned_steps "
            f"{num_steps} or more"
        )


def _reach(table: TableSpec, num_steps: int) -> int:
    """How many steps of a lane a sampled unit may need, in whole rollouts where it begins with one."""
    if table.sequences is None:
        return table.n_step
    return math.ceil(table.sequences.length / num_steps) * num_steps


def _rows_within(nbytes: int, config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> int:
    """Rows of a table of ``nbytes``, priorities included, in the layout of its topology."""
    num_envs, writers = config.run.num_envs, config.run.num_workers
    num_steps: int = config.algorithm.num_steps
    if not isinstance(writers, int):
        raise ConfigError("a table needs a config that is resolved")
    _, table = spec.replay()
    names = info_names(config.run.episode_metrics)
    arrays = table_specs(
        profile.spaces,
        spec.row,
        num_steps,
        num_envs // writers,
        same_step=profile.same_step,
        beside_return=fields_beside_return(names, shaped=config.run.reward is not None),
        carry=spec.policy.carry,
    )
    rings = Rings(arrays, writers, 1, table.priorities is not None, shards_of(config.run))
    rows = num_envs * num_steps
    enough = range(1, math.ceil(table.capacity / rows) + 2)
    slots = bisect.bisect_right(enough, nbytes, key=lambda count: replace(rings, slots=count).nbytes)
    # Each writer fills one slot, which cannot be sampled meanwhile.
    return max(0, slots - 1) * rows


def _check_table(  # noqa: PLR0917 - facts of one run
    schedule: ReplaySchedule, table: TableSpec, num_envs: int, num_steps: int, given: str, sampled: int
) -> None:
    """Check that the table holds enough rows for its minibatches.

    Args:
        schedule: when gradient steps begin, and how many rows each samples.
        table: of how many rows.
        num_envs: lanes of the run.
        num_steps: steps of each lane in one rollout.
        given: the flag that sets the table's size and its value, for the error text.
        sampled: rows of a minibatch.

    Raises:
        ConfigError: the table holds too few rows.
    """
    rows, steps = num_envs * num_steps, _reach(table, num_steps)
    reach = num_envs * steps
    least = max(schedule.min_rows, 2 * rows, reach + rows)
    if table.capacity < least:
        why = f"learning begins at {schedule.min_rows:,} rows, and rows come {rows:,} at a time"
        if least == reach + rows:
            why = f"{steps} steps of {num_envs} lanes are {reach:,} rows, and {rows:,} more come at a time"
        raise ConfigError(f"{given} keeps too few rows: {why}; there must be room for at least {least:,}")
    if math.ceil(schedule.min_rows / rows) * rows < reach:
        raise ConfigError(
            f"--min_rows {schedule.min_rows} is too few: by then none of {num_envs} lanes has {table.n_step} steps "
            f"(--n_step); give at least {reach}"
        )
    if sampled > table.capacity:
        more = f"more than the {table.capacity:,} rows that {given.partition(' ')[0]} keeps"
        raise ConfigError(f"--mini_batch_size {sampled} is {more}")
