"""The rows of the rollout writer, from sources with staging arrays, with new arrays, and with strided arrays."""

import numpy as np
import pytest

from penstock.kernels.rollout import rollout_writer
from penstock.program.rollout import rollout_specs
from penstock.types import Box, Discrete, Spaces, StepResult

STEPS, LANES = 3, 4
SPACES = Spaces(
    (
        ("obs.camera", Box((2, 3, 2), "uint8", (0,), (255,))),
        ("obs.speed", Box((3,), "float32", (-10.0,), (10.0,))),
        ("obs.which", Discrete(9)),
    ),
    Discrete(2),
)


def make_slot():
    specs = rollout_specs(SPACES, (), STEPS, LANES, same_step=True)
    return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


FIELDS = ("obs.camera", "obs.speed", "obs.which")


def make_result(number, **changes):
    generator = np.random.default_rng(number)

    def observations():
        return {
            "obs.which": generator.integers(0, 9, LANES),
            "obs.camera": generator.integers(0, 255, (LANES, 2, 3, 2)).astype(np.uint8),
            "obs.speed": generator.standard_normal((LANES, 3)).astype(np.float32),
        }

    result = StepResult(
        obs=observations(),
        reward=generator.standard_normal(LANES).astype(np.float32),
        terminated=np.arange(LANES) == number,
        truncated=np.arange(LANES) == number + 1,
        reset=np.zeros(LANES, np.bool_),
        final_obs=observations(),
    )
    return result._replace(**changes)


class Writer:
    def __init__(self, *, same_step=True):
        self.slot = make_slot()
        self.returns, self.lengths = np.zeros(LANES), np.zeros(LANES, np.int64)
        self.store = rollout_writer(
            self.slot, FIELDS, same_step=same_step, running_return=self.returns, running_length=self.lengths
        ).store


@pytest.fixture
def writer():
    return Writer()


def test_a_step_fills_row_t_and_the_next_rows_observations(writer):
    result = make_result(1)
    assert writer.store(1, result) == (1, 2)
    for name in FIELDS:
        np.testing.assert_array_equal(writer.slot[name][2], result.obs[name])
        assert not writer.slot[name][[0, 1, 3]].any()
    np.testing.assert_array_equal(writer.slot["reward"][1], result.reward)
    np.testing.assert_array_equal(writer.slot["terminated"][1], [False, True, False, False])
    np.testing.assert_array_equal(writer.slot["truncated"][1], [False, False, True, False])
    assert writer.slot["valid"][1].all()
    for name in ("reward", "terminated", "truncated", "valid"):
        assert not writer.slot[name][[0, 2, 3]].any()


def lanes(*chosen):
    return np.isin(np.arange(LANES), chosen)


def still(number, reward, **changes):
    """A step of ``reward`` in which nothing ends, save for the changes."""
    flags = {"terminated": lanes(), "truncated": lanes()} | changes
    return make_result(number, reward=np.full(LANES, reward, np.float32), **flags)


def ended(slot):
    count = slot["episode_count"]
    return list(zip(slot["episode_return"][:count], slot["episode_length"][:count], strict=True))


def test_episodes_of_a_same_step_source_end_and_begin_in_one_step(writer):
    assert writer.store(0, still(0, 1.0)) == ()
    last = still(1, 2.0, terminated=lanes(0, 3), truncated=lanes(2, 3))
    assert writer.store(1, last) == (0, 2, 3)
    assert writer.store(2, still(2, 4.0, truncated=lanes(1, 2))) == (1, 2)
    # Lanes 0, 2 and 3 after 1 + 2, then lane 1 after 1 + 2 + 4 and lane 2, which began anew, after 4.
    assert ended(writer.slot) == [(3, 2), (3, 2), (3, 2), (7, 3), (4, 1)]
    # Last observations are kept of lanes that were cut, not of lane 3, which was terminated as well.
    assert writer.slot["final_count"] == 3
    np.testing.assert_array_equal(writer.slot["final_t"][:3], [1, 2, 2])
    np.testing.assert_array_equal(writer.slot["final_lane"][:3], [2, 1, 2])
    for name in FIELDS:
        np.testing.assert_array_equal(writer.slot[f"final.{name}"][0], last.final_obs[name][2])
    np.testing.assert_array_equal(writer.returns, [4, 0, 0, 4])
    np.testing.assert_array_equal(writer.lengths, [1, 0, 0, 1])
    assert writer.slot["valid"][:STEPS].all()


