import math
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.table import Table
from penstock.replay import _native
from penstock.replay.sampler import Sampler
from penstock.types import Arrays, Stack
from tests.replay.reference import Reference, Row
from tests.replay.world import lane_steps, make_table, write


def batch(m: int, frames: int = 1) -> Arrays:
    obs = (frames, 2) if frames > 1 else (2,)
    return {
        "obs": np.zeros((m, *obs), np.float32),
        "next.obs": np.zeros((m, *obs), np.float32),
        "action": np.zeros((m, 1), np.float32),
        **{name: np.zeros(m, np.float32) for name in ("log_prob", "reward", "discount", "importance", "weight")},
        "index": np.zeros(m, np.int64),
        "stamp": np.zeros(m, np.int64),
    }


def filled(
    *,
    num_steps: int = 4,
    lanes: int = 2,
    writers: int = 2,
    slots: int = 5,
    written: int = 7,
    same_step: bool,
    seed: int = 0,
) -> Table:
    """A table whose rings have come round; one slot in three begins its lanes anew."""
    table = make_table(num_steps, lanes, writers, slots, same_step)
    for writer in range(writers):
        count = num_steps * written + 1
        steps = [lane_steps(writer * lanes + lane, count, seed, same_step) for lane in range(lanes)]
        for sequence in range(written):
            continues = np.full(lanes, sequence > 0 and sequence % 3 != 0)
            write(table, writer, sequence, steps, continues, same_step)
    return table


@pytest.mark.parametrize("same_step", [True, False])
@pytest.mark.parametrize(("n_step", "frames"), [(1, 1), (3, 1), (6, 1), (1, 3), (3, 4)])
def test_it_is_the_reference(same_step: bool, n_step: int, frames: int) -> None:
    table = filled(same_step=same_step)
    stack = {"obs": Stack(frames, "first")} if frames > 1 else {}
    sampler = Sampler(table, 2, ["obs"], n_step=n_step, gamma=0.9, stack=stack)
    reference = Reference(table, n_step=n_step, gamma=0.9, frames=frames)
    for number in range(3):
        out = batch(40, frames)
        sampler.sample((12, number), out)
        expected = reference.batch((12, number), 40)
        for name, array in out.items():
            assert np.array_equal(array, expected[name]), name


@pytest.mark.parametrize("level", _native.levels())
def test_every_level_samples_the_same(level: str) -> None:
    table = filled(same_step=True)
    out, expected = batch(37), batch(37)
    Sampler(table, 2, ["obs"], n_step=2, gamma=0.9, stack={}, level=level).sample((1 << 40, 1 << 50), out)
    Sampler(table, 2, ["obs"], n_step=2, gamma=0.9, stack={}).sample((1 << 40, 1 << 50), expected)
    assert all(np.array_equal(out[name], expected[name]) for name in out)


def hand_made(
    *,
    same_step: bool,
    slots: int = 3,
    n_step: int = 1,
    stack: int = 1,
    padding: Literal["first", "zero"] = "first",
    reward_limit: float = math.inf,
) -> tuple[Table, Sampler]:
    """One lane, T = 3; observations 1, 2, 3, ... and rewards 10, 20, 30, ... as long as nothing is altered."""
    table = make_table(3, 1, 1, slots, same_step)
    for sequence in range(slots - 1):
        slot = table.slot(table.claim(0, sequence))
        slot["obs"][:, 0, 0] = [3 * sequence + t + 1 for t in range(4)]
        slot["reward"][:3, 0] = [10 * (3 * sequence + t + 1) for t in range(3)]
        slot["valid"][:3] = True
        slot["continues"][:] = sequence > 0
        slot["steps_before"][:] = 3 * sequence
        table.push(0, sequence)
    frames = {"obs": Stack(stack, padding)} if stack > 1 else {}
    sampler = Sampler(table, 1, ["obs"], n_step=n_step, gamma=0.5, stack=frames, reward_limit=reward_limit)
    return table, sampler


def sampled(sampler: Sampler, frames: int = 1) -> dict[int, tuple]:
    """Index -> reward, discount, next observation, observation, from so many samples that every row occurs."""
    out = batch(512, frames)
    sampler.sample((3, 0), out)
    obs, behind = out["obs"][..., 0].tolist(), out["next.obs"][..., 0].tolist()
    rows = zip(out["reward"].tolist(), out["discount"].tolist(), behind, obs, strict=True)
    return dict(zip(out["index"].tolist(), rows, strict=True))


