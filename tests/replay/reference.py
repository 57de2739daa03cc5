"""The native sampler in plain Python and NumPy, row by row. It is slow, and easy to read."""

from dataclasses import dataclass

import numpy as np

from penstock.memory.table import Table
from penstock.types import Arrays

MASK = (1 << 32) - 1


def philox(counter: list[int], key: int) -> list[int]:
    """Philox4x32-10, Salmon et al. 2011."""
    x, k = list(counter), [key & MASK, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & MASK, (a >> 32) ^ x[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


def words(key: tuple[int, int], position: int, attempt: int) -> list[int]:
    """The four words of one position of a batch at one attempt."""
    return philox([position, 0x80000000 | attempt, key[1] & MASK, key[1] >> 32], key[0])


@dataclass(frozen=True)
class Row:
    writer: int
    sequence: int
    t: int
    lane: int


class Reference:
    def __init__(self, table: Table, *, n_step: int, gamma: float, frames: int = 1) -> None:
        self.table, self.n_step, self.gamma, self.frames = table, n_step, gamma, frames
        self.steps, self.lanes = table.arrays["valid"].shape[1] - 1, table.arrays["valid"].shape[2]

    def field(self, name: str, row: Row):
        return self.table.slot(self.table.index(row.writer, row.sequence))[name][row.t, row.lane]

    def high(self, writer: int, before: list[int] | None) -> int:
        written = self.table.written(writer)
        return written if before is None else min(before[writer], written)

    def low(self, writer: int, before: list[int] | None) -> int:
        """The slot that is filled next is never sampled from."""
        return max(self.high(writer, before) - (self.table.slots - 1), self.table.claimed(writer) - self.table.slots, 0)

    def sample_one(self, key: tuple[int, int], position: int, before: list[int] | None = None) -> Row:
        writers = range(self.table.writers)
        largest = max(self.high(w, before) - self.low(w, before) for w in writers)
        for attempt in range(256):
            word = words(key, position, attempt)
            age = (word[0] + (word[1] << 32)) * largest >> 64
            t = word[2] * self.steps >> 32
            writer, lane = divmod(word[3] * self.table.writers * self.lanes >> 32, self.lanes)
            row = Row(writer, self.high(writer, before) - 1 - age, t, lane)
            if row.sequence >= self.low(writer, before) and self.follow(row, before) is not None:
                return row
        raise AssertionError("nothing found")

    def continues(self, row: Row) -> bool:
        """Whether the row's slot goes on where the one before stopped."""
        return bool(self.table.slot(self.table.index(row.writer, row.sequence))["continues"][row.lane])

    def final(self, row: Row):
        slot = self.table.slot(self.table.index(row.writer, row.sequence))
        for entry in range(int(slot["final_count"])):
            if (slot["final_t"][entry], slot["final_lane"][entry]) == (row.t, row.lane):
                return slot["final.obs"][entry]
        return None

    def follow(self, row: Row, before: list[int] | None = None) -> dict | None:
        """Reward, discount and next observation; ``None`` if the row cannot be sampled."""
        if not self.field("valid", row) or self.stack(row, before) is None:
            return None
        reward, at = 0.0, row
        for n in range(1, self.n_step + 1):
            reward += self.gamma ** (n - 1) * float(self.field("reward", at))
            behind = Row(at.writer, at.sequence, at.t + 1, at.lane)
            result = {"reward": reward, "discount": self.gamma**n, "last": at, "next": self.field("obs", behind)}
            if self.field("terminated", at):
                return result | {"discount": 0.0}
            if self.field("truncated", at):
                return result | ({"next": self.final(at)} if "final.obs" in self.table.arrays else {})
            if n == self.n_step:
                return result
            if behind.t == self.steps:
                behind = Row(at.writer, at.sequence + 1, 0, at.lane)
                if behind.sequence >= self.high(row.writer, before):
                    return None
                if not self.continues(behind):
                    return result
            if not self.field("valid", behind):
                return result
            at = behind
        raise AssertionError("a chain has an end")

    def stack(self, row: Row, before: list[int] | None = None) -> list[Row] | None:
        """The rows whose frames make up the row's stack, oldest first; ``None`` if a row is gone."""
        rows = [row]
        while len(rows) < self.frames:
            first = rows[0]
            earlier = Row(first.writer, first.sequence, first.t - 1, first.lane)
            if first.t == 0:
                earlier = Row(first.writer, first.sequence - 1, self.steps - 1, first.lane)
                if self.steps_before(first) == 0:
                    earlier = None
                elif not self.continues(first) or earlier.sequence < self.low(row.writer, before):
                    return None
            if earlier is None or self.ends(earlier):
                rows.insert(0, first)
            else:
                rows.insert(0, earlier)
        return rows

    def steps_before(self, row: Row) -> int:
        """How many steps its episode has before the row's slot."""
        return int(self.table.slot(self.table.index(row.writer, row.sequence))["steps_before"][row.lane])

    def ends(self, row: Row) -> bool:
        """Whether the row behind this one is an episode's first."""
        ended = self.field("terminated", row) or self.field("truncated", row)
        return not self.field("valid", row) or bool(ended and "final.obs" in self.table.arrays)

    def batch(self, key: tuple[int, int], m: int, before: list[int] | None = None) -> Arrays:
        """The batch that ``Sampler.sample`` fills."""
        rows = [self.sample_one(key, position, before) for position in range(m)]
        chains = [self.follow(row, before) for row in rows]
        slots = [self.table.index(row.writer, row.sequence) for row in rows]
        where = list(zip(slots, rows, strict=True))
        return {
            "obs": np.array([self.stacked(self.stack(row, before)) for row in rows]),
            "action": np.array([self.field("action", row) for row in rows]),
            "log_prob": np.array([self.field("log_prob", row) for row in rows]),
            "reward": np.array([chain["reward"] for chain in chains], np.float32),
            "discount": np.array([chain["discount"] for chain in chains], np.float32),
            "next.obs": np.array([self.next_stacked(chain, before) for chain in chains]),
            "index": np.array([(slot * (self.steps + 1) + row.t) * self.lanes + row.lane for slot, row in where]),
            "stamp": np.array([row.sequence for row in rows]),
            "importance": np.ones(m, np.float32),
            "weight": np.ones(m, np.float32),
        }

    def stacked(self, rows: list[Row]):
        frames = np.array([self.field("obs", row) for row in rows])
        return frames if self.frames > 1 else frames[0]

    def next_stacked(self, chain: dict, before: list[int] | None):
        if self.frames == 1:
            return chain["next"]
        frames = [self.field("obs", row) for row in self.stack(chain["last"], before)[1:]]
        return np.array([*frames, chain["next"]])
