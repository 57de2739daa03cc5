import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.table import Table
from penstock.replay.sampler import Sampler
from penstock.types import Array, Stack
from tests.replay.reference import Reference, Row
from tests.replay.world import Step, lane_steps, make_table, write

STEPS, LANES, WRITERS, SLOTS, WRITTEN = 4, 2, 2, 5, 7


def world(same_step: bool) -> tuple[Table, list[list[Step]]]:
    """A table whose rings have come round, and the steps of all lanes; the slots 0, 3, 6 begin their lanes anew."""
    table = make_table(STEPS, LANES, WRITERS, SLOTS, same_step)
    steps = [lane_steps(lane, STEPS * WRITTEN + 1, 3, same_step) for lane in range(WRITERS * LANES)]
    for writer in range(WRITERS):
        for sequence in range(WRITTEN):
            own = steps[writer * LANES : (writer + 1) * LANES]
            write(table, writer, sequence, own, np.full(LANES, sequence % 3 != 0), same_step)
    return table, steps


def sampler_of(table: Table, n_step: int = 1, frames: int = 1) -> Sampler:
    stack = {"obs": Stack(frames, "first")} if frames > 1 else {}
    return Sampler(table, LANES, ["obs"], n_step=n_step, gamma=0.5, stack=stack)


def arrays(*leading: int, frames: int = 1) -> dict[str, Array]:
    obs = (*leading, 2) if frames == 1 else (*leading, frames, 2)
    return {
        "obs": np.zeros(obs, np.float32),
        "next.obs": np.zeros(obs, np.float32),
        "valid": np.zeros(leading, bool),
        "terminated": np.zeros(leading, bool),
        "reward": np.zeros(leading, np.float32),
        "discount": np.zeros(leading, np.float32),
        "index": np.zeros(leading, np.int64),
        "stamp": np.zeros(leading, np.int64),
    }


@pytest.mark.parametrize("same_step", [True, False])
@pytest.mark.parametrize("length", [1, 3, 4, 7])
def test_rows_follow_one_another(same_step: bool, length: int) -> None:
    table, steps = world(same_step)
    out = arrays(length + 1, 300)
    sampler_of(table, n_step=3).sequences((1, 2), out)
    starts = set()
    for i in range(300):
        first = out["index"][0, i]
        slot, t, lane = first // (5 * LANES), first % (5 * LANES) // LANES, first % LANES
        start = out["stamp"][0, i] * STEPS + t
        lane += slot // SLOTS * LANES
        starts.add((int(start), int(lane)))
        for j in range(length + 1):
            step = steps[lane][start + j]
            assert out["obs"][j, i, 0] == step.obs
            assert out["valid"][j, i] == (step.valid and j < length)
            if not out["valid"][j, i]:
                continue
            assert out["reward"][j, i] == step.reward
            assert out["terminated"][j, i] == step.terminated
            assert out["discount"][j, i] == (0 if step.terminated else 0.5)
            if not step.terminated:
                assert out["next.obs"][j, i, 0] == step.next
    # Slots 3 to 6 are there, and nothing goes from 5 to 6.
    able = set()
    for lane in range(WRITERS * LANES):
        for begin, end in ((12, 24), (24, 28)):
            able |= {(start, lane) for start in range(begin, end - length + 1) if steps[lane][start].valid}
    assert starts <= able
    assert len(starts) > len(able) // 2


@pytest.mark.parametrize("same_step", [True, False])
def test_stacks_of_sequences(same_step: bool) -> None:
    table, _ = world(same_step)
    out = arrays(4, 50, frames=3)
    sampler_of(table, frames=3).sequences((4, 5), out)
    reference = Reference(table, n_step=1, gamma=0.5, frames=3)
    for i in range(50):
        for j in range(3):
            index = out["index"][j, i]
            row = Row(index // 50, int(out["stamp"][j, i]), index % 10 // 2, index % 2)
            assert np.array_equal(out["obs"][j, i], reference.stacked(reference.stack(row)))


def test_a_sequence_that_is_longer_than_any_lane_is_said() -> None:
    table, _ = world(same_step=True)
    with pytest.raises(ResourceError, match="no lane has so many rows in a row"):
        sampler_of(table).sequences((0, 0), arrays(14, 2))
    with pytest.raises(ValueError, match="at least one row"):
        sampler_of(table).sequences((0, 0), arrays(1, 2))


@pytest.mark.parametrize("same_step", [True, False])
def test_in_order_every_row_comes_once(same_step: bool) -> None:
    table, steps = world(same_step)
    sampler, found = sampler_of(table, n_step=2), []

    def take_all() -> None:
        position = 0
        while True:
            out = arrays(4)
            position = sampler.in_order(position, out)
            found.extend(zip(out["stamp"].tolist(), out["index"].tolist(), strict=True))

    with pytest.raises(ResourceError, match=r"only \d of 4 rows are there"):
        take_all()
    reference = Reference(table, n_step=2, gamma=0.5)
    expected = []
    for sequence in range(3, WRITTEN):
        for t in range(STEPS):
            for lane in range(WRITERS * LANES):
                row = Row(lane // LANES, sequence, t, lane % LANES)
                if reference.follow(row) is not None:
                    index = (table.index(row.writer, sequence) * 5 + t) * LANES + row.lane
                    expected.append((sequence, index))
                elif steps[lane][sequence * STEPS + t].valid:
                    break  # its successor is yet to come, and so are those behind it
            else:
                continue
            break
    assert found == expected[: len(found)]
    assert len(found) > len(expected) - 4


def test_in_order_goes_on_where_it_stopped() -> None:
    table, _ = world(same_step=True)
    sampler = sampler_of(table)
    one, two, both = arrays(4), arrays(4), arrays(8)
    position = sampler.in_order(0, one)
    sampler.in_order(position, two)
    sampler.in_order(0, both)
    assert both["index"].tolist() == one["index"].tolist() + two["index"].tolist()