def test_episodes_of_a_next_step_source_begin_with_its_reset():
    writer = Writer(same_step=False)
    assert writer.store(0, still(0, 1.0, truncated=lanes(1), final_obs={})) == ()
    assert writer.store(1, still(1, 2.0, reset=lanes(1), final_obs={})) == (1,)
    assert writer.store(2, still(2, 4.0, terminated=lanes(0, 1), final_obs={})) == ()
    # Lane 1 after 1; then lane 0 after 1 + 2 + 4, and lane 1 again, whose reset row does not count.
    assert ended(writer.slot) == [(1, 1), (7, 3), (4, 1)]
    np.testing.assert_array_equal(writer.slot["valid"][:STEPS, 1], [True, False, True])
    assert writer.slot["valid"][:STEPS, [0, 2, 3]].all()
    assert writer.slot["final_count"] == 0


def test_counts_that_were_not_reset_are_an_error_not_a_write_beyond_the_end(writer):
    writer.slot["episode_count"][...] = STEPS * LANES
    with pytest.raises(IndexError, match="end 12 of 12"):
        writer.store(0, still(0, 1.0, terminated=lanes(0)))


def test_rewards_add_up_in_double_precision(writer):
    # 2**24 + 1 is no float32: a sum in single precision would stay at 2**24.
    for t, reward in enumerate((2.0**24, 1.0, 1.0)):
        writer.store(t, still(t, reward))
    np.testing.assert_array_equal(writer.returns, 2.0**24 + 2)


def test_a_result_that_comes_again_is_read_again(writer):
    result = make_result(0)
    for t in range(STEPS):
        result.reward[:] = t
        result.terminated[:] = t == 1
        result.obs["obs.speed"][:] = 10 + t
        assert writer.store(t, result) == ((0, 1, 2, 3) if t == 1 else (1,))
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
    reward, none = np.repeat(result.reward, 2)[::2], lanes()
    writer.store(0, result._replace(obs=strided, terminated=flags[:, 0], truncated=none, reward=reward))
    writer.store(1, result._replace(final_obs=strided, truncated=flags[:, 0], terminated=none))
    for name in FIELDS:
        np.testing.assert_array_equal(writer.slot[name][1], result.obs[name])
        np.testing.assert_array_equal(writer.slot[f"final.{name}"][:2], result.obs[name][1:3])
    np.testing.assert_array_equal(writer.slot["terminated"][0], [False, True, True, False])
    np.testing.assert_array_equal(writer.slot["reward"][0], result.reward)


def test_one_lane():
    specs = rollout_specs(SPACES, (), STEPS, 1, same_step=True)
    slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
    running = {"running_return": np.zeros(1), "running_length": np.zeros(1, np.int64)}
    store = rollout_writer(slot, FIELDS, same_step=True, **running).store
    result = make_result(0)
    obs = {name: values[:1] for name, values in result.obs.items()}
    assert store(2, StepResult(obs, *(field[:1] for field in result[1:5]), obs)) == (0,)
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
    with pytest.raises(ValueError, match=r"final_obs obs\.speed"):
        writer.store(0, result._replace(final_obs={**result.obs, "obs.speed": values}))


def test_what_is_not_there_is_named(writer):
    result = make_result(0)
    with pytest.raises(KeyError, match=r"obs\.camera"):
        writer.store(0, result._replace(obs={"obs.speed": result.obs["obs.speed"]}))
    for t in (-1, STEPS):
        with pytest.raises(IndexError, match=f"step {t} of {STEPS}"):
            writer.store(t, result)
    with pytest.raises(ValueError, match="StepResult"):
        writer.store(0, tuple(result[:5]))
    # After a refused result the next call must check its arrays again.
    assert writer.store(0, result) == (0, 1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("valid", np.zeros((STEPS, LANES), np.bool_)),
        ("obs.which", np.zeros((STEPS + 1, LANES + 1), np.int64)),
        ("final.obs.which", np.zeros(STEPS, np.int64)),
        ("final_t", np.zeros(STEPS * LANES, np.int32)),
        ("episode_count", np.zeros(1, np.int64)),
    ],
)
def test_a_slot_whose_arrays_do_not_fit_together_is_refused(name, values):
    running = {"running_return": np.zeros(LANES), "running_length": np.zeros(LANES, np.int64)}
    with pytest.raises(ValueError, match=name):
        rollout_writer(make_slot() | {name: values}, FIELDS, same_step=True, **running)


def test_arrays_that_would_be_copied_are_refused():
    running = {"running_return": np.zeros(2 * LANES)[::2], "running_length": np.zeros(LANES, np.int64)}
    with pytest.raises(TypeError):
        rollout_writer(make_slot(), FIELDS, same_step=True, **running)
