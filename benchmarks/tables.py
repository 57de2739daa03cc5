"""Replay tables of made-up rows: their shapes, and two ways to fill them. Measures nothing.

Episodes end like those of Pendulum-v1: all lanes at once after 200 steps, truncated, with a last observation.
"""

from itertools import cycle
from typing import NamedTuple, TypeAlias

import numpy as np

from penstock.envs.bad_numbers import earliest
from penstock.kernels.rollout import RolloutWriter, rollout_writer
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.replay.priorities import Ranking, enter
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, ArraySpec, Box, Spaces, StepResult

EPISODE = 200
"""Steps of an episode."""
Part: TypeAlias = tuple[str, tuple[slice, ...], Array]
"""A field, the place in its slot, and the values there."""


class Shape(NamedTuple):
    """A table of one kind of rows."""

    obs: Box
    steps: int
    lanes: int
    slots: int

    def make(self, memory: Array | None = None) -> Table:
        """The table, in new memory if there is none."""
        if memory is None:
            memory = Segment.create(Table.required(self.specs, 1, self.slots), "replay").bytes
        return Table(memory, self.specs, 1, self.slots)

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """The arrays of one slot."""
        return table_specs(self.spaces, (), self.steps, self.lanes, same_step=True)

    @property
    def spaces(self) -> Spaces:
        """One observation, one action of one number."""
        return Spaces((("obs", self.obs),), Box((1,), "float32", (-2.0,), (2.0,)))

    @property
    def rows(self) -> int:
        """Number of rows that can be sampled. The slot that is filled next is left out."""
        return (self.slots - 1) * self.steps * self.lanes


class Source:
    """A vector environment that resets in the same step. It gives the same few random numbers again and again."""

    def __init__(self, shape: Shape) -> None:
        rng = np.random.default_rng(0)
        lanes, obs = shape.lanes, shape.obs

        def observations() -> Arrays:
            return {"obs": (255 * rng.random((lanes, *obs.shape))).astype(obs.dtype)}

        self.first = observations()
        self.actions = [rng.random((lanes, 1), np.float32) for _ in range(8)]
        flags = {"terminated": np.zeros(lanes, bool), "reset": np.zeros(lanes, bool), "final_obs": observations()}
        on, off = np.ones(lanes, bool), np.zeros(lanes, bool)
        rewards = [rng.random(lanes, np.float32) for _ in self.actions]
        steps = [(observations(), reward) for reward in rewards]
        self._going_on = [StepResult(obs=obs, reward=reward, truncated=off, **flags) for obs, reward in steps]
        self._last = [step._replace(truncated=on) for step in self._going_on]

    def step(self, number: int) -> StepResult:
        """The result of step ``number`` of all lanes."""
        return (self._last if number % EPISODE == EPISODE - 1 else self._going_on)[number % len(self.actions)]


class StepByStep:
    """Fills slots as an environment node does, a step of all lanes at a time. Its rollouts are ranked, if asked.

    It does not step environments, ask a policy, or write the action log.
    """

    def __init__(self, shape: Shape, table: Table, tree: SumTree | None = None) -> None:
        self._shape, self._table, self._tree = shape, table, tree
        self._source = Source(shape)
        self._returns, self._lengths = np.zeros(shape.lanes), np.zeros(shape.lanes, np.int64)
        self._bound: dict[int, tuple[Arrays, RolloutWriter]] = {}
        self._obs = {name: values.copy() for name, values in self._source.first.items()}
        self._number = 0

    def __call__(self) -> None:
        """Insert one rollout."""
        shape, table = self._shape, self._table
        sequence = table.written(0)
        index = table.claim(0, sequence)
        slot, writer = self._slot(index)
        self._begin(slot)
        store, step, actions, action = writer.store, self._source.step, self._source.actions, slot["action"]
        for t in range(shape.steps):
            action[t] = actions[t % len(actions)]
            store(t, step(self._number + t))
        self._number += shape.steps
        self._obs["obs"][...] = slot["obs"][shape.steps]
        if earliest(slot, ("obs",), shape.steps) is not None:
            raise ValueError("the rows hold bad numbers")
        slot["lane_collected"][...] += slot["valid"][: shape.steps].sum(axis=0)
        if self._tree is not None:
            enter(self._tree, Ranking(0.6, None, None), slot, index, sequence)
        table.push(0, sequence)

    def _slot(self, index: int) -> tuple[Arrays, RolloutWriter]:
        if index not in self._bound:
            slot = self._table.slot(index)
            running = {"running_return": self._returns, "running_length": self._lengths}
            self._bound[index] = slot, rollout_writer(slot, ("obs",), same_step=True, **running)
        return self._bound[index]

    def _begin(self, slot: Arrays) -> None:
        slot["obs"][0] = self._obs["obs"]
        slot["policy_version"][: self._shape.steps] = 1
        slot["final_count"][...], slot["episode_count"][...] = 0, 0
        slot["continues"][...], slot["steps_before"][...] = self._number > 0, self._lengths


class WholeRollouts:
    """Fills slots with whole rollouts that were made before. It takes no step."""

    def __init__(self, shape: Shape, table: Table) -> None:
        found = recorded(shape)
        self._table, self._rollouts = table, cycle(found)
        self.nbytes = sum(values.nbytes for rollout in found for _, _, values in rollout) // len(found)

    def __call__(self) -> None:
        """Insert one rollout."""
        table, arrays = self._table, self._table.arrays
        sequence = table.written(0)
        index = table.claim(0, sequence)
        for name, part, values in next(self._rollouts):
            arrays[name][(index, *part)] = values
        table.push(0, sequence)


def recorded(shape: Shape) -> list[list[Part]]:
    """Rollouts of one period, after which episodes end at the same rows again."""
    period = int(np.lcm(shape.steps, EPISODE)) // shape.steps
    table = shape._replace(slots=period + 2).make()
    step = StepByStep(shape, table)
    for _ in range(period + 1):
        step()
    # The first rollout is left out, because it continues no other.
    return [_held(table.slot(table.index(0, sequence))) for sequence in range(1, period + 1)]


def _held(slot: Arrays) -> list[Part]:
    # Side areas have space for an end at every row. Only their used part is kept.
    ended = {name: slice(int(slot[f"{name}_count"])) for name in ("final", "episode")}
    sides = {name: ended[name.partition(".")[0].partition("_")[0]] for name in slot if name.startswith(tuple(ended))}
    parts = {name: (sides[name],) if name in sides and values.ndim else () for name, values in slot.items()}
    return [(name, part, slot[name][part]) for name, part in parts.items()]


def filled(shape: Shape) -> Table:
    """A table whose ring is full."""
    table = shape.make()
    insert = WholeRollouts(shape, table)
    for _ in range(shape.slots):
        insert()
    return table