def test_one_step_by_hand() -> None:
    _, sampler = hand_made(same_step=True)
    # Flat rows: slot 0 has 0..3, slot 1 has 4..7. Rows 3 and 7 are bootstrap rows and are not sampled.
    assert sampled(sampler) == {
        0: (10, 0.5, 2, 1),
        1: (20, 0.5, 3, 2),
        2: (30, 0.5, 4, 3),
        4: (40, 0.5, 5, 4),
        5: (50, 0.5, 6, 5),
        6: (60, 0.5, 7, 6),
    }


def test_three_steps_by_hand() -> None:
    _, sampler = hand_made(same_step=True, n_step=3)
    # 10 + 0.5 * 20 + 0.25 * 30 = 27.5; the discount is 0.5^3. Rows 5 and 6 have no successor yet.
    assert sampled(sampler) == {
        0: (27.5, 0.125, 4, 1),
        1: (20 + 15 + 10, 0.125, 5, 2),
        2: (30 + 20 + 12.5, 0.125, 6, 3),
        4: (40 + 25 + 15, 0.125, 7, 4),
    }


def test_a_terminated_row_ends_the_chain() -> None:
    table, sampler = hand_made(same_step=True, n_step=3)
    table.slot(0)["terminated"][1] = True
    result = sampled(sampler)
    assert result[0][:2] == (10 + 0.5 * 20, 0)
    assert result[1][:2] == (20, 0)
    assert result[2] == (62.5, 0.125, 6, 3)


def test_a_truncated_row_leads_to_its_last_observation() -> None:
    table, sampler = hand_made(same_step=True, n_step=3)
    slot = table.slot(0)
    slot["truncated"][1] = True
    slot["final_t"][0], slot["final_lane"][0], slot["final.obs"][0], slot["final_count"][...] = 1, 0, 99, 1
    result = sampled(sampler)
    assert result[0] == (10 + 0.5 * 20, 0.25, 99, 1)
    assert result[1] == (20, 0.5, 99, 2)


def test_a_row_that_is_not_valid_is_where_the_chain_led() -> None:
    table, sampler = hand_made(same_step=False, n_step=3)
    table.slot(0)["truncated"][1] = True
    table.slot(0)["valid"][2] = False
    result = sampled(sampler)
    assert result[0] == (20, 0.25, 3, 1)
    assert result[1] == (20, 0.5, 3, 2)
    assert 2 not in result
    # An agent that is absent, without any end before it.
    table.slot(0)["truncated"][1] = False
    assert sampled(sampler)[0] == (20, 0.25, 3, 1)


def test_a_slot_that_does_not_continue_the_one_before_ends_the_chain() -> None:
    table, sampler = hand_made(same_step=True, n_step=3)
    table.slot(1)["continues"][:] = False
    result = sampled(sampler)
    assert result[1] == (20 + 0.5 * 30, 0.25, 4, 2)
    assert result[2] == (30, 0.5, 4, 3)


def test_stacks_by_hand() -> None:
    table, sampler = hand_made(same_step=True, slots=4, stack=3)
    result = sampled(sampler, 3)
    assert result[0] == (10, 0.5, [1, 1, 2], [1, 1, 1])
    assert result[1] == (20, 0.5, [1, 2, 3], [1, 1, 2])
    assert result[4] == (40, 0.5, [3, 4, 5], [2, 3, 4])  # across the slots
    table.slot(0)["terminated"][2] = True  # observation 4 begins an episode
    table.slot(1)["steps_before"][:] = 0
    result = sampled(sampler, 3)
    assert result[4] == (40, 0.5, [4, 4, 5], [4, 4, 4])
    assert result[5] == (50, 0.5, [4, 5, 6], [4, 4, 5])
    table.slot(0)["terminated"][2] = False
    assert sampled(sampler, 3)[4][3] == [4, 4, 4]


def test_zeros_stand_before_an_episode_where_the_source_says_so() -> None:
    table, sampler = hand_made(same_step=True, slots=4, stack=3, padding="zero")
    slot = table.slot(0)
    slot["truncated"][1] = True
    slot["final_t"][0], slot["final_lane"][0], slot["final.obs"][0], slot["final_count"][...] = 1, 0, 99, 1
    result = sampled(sampler, 3)
    assert result[0] == (10, 0.5, [0, 1, 2], [0, 0, 1])
    assert result[1] == (20, 0.5, [1, 2, 99], [0, 1, 2])
    assert result[2] == (30, 0.5, [0, 3, 4], [0, 0, 3])
    assert result[5] == (50, 0.5, [4, 5, 6], [3, 4, 5])


