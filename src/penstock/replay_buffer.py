"""ReplayBuffer: rows of many processes in shared memory, for a learner of the user's own. Steps no environment.

Its memory is a table of rollouts, as runs that learn from replay have it. Native code samples it, without locks.
"""

import math
import os
import secrets
from collections.abc import Mapping
from numbers import Integral, Real
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from penstock.config.values import count_of
from penstock.envs.fields import one_line
from penstock.envs.spaces import spaces_of
from penstock.errors import BadDataError, ConfigError, PenstockError, UsageError
from penstock.paths import expanded
from penstock.replay.buffer_fields import Fields, field_specs
from penstock.replay.buffer_file import read_rings, read_settings, refused, write_buffer
from penstock.replay.buffer_layout import BufferLayout
from penstock.replay.buffer_memory import BufferMemory
from penstock.replay.buffer_writer import BufferWriter
from penstock.replay.sampler import Sampler
from penstock.types import Array, Arrays, ArraySpec, Composite, Discrete, Leaf

__all__ = ["ReplayBuffer"]


class _Sampling(NamedTuple):
    """How rows are sampled."""

    n_step: int
    gamma: float
    seed: int


class ReplayBuffer:
    """Rows that many processes write and many processes sample, in memory that they share. Nobody waits for anybody.

    A row is one step of one lane. A lane is a stream of steps in the order of time, such as those of one environment.
    Observations are stored once: what follows a row is the observation of the next row.

    It may be given to a process of ``multiprocessing``, which then samples and writes the same rows. ``close``, or the
    end of a ``with`` block, frees the memory in this process; the last process that holds it frees the rest.

    Args:
        fields: name -> shape and dtype of what is stored of a row besides ``reward``, ``terminated`` and ``truncated``.
            Observations are named ``obs``, or ``obs.<key>``. See `fields_of`.
        capacity: least number of rows that can be sampled once the buffer is full. Each writer has an equal share.
        writers: how many processes write.
        lanes: number of lanes of each writer.
        rollout_steps: steps of each lane in one rollout. Rows can be sampled once their rollout is whole.
        n_step: most rewards that the ``reward`` of a sampled row sums up.
        gamma: discount of one step, from 0 to 1.
        alpha: rows are sampled by their priority to this power (Schaul et al. 2016, https://arxiv.org/abs/1511.05952);
            ``None``: all are equally likely.
        seed: of sampling. In the process that has made the buffer, the same rows and seed give the same batches.

    Raises:
        ConfigError: an argument cannot be used.
        ResourceError: the machine has no space for it.

    Example:
        fields = penstock.ReplayBuffer.fields_of(env.observation_space, env.action_space)
        with penstock.ReplayBuffer(fields, capacity=10_000, n_step=3, alpha=0.6) as buffer:
            buffer.push(rows)  # as penstock.ParallelEnvironmentCollector.collect returns them
            batch = buffer.sample(256, beta=0.4)
            buffer.update_priorities(batch, errors)  # one for each row of the batch
    """

    _memory: BufferMemory | None
    _sampling: _Sampling
    _writer: BufferWriter | None
    _sampler: Sampler | None
    _batch_specs: tuple[ArraySpec, ...]
    """The arrays of one row of a batch, by the names of the sampler."""
    _scratch: Arrays
    """What the sampler fills: it keeps views of the arrays of its last batches."""
    _scratch_rows: int
    _process: int
    """Id of the process that the number of batches belongs to."""
    _batches: int
    """Number of batches that this process has sampled. It begins at 0 in the maker's process, elsewhere at random."""

    def __init__(
        self,
        fields: Fields,
        capacity: int,
        *,
        writers: int = 1,
        lanes: int = 1,
        rollout_steps: int = 32,
        n_step: int = 1,
        gamma: float = 0.99,
        alpha: float | None = None,
        seed: int = 0,
    ) -> None:
        writers, lanes = count_of(writers, "writers"), count_of(lanes, "lanes")
        steps = count_of(rollout_steps, "rollout_steps")
        # One slot more, because the one that is being filled cannot be sampled.
        slots = math.ceil(count_of(capacity, "capacity") / (writers * lanes * steps)) + 1
        _check_share(gamma, "gamma")
        if alpha is not None and not (_is_number(Real, alpha) and 0.0 < alpha <= 1.0):
            raise ConfigError(f"alpha is {repr(alpha)[:60]}; give a number above 0 and up to 1, or leave it out")
        if not _is_number(Integral, seed) or not 0 <= seed < 1 << 64:
            raise ConfigError(f"seed is {repr(seed)[:60]}; give a whole number from 0 to 2^64 - 1")
        layout = BufferLayout(field_specs(fields), writers, lanes, steps, slots, ranked=alpha is not None)
        # NumPy's numbers could not be saved.
        sampling = _Sampling(count_of(n_step, "n_step"), float(gamma), int(seed))
        memory = BufferMemory.create(layout, None if alpha is None else float(alpha), sampling.n_step)
        self._begin(memory, sampling)

    @staticmethod
    def fields_of(observation_space: Any, action_space: Any) -> dict[str, tuple[tuple[int, ...], str]]:  # noqa: ANN401
        """The fields for spaces of Gymnasium: observations, and actions in the environment's own units.

        A part of a Dict or Tuple is ``obs.<key>`` or ``action.<key>``; its key in a Tuple is its place.

        Args:
            observation_space: of the environment.
            action_space: of the environment.

        Returns:
            Name -> shape of one row and dtype, as the constructor takes it.

        Raises:
            SpaceError: a space is not supported.
        """
        spaces = spaces_of(observation_space, action_space)
        found = {spec.name: (spec.shape, spec.dtype) for spec in spaces.obs_specs()}
        action = spaces.action
        if not isinstance(action, Composite):
            return found | {"action": _stored(action)}
        return found | {".".join(("action", *map(str, path))): _stored(leaf) for path, leaf in action.leaves}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ReplayBuffer":
        """A buffer with the settings and rows that `save` has written. Its writers begin anew.

        Args:
            path: the file.

        Raises:
            UsageError: the file cannot be used.
            ResourceError: the machine has no space for it.
        """
        file = expanded(path)
        settings = read_settings(file)
        try:
            buffer = cls(**settings)
        except (TypeError, ValueError) as error:
            raise refused(file, str(error)) from None
        try:
            memory = buffer._mapped()
            read_rings(file, memory.table, memory.tree)
        except BaseException:
            buffer.close()
            raise
        return buffer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows that can be sampled, with their priorities, to a file, whole or not at all.

        Writers may go on: rows that they overwrite meanwhile are left out. Nothing is pickled.

        Args:
            path: the file. One that exists is replaced.

        Raises:
            UsageError: the file cannot be written.
        """
        memory, file = self._mapped(), expanded(path)
        layout = memory.layout
        settings = {
            "fields": {spec.name: (spec.shape, spec.dtype) for spec in layout.fields},
            "capacity": (layout.slots - 1) * layout.writers * layout.slot_rows,
            "writers": layout.writers,
            "lanes": layout.lanes,
            "rollout_steps": layout.rollout_steps,
            "alpha": memory.alpha,
            **self._sampling._asdict(),
        }
        try:
            write_buffer(file, settings, memory.table, memory.tree)
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror or error}") from error

    def writer(self, number: int = 0) -> BufferWriter:
        """The writer of a number. Give it to the process that writes.

        Args:
            number: from 0 to ``writers - 1``.

        Raises:
            ConfigError: there is none of this number.
        """
        memory = self._mapped()
        if isinstance(number, bool) or number not in range(memory.layout.writers):
            raise ConfigError(
                f"there is no writer {one_line(number)}; they are numbered 0 to {memory.layout.writers - 1}"
            )
        return BufferWriter(memory, number)

    def push(self, rows: Mapping[str, Any]) -> None:
        """Append steps from this process, as writer 0. See `BufferWriter.push`."""
        self._writer_here().push(rows)

    def flush(self) -> None:
        """Let all steps be sampled that `push` of this object has appended. See `BufferWriter.flush`."""
        self._writer_here().flush()

    def sample(self, n: int, *, beta: float = 1.0, out: Arrays | None = None) -> Arrays:
        """A batch of n rows, with replacement. For one thread at a time.

        Args:
            n: rows of the batch.
            beta: how much ``importance`` makes up for the priorities: 0 not at all, 1 fully.
            out: a batch of n rows that this method has returned. Its arrays are filled anew, which spares a copy.

        Returns:
            Name -> ``[n, ...]``:

            - the fields, as they were at the row;
            - ``next_<field>``: the observation after up to ``n_step`` steps;
            - ``reward`` float32: the discounted sum of the rewards of these steps;
            - ``discount`` float32: of the value of the next observation; 0 after a terminated row;
            - ``importance`` float32: importance weights over the largest in the batch; 1 without priorities;
            - ``index`` and ``stamp`` int64: which row it is, for `update_priorities`.

        Raises:
            ResourceError: no row can be sampled yet.
            ConfigError: ``n`` is no whole number of at least 1, ``beta`` is no number from 0 to 1, or ``out`` is no
                batch of n rows.
        """
        _check_share(beta, "beta")
        sampler = self._sampler_here()
        if out is None:
            count = count_of(n, "n")
            if count != self._scratch_rows:
                self._scratch, self._scratch_rows = self._empty_batch(count), count
            sampler.sample(self._next_key(), self._scratch, None, beta)
            return {_public(name): values.copy() for name, values in self._scratch.items()}
        names = [spec.name for spec in self._batch_specs]
        given = {name: out[_public(name)] for name in names if _public(name) in out}
        if len(given) < len(names) or any(len(values) != n for values in given.values()):
            raise ConfigError(f"out is no batch of {n} rows of this buffer; give one that sample has returned")
        sampler.sample(self._next_key(), given, None, beta)
        return out

    def update_priorities(self, batch: Mapping[str, Array], priorities: Any) -> int:  # noqa: ANN401 - numbers
        """Change the priorities of the rows of a batch. Those that were overwritten since then are left alone.

        New rows have the largest priority so far. A row of priority 0 is never sampled. The largest priority, to the
        power ``alpha``, is 16,384: above it all are alike.

        Args:
            batch: as `sample` returned it, in this process or another one.
            priorities: ``[n]``, such as the absolute errors of the learner.

        Returns:
            How many rows were still there.

        Raises:
            UsageError: the buffer was made without ``alpha``.
            BadDataError: there are more or fewer than n priorities, or one is negative, infinite or NaN.
        """
        memory = self._mapped()
        if memory.tree is None or memory.alpha is None:
            raise UsageError("this replay buffer has no priorities; make it with alpha, such as alpha=0.6")
        values, rows = np.asarray(priorities, np.float64), batch["index"]
        if values.shape != rows.shape:
            raise BadDataError(f"priorities have shape {list(values.shape)}; wanted {list(rows.shape)}")
        if not (np.isfinite(values) & (values >= 0.0)).all():
            raise BadDataError("a priority is negative, infinite or NaN")
        return memory.tree.update(rows, batch["stamp"], values**memory.alpha)

    def __len__(self) -> int:
        """Rows of the rollouts that can be sampled. Rows that `flush` has left empty count, too."""
        table, rows = self._mapped().table, self._mapped().layout.slot_rows
        return rows * sum(table.held(writer, table.written(writer)) for writer in range(table.writers))

    @property
    def pushed(self) -> int:
        """Rows of all rollouts so far, those that were overwritten since then included."""
        table, rows = self._mapped().table, self._mapped().layout.slot_rows
        return rows * sum(table.written(writer) for writer in range(table.writers))

    @property
    def nbytes(self) -> int:
        """Bytes of the shared memory, if it is full and every step is truncated. Memory is taken as it is written."""
        return self._mapped().layout.nbytes

    def close(self) -> None:
        """Free the memory, as far as this process holds it. Rows that were not saved are gone. May be called twice."""
        memory, self._memory = self._memory, None
        self._sampler, self._scratch, self._writer = None, {}, None
        if memory is not None:
            memory.close()

    def __enter__(self) -> "ReplayBuffer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy_of, (self._mapped(), self._sampling)

    def _begin(self, memory: BufferMemory, sampling: _Sampling) -> None:
        """Set all attributes: of a new buffer, or of one that came from another process."""
        self._memory = memory
        self._sampling = sampling
        self._writer, self._sampler = None, None
        self._scratch, self._scratch_rows = {}, 0
        self._process, self._batches = os.getpid(), 0
        fields, observed = memory.layout.fields, memory.layout.observed
        names = [ArraySpec(name, (), "float32") for name in ("reward", "discount", "importance")]
        names += [ArraySpec(name, (), "int64") for name in ("index", "stamp")]
        after = [ArraySpec(f"next.{spec.name}", spec.shape, spec.dtype) for spec in observed]
        self._batch_specs = (*fields, *names, *after)

    def _mapped(self) -> BufferMemory:
        """The memory, if this process still holds it."""
        if self._memory is None:
            raise PenstockError("this replay buffer is closed")
        return self._memory

    def _writer_here(self) -> BufferWriter:
        if self._writer is None:
            self._writer = self.writer(0)
        return self._writer

    def _sampler_here(self) -> Sampler:
        memory, (n_step, gamma, _) = self._mapped(), self._sampling
        if self._sampler is None:
            layout, observed = memory.layout, [spec.name for spec in memory.layout.observed]
            self._sampler = Sampler(
                memory.table, layout.lanes, observed, n_step=n_step, gamma=gamma, stack={}, tree=memory.tree
            )
        return self._sampler

    def _next_key(self) -> tuple[int, int]:
        """The key of the next batch: unlike all others of this process, and of other processes."""
        if self._process != os.getpid():
            self._process, self._batches = os.getpid(), secrets.randbits(63)
        self._batches += 1
        return self._sampling.seed, self._batches

    def _empty_batch(self, rows: int) -> Arrays:
        return {spec.name: np.empty((rows, *spec.shape), spec.dtype) for spec in self._batch_specs}


def _copy_of(memory: BufferMemory, sampling: _Sampling) -> ReplayBuffer:
    """The buffer in another process."""
    found = ReplayBuffer.__new__(ReplayBuffer)
    found._begin(memory, sampling)  # noqa: SLF001 - of this module
    found._process = -1  # noqa: SLF001 - of this module: its batches are others than those of its maker
    return found


def _is_number(kind: type, value: object) -> bool:
    """Whether this is a number of a kind, NumPy's included. To a type checker ``float`` is none of `Real`."""
    return isinstance(value, kind)


def _check_share(value: Any, name: str) -> None:  # noqa: ANN401 - whatever the user gave
    if not _is_number(Real, value) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} is {repr(value)[:60]}; give a number from 0 to 1")


def _public(name: str) -> str:
    """The name of a sampled array in a batch."""
    return f"next_{name.removeprefix('next.')}" if name.startswith("next.") else name


def _stored(leaf: Leaf) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an action in the environment's units."""
    return ((), "int64") if isinstance(leaf, Discrete) else (leaf.shape, leaf.dtype)
