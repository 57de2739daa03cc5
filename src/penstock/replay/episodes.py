"""Puts kept episodes into a replay table in this process, as the rows of one lane. Samples nothing."""

from collections.abc import Sequence

import numpy as np

from penstock.kernels.actions import from_environment
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.saved_runs.episodes import KeptEpisode
from penstock.types import Array, Arrays, ArraySpec, Box, Discrete, Spaces

__all__ = ["steps_of", "table_of"]


def steps_of(episode: KeptEpisode) -> int:
    """Steps of an episode that have an outcome. The last action of a client that vanished has none."""
    return len(episode.reward)


def table_of(
    episodes: Sequence[KeptEpisode], spaces: Spaces, space: Box | Discrete, specs: tuple[ArraySpec, ...]
) -> Table:
    """A table that holds these episodes, one after the other.

    An episode of n steps has n rows, and behind them one that is not valid and holds its last observation: as if its
    environment reset in a step of its own.

    Args:
        episodes: those without a step are left out.
        spaces: of the episodes.
        space: the action space among them.
        specs: the arrays of a slot with one lane, see `penstock.program.rollout.table_specs`.
    """
    rows = _rows([episode for episode in episodes if steps_of(episode)], spaces, space)
    num_steps = next(spec.shape[0] for spec in specs if spec.name == "reward") - 1
    count = len(rows["valid"])
    slots = -(-count // num_steps)
    # One slot of a ring is never read, because its writer may be filling it.
    table = Table(aligned_zeros(Table.required(specs, 1, slots + 1)), specs, 1, slots + 1)
    for sequence in range(slots):
        first = sequence * num_steps
        index = table.claim(0, sequence)
        slot = table.slot(index)
        for name in rows.keys() - {"steps_before"}:
            # Row T is for the observation behind the slot only.
            most = num_steps if name in {"valid", "terminated", "truncated"} else num_steps + 1
            values = rows[name][first : first + most]
            slot[name][: len(values), 0] = values
        slot["continues"][0] = sequence > 0
        slot["steps_before"][0] = rows["steps_before"][first]
        table.push(0, sequence)
    return table


def _rows(episodes: Sequence[KeptEpisode], spaces: Spaces, space: Box | Discrete) -> Arrays:
    """All rows of the lane: name -> ``[rows, ...]``; of a stack of frames the newest one."""
    stacks = spaces.stacks()
    parts: dict[str, list[Array]] = {}
    for episode in episodes:
        steps = steps_of(episode)
        row: Arrays = {name: values[: steps + 1] for name, values in episode.obs.items()}
        row |= {name: values[:, -1] for name, values in row.items() if name in stacks}
        row["action"] = _with_one_more(from_environment(episode.action[:steps], space))
        row["reward"] = _with_one_more(episode.reward)
        row["valid"] = np.arange(steps + 1) < steps
        ends = np.arange(steps + 1) == steps - 1
        row["terminated"], row["truncated"] = ends & episode.terminated, ends & (not episode.terminated)
        row["steps_before"] = np.arange(steps + 1)
        for name, values in row.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _with_one_more(values: Array) -> Array:
    """The same values and one of zeros behind them."""
    return np.concatenate([values, np.zeros_like(values[:1])])