def test_a_stack_whose_frames_nobody_kept_is_not_sampled() -> None:
    table, sampler = hand_made(same_step=True, slots=4, stack=3)
    table.slot(1)["continues"][:] = False  # something was dropped between, in the middle of an episode
    assert sorted(sampled(sampler, 3)) == [0, 1, 2, 6, 8, 9, 10]
    table.slot(1)["continues"][:] = True
    table.slot(0)["valid"][...] = False  # as in a table that was restored from there on
    assert sorted(sampled(sampler, 3)) == [6, 8, 9, 10]
    table, sampler = hand_made(same_step=True, slots=4, stack=3)
    table.slot(0)["steps_before"][:] = 5  # a lane that was restored, beside a table that was not
    assert sorted(sampled(sampler, 3)) == [2, 4, 5, 6, 8, 9, 10]


def test_a_last_observation_in_the_row_behind_has_the_frames_of_its_episode() -> None:
    table, sampler = hand_made(same_step=False, slots=4, stack=3)
    slot = table.slot(0)
    slot["truncated"][1], slot["valid"][2] = True, False
    table.slot(1)["steps_before"][:] = 0
    result = sampled(sampler, 3)
    assert result[1] == (20, 0.5, [1, 2, 3], [1, 1, 2])
    assert result[4] == (40, 0.5, [4, 4, 5], [4, 4, 4])
    out = {name: np.zeros((60, 3, *array.shape[1:]), array.dtype) for name, array in batch(60, 3).items()}
    sampler.sequences((3, 0), {name: out[name] for name in ("obs", "reward")})
    assert [1, 2, 3] in out["obs"][:, 2, :, 0].tolist()


@pytest.mark.parametrize(("n_step", "reward"), [(1, 15), (3, 15 + 7.5 - 0.25 * 15)])
def test_rewards_are_cut_before_they_are_summed(n_step: int, reward: float) -> None:
    table, sampler = hand_made(same_step=True, n_step=n_step, reward_limit=15)
    table.slot(0)["reward"][:3, 0] = 20, 15, -30
    assert sampled(sampler)[0][0] == reward
    assert table.slot(0)["reward"][2, 0] == -30


def test_a_stack_whose_frames_were_overwritten_is_not_sampled() -> None:
    table, sampler = hand_made(same_step=True, slots=4, stack=3)
    slot = table.slot(table.claim(0, 3))
    slot["valid"][:3], slot["continues"][:], slot["steps_before"][:] = True, True, 9
    table.push(0, 3)
    # Slot 0 is the next to be overwritten. Rows 4 and 5 have frames in it.
    assert sorted(sampled(sampler, 3)) == [6, 8, 9, 10, 12, 13, 14]
    table.claim(0, 4)
    assert sorted(sampled(sampler, 3)) == [6, 8, 9, 10, 12, 13, 14]
    table.slot(0)["continues"][:], table.slot(0)["steps_before"][:] = True, 12
    table.push(0, 4)
    assert sorted(sampled(sampler, 3)) == [0, 1, 2, 10, 12, 13, 14]


def test_n_step_stack_ends_at_the_last_row() -> None:
    _, sampler = hand_made(same_step=True, slots=4, n_step=2, stack=3)
    # From row 1 two steps on: observations 2, 3, 4.
    assert sampled(sampler, 3)[1] == (20 + 15, 0.25, [2, 3, 4], [1, 1, 2])


def test_samples_are_uniform_over_what_can_be_sampled() -> None:
    table = filled(same_step=False, written=7)
    sampler = Sampler(table, 2, ["obs"], n_step=2, gamma=0.9, stack={})
    reference = Reference(table, n_step=2, gamma=0.9)
    out = {"index": np.zeros(100_000, np.int64)}
    sampler.sample((5, 5), out)
    index, counts = np.unique(out["index"], return_counts=True)
    slots, lanes, steps = table.slots, 2, 4
    expected = set()
    for flat in range(2 * slots * (steps + 1) * lanes):
        slot, t, lane = flat // 10, flat % 10 // 2, flat % 2
        writer = slot // slots
        sequence = max(s for s in range(7) if table.index(writer, s) == slot)
        row = Row(writer, sequence, t, lane)
        if t < steps and sequence >= reference.low(writer, None) and reference.follow(row) is not None:
            expected.add(flat)
    assert set(index.tolist()) == expected
    # Chi-square over n rows has mean n - 1 and variance 2 (n - 1): five deviations are never seen by chance.
    mean = 100_000 / len(expected)
    freedom = len(expected) - 1
    assert abs(((counts - mean) ** 2 / mean).sum() - freedom) < 5 * np.sqrt(2 * freedom)


