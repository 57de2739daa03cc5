import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay.priorities import Ranking, enter
from penstock.replay.sampler import Sampler, SequenceSampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, ArraySpec, Stack
from tests.replay.reference import Reference, Row
from tests.replay.world import Step, lane_steps, make_table, write

STEPS, LANES, WRITERS, SLOTS, WRITTEN = 4, 2, 2, 5, 7
CARRY = (ArraySpec("carry.actor.0.h", (1,), "float32"),)


def world(same_step: bool) -> tuple[Table, list[list[Step]]]:
    """A table whose rings have come round, and the steps of all lanes; the slots 0, 3, 6 begin their lanes anew."""
    table = make_table(STEPS, LANES, WRITERS, SLOTS, same_step, CARRY)
    steps = [lane_steps(lane, STEPS * WRITTEN + 1, 3, same_step) for lane in range(WRITERS * LANES)]
    for writer in range(WRITERS):
        for sequence in range(WRITTEN):
            own = steps[writer * LANES : (writer + 1) * LANES]
            write(table, writer, sequence, own, np.full(LANES, sequence % 3 != 0), same_step)
            lanes = np.arange(LANES) + writer * LANES
            table.slot(table.index(writer, sequence))["carry.actor.0.h"][:, 0] = 10 * sequence * STEPS + lanes
    return table, steps


def sampler_of(table: Table, n_step: int = 1, frames: int = 1, tree: SumTree | None = None) -> Sampler:
    stack = {"obs": Stack(frames, "first")} if frames > 1 else {}
    return Sampler(table, LANES, ["obs"], n_step=n_step, gamma=0.5, stack=stack, tree=tree)


def sequences(m: int, length: int, frames: int = 1) -> dict[str, Array]:
    obs = (m, length + 1, 2) if frames == 1 else (m, length + 1, frames, 2)
    return {
        "obs": np.zeros(obs, np.float32),
        **{name: np.zeros((m, length + 1), bool) for name in ("valid", "terminated", "truncated", "first")},
        "reward": np.zeros((m, length + 1), np.float32),
        "carry.actor.0.h": np.zeros((m, 1), np.float32),
        "index": np.zeros(m, np.int64),
        "stamp": np.zeros(m, np.int64),
        "importance": np.zeros(m, np.float32),
    }


def expected_rows(steps: list[Step], start: int, length: int, limit: int, same_step: bool) -> list[tuple]:
    """Observation, validity, reward, terminated and first of each row of a sequence, from the steps of its lane.

    ``limit``: the step behind the last one of the slots that continue one another.
    """
    rows: list[tuple] = []
    at = start
    while len(rows) <= length:
        step = steps[at]
        carries = step.valid and len(rows) < length and at < limit
        rows.append((step.obs, carries, step.reward if carries else None, step.terminated if carries else None))
        if carries and same_step and step.truncated and not step.terminated:
            rows.append((step.next, False, None, None))
        at = min(at + 1, limit)
    return rows[: length + 1]


