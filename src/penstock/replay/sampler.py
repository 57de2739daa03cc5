"""Samples rows of a table while its writers go on. A row that is overwritten while it is copied is sampled again.

A sampled row has the rewards of up to n steps and the observation after them. Stacks are put together from frames
here, so that the table stores each frame once. Holds no rows, learns nothing, waits for no process.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.memory.table import Table
from penstock.replay import _native
from penstock.replay.sum_tree import SumTree
from penstock.types import Arrays, Stack

__all__ = ["RowSampler", "Sampler", "SequenceSampler"]


class RowSampler(Protocol):
    """Fills minibatches, for one thread at a time: a `Sampler`, a `SequenceSampler`, or several that share each."""

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `Sampler.sample`."""
        ...


class Sampler:
    """Fills batches with rows of a table. For one thread at a time.

    The table has the fields of `penstock.program.rollout.table_specs`. Two of them join slots:

    - ``continues``, bool ``[lanes]``: row 0 of this slot follows row T of the writer's previous slot.
    - ``steps_before``, int64 ``[lanes]``: steps of the lane's episode before row 0.

    A row can be sampled if it is ``valid``, the n steps after it are written, and the table has all frames of its
    stack. The chain of rewards ends

    - at a terminated row,
    - at a truncated row, with the episode's last observation,
    - before a row that is not valid, with that row's observation,
    - at row T of a slot that the next slot does not continue.

    Attributes:
        native: the native sampler, for native code of `replay`.
    """

    def __init__(
        self,
        table: Table,
        lanes: int,
        fields: Sequence[str],
        *,
        n_step: int,
        gamma: float,
        stack: Mapping[str, Stack],
        reward_limit: float = math.inf,
        tree: SumTree | None = None,
        level: str | None = None,
    ) -> None:
        """Keep views of the table's arrays. Copies nothing.

        Args:
            table: rows are sampled from it.
            lanes: lanes of each writer.
            fields: names of the observation fields.
            n_step: most rewards in a row's sum; at least 1.
            gamma: discount of a step.
            stack: field -> the stack ``[frames, ...]`` of a sampled row, oldest first. The table keeps one frame a
                row of these fields.
            reward_limit: each reward is cut to ``-reward_limit .. reward_limit`` before the sum.
            tree: the priorities of the table's flat rows. Rows of priority 0 are never sampled. ``None``: all rows are
                equally likely.
            level: instruction set, for tests; ``None`` is the fastest of this processor.

        Raises:
            KeyError: the table lacks a field.
            ValueError: an array of the table is not a rollout's, or a number is out of range.
        """
        if n_step < 1 or any(part.frames < 1 for part in stack.values()):
            raise ValueError(f"n_step and frames of a stack are at least 1, not {n_step} and {dict(stack)}")
        if table.arrays["valid"].shape[-1] != lanes:
            raise ValueError(f"the table has {table.arrays['valid'].shape[-1]} lanes a writer, not {lanes}")
        missing = [field for field in (*fields, *stack) if field not in table.arrays or field not in fields]
        if missing or not fields:
            raise KeyError(f"the table has no observation field {missing}")
        self.native = _native.Sampler(
            table.heads,
            table.arrays,
            table.writers,
            table.slots,
            list(fields),
            n_step,
            gamma,
            reward_limit,
            [(field, part.frames, part.padding == "zero") for field, part in stack.items()],
            None if tree is None else tree.native,
            level,
        )

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """Fill a batch of m rows. The same content and key give the same batch.

        Without a tree the batch does not depend on how many writers share the lanes, if all have written the same
        number of slots.

        Args:
            key: seed and number of the batch, both 0 to 2^64 - 1.
            out: name -> ``[m, ...]``, contiguous. Names are the fields of a row and these:

                - ``next.<field>``: the observation after up to n steps.
                - ``reward`` float32: the discounted sum.
                - ``discount`` float32: of the value of ``next.<field>``; 0 after a terminated row.
                - ``index`` int64: flat row ``(slot * (T + 1) + t) * lanes + lane``.
                - ``stamp`` int64: the slot's sequence.
                - ``weight`` float32: 1.
                - ``importance`` float32: ``(N P)^-beta`` over the largest in the batch; 1 without a tree.
            before: one sequence for each writer: only slots below it are sampled. ``None``: all written slots.
            beta: how much the importance weights make up for the priorities: 0 not at all, 1 fully.

        Raises:
            KeyError: ``out`` holds an unknown name.
            ResourceError: no row can be sampled.
            ValueError: an array's dtype or shape does not fit.
        """
        self.native.sample(key[0], key[1], out, before, beta)

    def sequences(
        self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0
    ) -> None:
        """Fill m sequences of L consecutive rows of one lane, for policies with memory.

        - A sequence begins with row 0 of a slot, because the slot has the carry before that row. With a tree, the
          priority of this row is that of the sequence.
        - Episodes may end and begin within a sequence. The last observation of a truncated episode has a row of its
          own, also if the source resets in the same step.
        - Where the next slot does not continue the lane, row T of the slot fills the rest.
        - Rewards are those of one step, whatever ``n_step`` is.

        Args:
            key: as for `sample`.
            out: name -> ``[m, L + 1, ...]``, contiguous: the fields of a row, ``reward`` and ``valid``. A row that is
                not valid has only an observation; row L is such a row. Also ``[m, ...]``: the ``carry.*`` before the
                first row, and ``index``, ``stamp`` and ``importance`` of it.
            before: as for `sample`.
            beta: as for `sample`.

        Raises:
            KeyError: ``out`` holds an unknown name.
            ResourceError: no sequence can be sampled.
            ValueError: an array's dtype or shape does not fit.
        """
        self.native.sequences(key[0], key[1], out, before, beta)


class SequenceSampler:
    """Fills minibatches with sequences, and says which of their rows are learned from.

    Args:
        sampler: of the table.
        burn_in: rows at the front of each sequence that nothing is learned from.
    """

    def __init__(self, sampler: Sampler, burn_in: int) -> None:
        self._sampler = sampler
        self._burn_in = burn_in

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `Sampler.sequences`, with ``valid`` among the names, and ``weight`` float32 ``[m, L]``.

        ``weight`` is 1 for a valid row behind the burn-in, and 0 for all others.
        """
        self._sampler.sequences(key, {name: array for name, array in out.items() if name != "weight"}, before, beta)
        weight = out["weight"]
        weight[...] = out["valid"][:, :-1]
        weight[:, : self._burn_in] = 0.0