def test_the_same_rows_whatever_number_of_writers_share_the_lanes() -> None:
    shares = []
    for writers in (1, 2, 4):
        table = filled(lanes=4 // writers, writers=writers, same_step=True)
        out = batch(64)
        Sampler(table, 4 // writers, ["obs"], n_step=3, gamma=0.9, stack={}).sample((1, 2), out)
        shares.append(out)
    for one, other in pairwise(shares):
        assert all(np.array_equal(one[name], other[name]) for name in out if name != "index")


def test_a_claimed_slot_changes_no_batch() -> None:
    table = filled(same_step=True)
    sampler = Sampler(table, 2, ["obs"], n_step=1, gamma=0.9, stack={})
    out, again = batch(64), batch(64)
    sampler.sample((1, 2), out)
    table.claim(0, 7)
    sampler.sample((1, 2), again)
    assert all(np.array_equal(out[name], again[name]) for name in out)


def test_only_what_was_written_before() -> None:
    table = filled(same_step=True)
    sampler = Sampler(table, 2, ["obs"], n_step=3, gamma=0.9, stack={})
    out, expected = batch(200), Reference(table, n_step=3, gamma=0.9).batch((4, 4), 200, [6, 5])
    sampler.sample((4, 4), out, [6, 5])
    assert all(np.array_equal(out[name], expected[name]) for name in out)
    assert out["stamp"].max() == 5
    slots = out["index"] // 10
    assert out["stamp"][slots >= 5].max() == 4
    assert out["stamp"].min() == 2  # claimed 7, five slots: what was there before is gone
    with pytest.raises(ValueError, match="before has 1 sequences, the table 2 writers"):
        sampler.sample((4, 4), out, [6])


def test_rare_rows_are_found() -> None:
    table = make_table(4, 2, 1, 400, same_step=False)
    for sequence in range(399):
        slot = table.slot(table.claim(0, sequence))
        slot["valid"][1, 1] = sequence in {7, 300}
        table.push(0, sequence)
    out = {"index": np.zeros(64, np.int64)}
    Sampler(table, 2, ["obs"], n_step=1, gamma=0.9, stack={}).sample((0, 0), out)
    # Row t = 1 of lane 1 in slots 7 and 300, of 10 rows each.
    assert set(out["index"].tolist()) == {73, 3003}


def test_nothing_to_sample_is_said() -> None:
    table = make_table(4, 2, 1, 4, same_step=False)
    sampler = Sampler(table, 2, ["obs"], n_step=2, gamma=0.9, stack={})
    with pytest.raises(ResourceError, match="no slot was pushed yet"):
        sampler.sample((0, 0), batch(3))
    table.claim(0, 0)
    table.push(0, 0)
    with pytest.raises(ResourceError, match="no row is valid and has its successors written"):
        sampler.sample((0, 0), batch(3))


def test_what_does_not_fit_is_named() -> None:
    table = filled(same_step=True)
    sampler = Sampler(table, 2, ["obs"], n_step=1, gamma=0.9, stack={})
    with pytest.raises(KeyError, match="no nothing can be sampled from this table"):
        sampler.sample((0, 0), {"nothing": np.zeros(3)})
    with pytest.raises(ValueError, match="obs does not have the dtype and shape"):
        sampler.sample((0, 0), {"obs": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="obs does not have the dtype and shape"):
        sampler.sample((0, 0), {"reward": np.zeros(4, np.float32), "obs": np.zeros((3, 2), np.float32)})
    with pytest.raises(ValueError, match="lanes a writer, not 3"):
        Sampler(table, 3, ["obs"], n_step=1, gamma=0.9, stack={})
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Sampler(table, 2, ["obs"], n_step=0, gamma=0.9, stack={})
    with pytest.raises(KeyError, match="no observation field"):
        Sampler(table, 2, ["image"], n_step=1, gamma=0.9, stack={})


def test_arrays_that_change_hands_are_looked_at_again() -> None:
    table = filled(same_step=True)
    sampler = Sampler(table, 2, ["obs"], n_step=1, gamma=0.9, stack={})
    out = batch(8)
    sampler.sample((0, 0), out)
    first = out["obs"].copy()
    for _ in range(20):
        out["obs"] = np.zeros_like(out["obs"])
        sampler.sample((0, 0), out)
        assert np.array_equal(out["obs"], first)