@pytest.mark.parametrize("same_step", [True, False])
@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 11])
def test_rows_follow_one_another(same_step: bool, length: int) -> None:
    table, steps = world(same_step)
    out = sequences(200, length)
    sampler_of(table, n_step=3).sequences((1, 2), out)
    starts = set()
    for i in range(200):
        slot, t, lane = out["index"][i] // (5 * LANES), out["index"][i] % (5 * LANES) // LANES, out["index"][i] % LANES
        assert t == 0
        sequence = int(out["stamp"][i])
        start, own = sequence * STEPS, lane + slot // SLOTS * LANES
        starts.add((sequence, int(own)))
        assert out["carry.actor.0.h"][i] == 10 * start + own
        limit = (sequence // 3 + 1) * 3 * STEPS  # slots 3, 4, 5 and slot 6 belong together
        for j, (obs, valid, reward, terminated) in enumerate(
            expected_rows(steps[own], start, length, limit, same_step)
        ):
            assert out["obs"][i, j, 0] == obs, (i, j)
            assert out["valid"][i, j] == valid
            if valid:
                assert out["reward"][i, j] == reward
                assert out["terminated"][i, j] == terminated
    # A sequence whose end is not written yet is not sampled. One that breaks off is.
    whole = {3, 4, 5} | ({6} if length <= STEPS else set())
    sure = {(sequence, lane) for sequence in whole for lane in range(WRITERS * LANES)}
    assert sure <= starts
    assert starts - sure <= {(6, lane) for lane in range(WRITERS * LANES)}


def test_no_episode_begins_with_the_last_observation_of_one() -> None:
    table, _ = world(same_step=True)
    table.arrays["first"][...] = True
    out = sequences(200, 7)
    sampler_of(table).sequences((1, 2), out)
    last = ~out["valid"][:, 1:-1] & out["truncated"][:, 1:-1] & out["valid"][:, :-2]
    assert last.any()
    inner = out["first"][:, 1:-1]
    assert not inner[last].any()
    assert inner[~last].all()


@pytest.mark.parametrize("same_step", [True, False])
def test_stacks_of_sequences(same_step: bool) -> None:
    table, steps = world(same_step)
    out = sequences(50, 3, frames=3)
    sampler_of(table, frames=3).sequences((4, 5), out)
    reference = Reference(table, n_step=1, gamma=0.5, frames=3)
    lasts = 0
    for i in range(50):
        index, row = int(out["index"][i]), None
        for j in range(4):
            stack = out["obs"][i, j]
            ended = out["valid"][i, j - 1] and out["truncated"][i, j - 1] and not out["terminated"][i, j - 1]
            if same_step and row is not None and ended:
                before = reference.stacked(reference.stack(row))
                step = steps[row.lane + row.writer * LANES][row.sequence * STEPS + row.t]
                assert stack[:, 0].tolist() == [*before[1:, 0].tolist(), step.next]
                lasts += 1
                break
            row = Row(index // (5 * LANES) // SLOTS, int(out["stamp"][i]), j, index % LANES)
            assert np.array_equal(stack, reference.stacked(reference.stack(row)))
    assert lasts > 0 or not same_step


@pytest.mark.parametrize("same_step", [True, False])
def test_sequences_are_sampled_by_the_priority_of_their_first_row(same_step: bool) -> None:
    table, _ = world(same_step)
    ranks = aligned_zeros(SumTree.required(table.arrays["valid"].size))
    tree = SumTree(ranks, table.arrays["valid"].size)
    for writer in range(WRITERS):
        for sequence in range(3, WRITTEN):
            index = table.index(writer, sequence)
            enter(tree, Ranking(1.0, None, None, sequences=True), table.slot(index), index, sequence)
    assert tree.total() == WRITERS * 4 * LANES
    chosen = table.index(1, 4) * 5 * LANES + 1
    tree.update(np.array([chosen]), np.array([4]), np.array([15.0]))
    out = sequences(3000, 4)
    sampler_of(table, tree=tree).sequences((1, 2), out, beta=1.0)
    counts = {index: int((out["index"] == index).sum()) for index in set(out["index"].tolist())}
    assert len(counts) == WRITERS * 4 * LANES
    # 15 of 30 in all.
    assert abs(counts[chosen] - 1500) < 60
    assert set(out["importance"][out["index"] == chosen]) == {np.float32(1 / 15)}
    assert set(out["importance"][out["index"] != chosen]) == {np.float32(1)}


def test_rare_sequences_are_found() -> None:
    table, _ = world(same_step=True)
    tree = SumTree(aligned_zeros(SumTree.required(table.arrays["valid"].size)), table.arrays["valid"].size)
    for sequence, priority in ((3, 1e-6), (6, 16_000.0)):
        ranks = np.zeros(5 * LANES)
        ranks[0] = priority
        tree.set(table.index(0, sequence) * 5 * LANES, sequence, ranks)
    out = sequences(4, 7)
    # Those that begin in slot 6 have most of the priority, and end in a slot that is not written yet.
    sampler_of(table, tree=tree).sequences((1, 2), out)
    assert out["stamp"].tolist() == [3, 3, 3, 3]


def test_the_weight_is_that_of_valid_rows_behind_the_burn_in() -> None:
    table, _ = world(same_step=False)
    out = sequences(40, 7) | {"weight": np.full((40, 7), 9.0, np.float32)}
    SequenceSampler(sampler_of(table), 2).sample((1, 2), out)
    assert not out["weight"][:, :2].any()
    assert np.array_equal(out["weight"][:, 2:], out["valid"][:, 2:7].astype(np.float32))
    assert not out["valid"][:, 2:7].all()


def test_a_sequence_that_is_longer_than_the_table_is_said() -> None:
    table, _ = world(same_step=True)
    table.arrays["continues"][...] = True
    with pytest.raises(ResourceError, match="no lane has so many rows in a row"):
        sampler_of(table).sequences((0, 0), sequences(2, 24))
    with pytest.raises(ValueError, match="at least one row"):
        sampler_of(table).sequences((0, 0), sequences(2, 0))
    with pytest.raises(KeyError, match="no discount can be sampled"):
        sampler_of(table).sequences((0, 0), {"discount": np.zeros((2, 3), np.float32)})
    with pytest.raises(KeyError, match=r"no carry\.actor\.0\.h can be sampled"):
        sampler_of(table).sample((0, 0), {"carry.actor.0.h": np.zeros((2, 1), np.float32)})
