"""How many rows a replay table keeps, and whether they are enough for its minibatches."""

import bisect
import math
from dataclasses import replace

from penstock.algorithm import AlgorithmSpec, TableSpec
from penstock.config.agreement import shards_of
from penstock.config.episode_metrics import info_names
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.program.rollout import fields_beside_return, table_specs
from penstock.replay.table_file import Rings

__all__ = ["check_sequences", "with_checked_table", "within_table_bytes"]


def with_checked_table(config: Config, spec: AlgorithmSpec) -> AlgorithmSpec:
    """The spec with a checked table. Cloning gets a small table; with sequences, ``min_rows`` may become larger.

    Raises:
        ConfigError: the table holds too few rows for its minibatches.
    """
    schedule, table = spec.replay()
    if spec.cloning is not None:
        # Cloning samples nothing from this table. So it only needs room for this turn's rollouts and for the next ones.
        capacity = 2 * config.run.num_envs * config.algorithm.num_steps
        return replace(spec, table=replace(table, capacity=capacity))
    if table.sequences is not None:
        # Learning begins once every lane has a sequence.
        least = config.run.num_envs * _reach(table, config.algorithm.num_steps)
        spec = replace(spec, schedule=replace(schedule, min_rows=max(schedule.min_rows, least)))
    _check_table(config, spec, f"--capacity {table.capacity}")
    return spec


def within_table_bytes(config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> AlgorithmSpec:
    """The spec with a table whose rows fit into ``table_bytes``. Call `with_checked_table` first.

    Raises:
        ConfigError: the table holds too few rows for its minibatches.
    """
    nbytes = config.run.table_bytes
    _, table = spec.replay()
    # The table of a clone is as small as its turns allow.
    if nbytes is None or spec.cloning is not None:
        return spec
    fits = _rows_within(nbytes, config, spec, profile)
    if fits >= table.capacity:
        return spec
    spec = replace(spec, table=replace(table, capacity=fits))
    _check_table(config, spec, f"--table_bytes {nbytes}")
    return spec


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


def _check_table(config: Config, spec: AlgorithmSpec, given: str) -> None:
    """Check that the table holds enough rows for its minibatches.

    Args:
        config: of the run.
        spec: of its algorithm.
        given: the flag that sets the table's size and its value, for the error text.

    Raises:
        ConfigError: the table holds too few rows.
    """
    num_envs, num_steps = config.run.num_envs, config.algorithm.num_steps
    schedule, table = spec.replay()
    sampled = spec.rows(schedule.mini_batch_size, num_steps)
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
