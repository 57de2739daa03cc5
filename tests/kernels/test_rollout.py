"""The rollout writer against what its rows should hold, from sources with staging arrays, new ones and strided ones."""

import numpy as np
import pytest

from penstock.kernels.rollout import rollout_writer
from penstock.types import StepResult

STEPS, LANES = 3, 4


def make_slot():
    rows = (STEPS + 1, LANES)
    return {
        "obs.camera": np.zeros((*rows, 2, 3, 2), np.uint8),
        "obs.speed": np.zeros((*rows, 3), np.float32),
        "obs.which": np.zeros(rows, np.int64),
        "reward": np.zeros(rows, np.float32),
        **{name: np.zeros(rows, np.bool_) for name in ("terminated", "truncated", "valid")},
    }


FIELDS = ("obs.camera", "obs.speed", "obs.which")


def make_result(number, **changes):
    generator = np.random.default_rng(number)
    result = StepResult(
        obs={
            "obs.which": generator.integers(0, 9, LANES),
            "obs.camera": generator.integers(0, 255, (LANES, 2, 3, 2)).astype(np.uint8),
            "obs.speed": generator.standard_normal((LANES, 3)).astype(np.float32),
        },
        reward=generator.standard_normal(LANES).astype(np.float32),
        terminated=np.arange(LANES) == number,
        truncated=np.arange(LANES) == number + 1,
        reset=np.zeros(LANES, np.bool_),
        final_obs={},
    )
    return result._replace(**changes)


@pytest.fixture
def writer():
    return Writer()


class Writer:
    def __init__(self):
        self.slot = make_slot()
        self.episode_return, self.episode_length = np.zeros(LANES), np.zeros(LANES, np.int64)
        self.store = rollout_writer(self.slot, FIELDS, self.episode_return, self.episode_length).store


def test_a_step_fills_row_t_and_the_next_rows_observations(writer):
    result = make_result(1)
    assert writer.store(1, result) == 2
    for name in FIELDS:
        np.testing.assert_array_equal(writer.slot[name][2], result.obs[name])
        assert not writer.slot[name][[0, 1, 3]].any()
    np.testing.assert_array_equal(writer.slot["reward"][1], result.reward)
    np.testing.assert_array_equal(writer.slot["terminated"][1], [False, True, False, False])
    np.testing.assert_array_equal(writer.slot["truncated"][1], [False, False, True, False])
    assert writer.slot["valid"][1].all()
    for name in ("reward", "terminated", "truncated", "valid"):
        assert not writer.slot[name][[0, 2, 3]].any()


def test_a_lane_counts_once_however_it_turned_and_its_reset_row_is_not_valid(writer):
    every, none = np.ones(LANES, np.bool_), np.zeros(LANES, np.bool_)
    assert writer.store(0, make_result(0, terminated=every, truncated=every, reset=none)) == LANES
    assert writer.store(1, make_result(0, terminated=none, truncated=none, reset=none)) == 0
    assert writer.store(2, make_result(0, terminated=none, truncated=none, reset=np.arange(LANES) == 3)) == 1
    np.testing.assert_array_equal(writer.slot["valid"][2], [True, True, True, False])


def test_rewards_add_up_in_double_precision_and_steps_are_counted(writer):
    # 2**24 + 1 is no float32: a sum in single precision would stay at 2**24.
    for t, reward in enumerate((2.0**24, 1.0, 1.0)):
        writer.store(t, make_result(t, reward=np.full(LANES, reward, np.float32)))
    np.testing.assert_array_equal(writer.episode_return, 2.0**24 + 2)
    np.testing.assert_array_equal(writer.episode_length, 3)
    writer.episode_return[1] = writer.episode_length[1] = 0
    writer.store(0, make_result(0, reward=np.ones(LANES, np.float32)))
    np.testing.assert_array_equal(writer.episode_return, 2.0**24 + np.array([3, -(2.0**24) + 1, 3, 3]))
    np.testing.assert_array_equal(writer.episode_length, [4, 1, 4, 4])


