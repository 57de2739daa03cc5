"""A made-up world: lanes in which all observations and rewards are different, written into tables as rollouts."""

from dataclasses import dataclass

import numpy as np

from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.types import Array, ArraySpec, Box, Spaces

SPACES = Spaces((("obs", Box((2,), "float32", (-1.0,) * 2, (1.0,) * 2)),), Box((1,), "float32", (-1.0,), (1.0,)))


@dataclass
class Step:
    """One vector step of one lane."""

    obs: float
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    next: float
    """The observation after it, the last one of an episode that ended here."""


def lane_steps(lane: int, count: int, seed: int, same_step: bool, end: float = 0.15) -> list[Step]:
    """This many steps of a lane, in episodes that end at random."""
    random = np.random.default_rng([seed, lane])
    steps: list[Step] = []
    number = 1000 * lane
    while len(steps) < count:
        number += 1
        terminated, truncated = bool(random.random() < end), bool(random.random() < end)
        steps.append(Step(number, 0.5 * number, terminated, truncated, valid=True, next=number + 1))
        if terminated or truncated:
            number += 1  # the last observation
            if not same_step:
                # The source resets in the step that follows, whose observation is that last one.
                steps.append(Step(number, 0.0, terminated=False, truncated=False, valid=False, next=number + 1))
    return steps[:count]


def world_specs(num_steps: int, lanes: int, same_step: bool, carry: tuple[ArraySpec, ...] = ()) -> list[ArraySpec]:
    row = (ArraySpec("log_prob", (), "float32"),)
    return list(table_specs(SPACES, row, num_steps, lanes, same_step=same_step, carry=carry))


def make_table(
    num_steps: int, lanes: int, writers: int, slots: int, same_step: bool, carry: tuple[ArraySpec, ...] = ()
) -> Table:
    specs = world_specs(num_steps, lanes, same_step, carry)
    return Table(aligned_zeros(Table.required(specs, writers, slots)), specs, writers, slots)


def steps_before(steps: list[Step], same_step: bool) -> int:
    """Number of steps so far of the episode that goes on behind these steps."""
    count = 0
    for step in reversed(steps):
        if not step.valid or (same_step and (step.terminated or step.truncated)):
            break
        count += 1
    return count


def write(table: Table, writer: int, sequence: int, steps: list[list[Step]], continues: Array, same_step: bool) -> None:
    """One slot from the steps that each of the writer's lanes has, from step ``sequence * T`` on."""
    slot = table.slot(table.claim(writer, sequence))
    num_steps = len(slot["valid"]) - 1
    slot["continues"][:] = continues
    first = sequence * num_steps
    for lane, all_steps in enumerate(steps):
        before = steps_before(all_steps[:first], same_step)
        # Where a lane begins anew, it does so with an episode.
        slot["steps_before"][lane] = before if continues[lane] else 0
    slot["final_count"][...] = 0
    for t in range(num_steps + 1):
        for lane, all_steps in enumerate(steps):
            number = sequence * num_steps + t
            step = all_steps[number]
            slot["obs"][t, lane] = step.obs, -step.obs
            if t == num_steps:
                continue
            slot["action"][t, lane] = 2 * step.obs
            slot["log_prob"][t, lane] = 3 * step.obs
            slot["reward"][t, lane] = step.reward
            slot["terminated"][t, lane] = step.terminated
            slot["truncated"][t, lane] = step.truncated
            slot["valid"][t, lane] = step.valid
            if same_step and step.truncated and not step.terminated:
                at = int(slot["final_count"])
                slot["final_t"][at], slot["final_lane"][at] = t, lane
                slot["final.obs"][at] = step.next, -step.next
                slot["final_count"][...] = at + 1
    table.push(writer, sequence)
