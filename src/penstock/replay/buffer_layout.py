"""The memory of a buffer that a user makes: the rings of a table, and the priorities of its rows. Holds none itself.

The user names the fields of a row: observation fields, an action, others. The arrays of a slot are those of
`penstock.program.rollout.table_specs` that a `Sampler` reads and `contents` copies. So each observation is stored once:
the observation after a row is that of the next row.
"""

from dataclasses import dataclass

from penstock.memory.layout import aligned
from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, ArraySpec

__all__ = ["BufferLayout", "is_observation"]


def is_observation(name: str) -> bool:
    """Whether a field of this name is an observation, of which the next row has another one."""
    return name == "obs" or name.startswith("obs.")


@dataclass(frozen=True)
class BufferLayout:
    """Rings of slots. A slot holds a rollout: ``rollout_steps`` steps of ``lanes`` lanes."""

    fields: tuple[ArraySpec, ...]
    """What the user stores of one row of one lane, besides reward and end."""
    writers: int
    lanes: int
    """Of each writer."""
    rollout_steps: int
    slots: int
    """Of each writer."""
    ranked: bool
    """Whether rows have priorities."""

    @property
    def observed(self) -> tuple[ArraySpec, ...]:
        """The observation fields."""
        return tuple(spec for spec in self.fields if is_observation(spec.name))

    @property
    def row(self) -> tuple[ArraySpec, ...]:
        """All arrays of one row of one lane."""
        ends = (ArraySpec(name, (), "bool") for name in ("terminated", "truncated", "valid"))
        return (*self.fields, ArraySpec("reward", (), "float32"), *ends)

    @property
    def slot_rows(self) -> int:
        """Rows with a transition in one slot."""
        return self.rollout_steps * self.lanes

    @property
    def flat_rows(self) -> int:
        """Rows of all slots, those behind each rollout included."""
        return self.writers * self.slots * (self.rollout_steps + 1) * self.lanes

    @property
    def slot(self) -> tuple[ArraySpec, ...]:
        """The arrays of one slot."""
        ends = self.slot_rows
        return (
            *(spec.within(self.rollout_steps + 1, self.lanes) for spec in self.row),
            # Filled from the front. Pages behind the last truncated episode are never touched and cost no memory.
            *(ArraySpec(f"final.{spec.name}", (ends, *spec.shape), spec.dtype) for spec in self.observed),
            ArraySpec("final_count", (), "int64"),
            ArraySpec("final_t", (ends,), "int64"),
            ArraySpec("final_lane", (ends,), "int64"),
            ArraySpec("rollout", (), "int64"),
            ArraySpec("continues", (self.lanes,), "bool"),
            # Stays 0: only stacks of frames need it, and rows here have none.
            ArraySpec("steps_before", (self.lanes,), "int64"),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the priorities."""
        return self._tree_at + (SumTree.required(self.flat_rows) if self.ranked else 0)

    def table(self, memory: Array) -> Table:
        """The table over ``nbytes`` bytes, uint8, that start at a multiple of 64 and were zero at first."""
        return Table(memory[: self._tree_at], self.slot, self.writers, self.slots)

    def tree(self, memory: Array) -> SumTree | None:
        """The priorities of the flat rows, in the same bytes; ``None``: rows have none."""
        return SumTree(memory[self._tree_at :], self.flat_rows) if self.ranked else None

    @property
    def _tree_at(self) -> int:
        return aligned(Table.required(self.slot, self.writers, self.slots))