def test_a_result_that_comes_again_is_read_again(writer):
    result = make_result(0)
    for t in range(STEPS):
        result.reward[:] = t
        result.terminated[:] = t == 1
        result.obs["obs.speed"][:] = 10 + t
        assert writer.store(t, result) == (LANES if t == 1 else 1)
    np.testing.assert_array_equal(writer.slot["reward"][:STEPS, 0], [0, 1, 2])
    np.testing.assert_array_equal(writer.slot["obs.speed"][1:, 2, 1], [10, 11, 12])


def test_arrays_with_any_strides(writer):
    result = make_result(5)
    strided = {
        "obs.camera": np.ascontiguousarray(result.obs["obs.camera"].transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2),
        "obs.speed": np.asfortranarray(result.obs["obs.speed"]),
        "obs.which": result.obs["obs.which"][::-1].copy()[::-1],
    }
    assert not any(values.flags.c_contiguous for values in strided.values())
    flags = np.zeros((LANES, 2), np.bool_)
    flags[1:3, 0] = True
    writer.store(0, result._replace(obs=strided, terminated=flags[:, 0], reward=np.repeat(result.reward, 2)[::2]))
    for name in FIELDS:
        np.testing.assert_array_equal(writer.slot[name][1], result.obs[name])
    np.testing.assert_array_equal(writer.slot["terminated"][0], [False, True, True, False])
    np.testing.assert_array_equal(writer.slot["reward"][0], result.reward)


def test_one_lane(writer):
    slot = {name: np.ascontiguousarray(values[:, :1]) for name, values in writer.slot.items()}
    store = rollout_writer(slot, FIELDS, np.zeros(1), np.zeros(1, np.int64)).store
    result = make_result(0)
    first = StepResult(
        {name: values[:1] for name, values in result.obs.items()}, *(field[:1] for field in result[1:5]), {}
    )
    assert store(2, first) == 1
    np.testing.assert_array_equal(slot["obs.camera"][3, 0], result.obs["obs.camera"][0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros(LANES)}, "reward"),
        ({"reward": np.zeros(LANES - 1, np.float32)}, "reward"),
        ({"terminated": np.zeros(LANES, np.uint8)}, "terminated"),
        ({"truncated": np.zeros((LANES, 1), np.bool_)}, "truncated"),
        ({"reset": np.zeros(LANES, np.int8)}, "reset"),
    ],
)
def test_an_array_of_another_kind_is_refused(writer, changes, message):
    with pytest.raises(ValueError, match=message):
        writer.store(0, make_result(0, **changes))


@pytest.mark.parametrize("values", [np.zeros((LANES, 3)), np.zeros((LANES, 4), np.float32), np.zeros(3, np.float32)])
def test_an_observation_of_another_kind_is_refused(writer, values):
    result = make_result(0)
    with pytest.raises(ValueError, match=r"obs\.speed"):
        writer.store(0, result._replace(obs={**result.obs, "obs.speed": values}))


def test_what_is_not_there_is_named(writer):
    result = make_result(0)
    with pytest.raises(KeyError, match=r"obs\.camera"):
        writer.store(0, result._replace(obs={"obs.speed": result.obs["obs.speed"]}))
    for t in (-1, STEPS):
        with pytest.raises(IndexError, match=f"step {t} of {STEPS}"):
            writer.store(t, result)
    with pytest.raises(ValueError, match="StepResult"):
        writer.store(0, tuple(result[:5]))
    # A refused result leaves nothing behind that the next call could mistake for checked.
    assert writer.store(0, result) == 2


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("valid", np.zeros((STEPS, LANES), np.bool_)),
        ("obs.which", np.zeros((STEPS + 1, LANES + 1), np.int64)),
    ],
)
def test_a_slot_whose_arrays_do_not_fit_together_is_refused(name, values):
    with pytest.raises(ValueError, match=name):
        rollout_writer(make_slot() | {name: values}, FIELDS, np.zeros(LANES), np.zeros(LANES, np.int64))
