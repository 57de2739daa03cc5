"""Draws rows of a table, beside its writers: what was overwritten while it was copied is drawn again.

A row is drawn with the rewards of up to n steps and the observation that they led to; frames of a stack are put
together here, so each is stored once. Holds no rows, learns nothing, waits for nobody.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.memory.table import Table
from penstock.replay import _native
from penstock.replay.sum_tree import SumTree
from penstock.types import Arrays, Stack

__all__ = ["RowSampler", "Sampler"]


class RowSampler(Protocol):
    """Fills minibatches, for one thread at a time: a `Sampler`, or several that share each minibatch."""

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `Sampler.sample`."""
        ...


class Sampler:
    """Fills batches with rows of a table. For one thread at a time.

    The rows of the table are those of `penstock.program.rollout.table_specs`, with ``continues``, bool ``[lanes]``:
    whether row 0 of the slot goes on where row T of the writer's slot before stopped, and ``steps_before``, int64
    ``[lanes]``: steps of its episode before row 0. A row can be drawn if it is ``valid``, what follows it within n
    steps is written and the frames of its stack are there. The chain of rewards ends at a terminated row; at a
    truncated one, with its last observation; before a row that is not valid, with that row's observation; and with row
    T of a slot whose successor does not continue it.
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
        """Look at the table's arrays; nothing is copied.

        Args:
            table: what is drawn from.
            lanes: lanes of each writer.
            fields: names of the observation fields.
            n_step: rewards that a row's sum has at most, at least 1.
            gamma: discount of a step.
            stack: field -> what a sample has of it, ``[frames, ...]``, oldest first, where the table keeps one a row.
            reward_limit: each reward is cut to ``-reward_limit .. reward_limit`` before it is summed.
            tree: rows are drawn by their priorities there, and only those that have one; its leaves are the table's
                flat rows. ``None``: each row is as likely as another.
            level: instruction set, for tests; ``None`` is the fastest that this processor has.

        Raises:
            KeyError: the table lacks a field.
            ValueError: one of its arrays is not a rollout's, or a number does not make sense.
        """
        if n_step < 1 or any(part.frames < 1 for part in stack.values()):
            raise ValueError(f"n_step and frames of a stack are at least 1, not {n_step} and {dict(stack)}")
        if table.arrays["valid"].shape[-1] != lanes:
            raise ValueError(f"the table has {table.arrays['valid'].shape[-1]} lanes a writer, not {lanes}")
        missing = [field for field in (*fields, *stack) if field not in table.arrays or field not in fields]
        if missing or not fields:
            raise KeyError(f"the table has no observation field {missing}")
        self._sampler = _native.Sampler(
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

        Without a tree, and where all writers have written as many slots, it is also the same whatever number of them
        share the lanes.

        Args:
            key: seed and number of the batch, both 0 to 2^64 - 1.
            out: name -> ``[m, ...]``, contiguous: any field of a row; ``next.<field>``, the observation up to n steps
                on; ``reward`` float32, discounted and summed; ``discount`` float32, of the value there, 0 behind a
                terminated row; ``index`` int64, flat row ``(slot * (T + 1) + t) * lanes + lane``; ``stamp`` int64, the
                slot's sequence; ``weight`` float32, 1; ``importance`` float32, ``(N P)^-beta`` over the largest of
                the batch, 1 without a tree.
            before: one sequence a writer: only slots below are looked at. ``None``: all that is written.
            beta: how far the importance weights make up for the priorities: 0 not at all, 1 in full.

        Raises:
            KeyError: ``out`` holds a name that is not known.
            ResourceError: nothing can be drawn.
            ValueError: an array's dtype or shape does not fit.
        """
        self._sampler.sample(key[0], key[1], out, before, beta)

    def sequences(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None) -> None:
        """Fill m sequences of L consecutive rows of one lane, each as likely as another, for recurrent learners.

        The first row is valid; episodes may end and begin on the way. Each row is followed one step far, whatever
        ``n_step`` says. A lane that does not go on in the next slot ends no sequence: there is none that crosses it.

        Args:
            key: as for `sample`.
            out: name -> ``[L + 1, m, ...]``, names as for `sample`, with ``valid``. Row L is the observation behind the
                sequence; what else it holds means nothing, and it is not valid.
            before: as for `sample`.

        Raises:
            KeyError: ``out`` holds a name that is not known.
            ResourceError: nothing can be drawn.
            ValueError: an array's dtype or shape does not fit.
        """
        self._sampler.sequences(key[0], key[1], out, before)

    def in_order(self, position: int, out: Arrays, before: Sequence[int] | None = None) -> int:
        """Fill a batch with the next m rows that can be drawn, oldest first: by step, then by lane.

        Args:
            position: where to begin: 0, or what the call before gave. What was overwritten since is left out.
            out: as for `sample`.
            before: as for `sample`.

        Returns:
            The position behind these rows.

        Raises:
            ResourceError: there are not so many yet.
        """
        return self._sampler.in_order(position, out, before)
