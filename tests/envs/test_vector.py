"""Vector sources in every autoreset mode: Gymnasium's own, and others that follow their metadata."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from penstock.envs.sources import open_source
from penstock.envs.vector import VectorSource
from penstock.errors import BadDataError, EnvError
from tests.environments import ClockEnv, ClockVectorEnv, CorridorEnv, DictEnv, TupleEnv

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def source(env) -> VectorSource:
    return VectorSource("test", env, env.num_envs, first_lane=10)


def sync(*envs, mode, **kwargs):
    return SyncVectorEnv(envs, autoreset_mode=mode, **kwargs)


def play(lanes, steps, lane_seeds=(0, 0)):
    """Every StepResult, copied."""
    lanes.reset(lane_seeds)
    results = []
    for _ in range(steps):
        result = lanes.step(np.zeros(lanes.num_lanes, np.int64), lambda lane: 50 + lane)
        results.append(copy.deepcopy(result))
    return results


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, "NextStep"])
def test_next_step_flags_the_row_of_the_reset(mode):
    lanes = source(ClockVectorEnv(2, mode))  # cut after 20 and 21 steps
    assert not lanes.same_step
    assert not lanes.restorable
    results = play(lanes, 43)
    np.testing.assert_array_equal(np.flatnonzero([result.truncated[0] for result in results]), [19, 40])
    np.testing.assert_array_equal(np.flatnonzero([result.reset[0] for result in results]), [20, 41])
    np.testing.assert_array_equal(np.flatnonzero([result.truncated[1] for result in results]), [20, 42])
    np.testing.assert_array_equal(np.flatnonzero([result.reset[1] for result in results]), [21])
    assert results[19].obs["obs"][0, 0] == 1.0, "the last observation, which the truncation is bootstrapped from"
    assert results[20].obs["obs"][0, 0] == 0.0, "the next episode's first"


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, "SameStep"])
def test_same_step_takes_the_last_observation_from_the_infos(mode):
    lanes = source(ClockVectorEnv(2, mode))
    assert lanes.same_step
    assert not lanes.restorable
    results = play(lanes, 42)
    np.testing.assert_array_equal(np.flatnonzero([result.truncated[0] for result in results]), [19, 39])
    np.testing.assert_array_equal(np.flatnonzero([result.truncated[1] for result in results]), [20, 41])
    assert not any(result.reset.any() for result in results)
    assert results[19].final_obs["obs"][0, 0] == 1.0
    np.testing.assert_allclose(results[19].obs["obs"][:, 0], [0, 20 / 20])
    np.testing.assert_allclose(results[20].final_obs["obs"][1, 0], 21 / 20)


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, "Disabled"])
def test_where_autoreset_is_disabled_penstock_resets_with_its_own_seeds(mode):
    lanes = source(ClockVectorEnv(2, mode))
    assert lanes.same_step
    assert lanes.restorable
    results = play(lanes, 42, lane_seeds=(1, 3))
    assert results[19].truncated[0], "although the reset cleared the array that step had returned"
    np.testing.assert_allclose(results[19].final_obs["obs"][0, 0], 20 / 20 + 0.01)
    np.testing.assert_allclose(results[19].obs["obs"][:, 0], [0.02, 20 / 20 + 0.03])  # seed 50 % 4 = 2
    np.testing.assert_allclose(results[20].obs["obs"][:, 0], [1 / 20 + 0.02, 0.03])  # seed 51 % 4 = 3
    assert not any(result.reset.any() for result in results)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copies", [True, False])
def test_gymnasiums_own_vector_environments_in_every_mode(mode, copies):
    lanes = source(sync(ClockEnv, ClockEnv, mode=mode, copy=copies))
    assert lanes.same_step == (mode is not AutoresetMode.NEXT_STEP)
    assert lanes.restorable == (mode is AutoresetMode.DISABLED)
    results = play(lanes, 21)
    assert results[19].truncated.all()
    assert not results[19].terminated.any()
    last = results[19].final_obs["obs"] if lanes.same_step else results[19].obs["obs"]
    np.testing.assert_array_equal(last, [[1], [1]])
    assert results[20].reset.all() == (not lanes.same_step)
    lanes.close()


def test_gymnasiums_asynchronous_vector_environment_with_lanes_seeded_one_by_one():
    def trajectory(vector, num_lanes):
        lanes = source(vector) if vector else open_source("CartPole-v1", vector=False, num_lanes=num_lanes)
        assert lanes.restorable
        results = play(lanes, 60, lane_seeds=(3, 8))
        lanes.close()
        return np.stack([result.obs["obs"] for result in results])

    make = [lambda: gymnasium.make("CartPole-v1")] * 2
    expected = trajectory(None, 2)
    np.testing.assert_array_equal(trajectory(AsyncVectorEnv(make, autoreset_mode="Disabled"), 2), expected)
    np.testing.assert_array_equal(trajectory(SyncVectorEnv(make, autoreset_mode="Disabled"), 2), expected)


def test_an_asynchronous_environment_whose_episodes_do_not_follow_from_the_seed():
    class Noisy(ClockEnv):
        def reset(self, **options):
            _, info = super().reset(**options)
            return np.random.default_rng().random(1, np.float32), info

    for vector in (AsyncVectorEnv, SyncVectorEnv):
        lanes = source(vector([Noisy] * 2, autoreset_mode="Disabled"))
        assert not lanes.restorable
        assert lanes.reset([0, 1])["obs"].shape == (2, 1)
        lanes.close()


@pytest.mark.parametrize("mode", MODES)
def test_dict_observations(mode):
    lanes = source(sync(DictEnv, DictEnv, mode=mode))
    obs = lanes.reset([3, 4])
    assert {name: (values.shape, values.dtype.name) for name, values in obs.items()} == {
        "obs.dials.a": ((2, 1), "float32"),
        "obs.dials.b": ((2, 1), "float32"),
        "obs.which": ((2,), "int64"),
    }
    results = play(lanes, 10, lane_seeds=(3, 4))
    assert results[9].terminated.all()
    env = DictEnv()
    env.reset(seed=4)
    for _ in range(10):
        last = env.step(0)[0]
    given = results[9].final_obs if lanes.same_step else results[9].obs
    assert given["obs.dials.b"][1] == last["dials"]["b"]
    assert given["obs.which"][1] == last["which"]


@pytest.mark.parametrize("mode", MODES)
def test_tuple_observations_without_their_text(mode):
    lanes = VectorSource("test", sync(TupleEnv, TupleEnv, mode=mode), 2, ignore_obs=["1.2"])
    obs = lanes.reset([3, 4])
    assert {name: (values.shape, values.dtype.name) for name, values in obs.items()} == {
        "obs.0": ((2,), "int64"),
        "obs.1.0": ((2, 1), "float32"),
        "obs.1.1": ((2, 1), "float32"),
    }
    results = play(lanes, 10, lane_seeds=(3, 4))
    assert results[9].terminated.all()
    env = TupleEnv()
    env.reset(seed=4)
    for _ in range(10):
        last = env.step(0)[0]
    given = results[9].final_obs if lanes.same_step else results[9].obs
    assert given["obs.0"][1] == last[0]
    assert given["obs.1.1"][1] == last[1][1]


@pytest.mark.parametrize("mode", MODES)
def test_integer_observations(mode):
    lanes = source(sync(CorridorEnv, CorridorEnv, mode=mode))
    lanes.reset([0, 0])
    result = lanes.step(np.array([1, 0]), lambda lane: 0)
    np.testing.assert_array_equal(result.obs["obs"], [1, 0])


def test_the_vector_environment_that_an_id_registers():
    lanes = open_source("CartPole-v1", vector=True, num_lanes=3)
    assert not lanes.same_step  # it knows NEXT_STEP alone
    results = play(lanes, 30, lane_seeds=(1, 2, 3))
    lane = int(np.flatnonzero(sum(result.terminated.astype(int) for result in results))[0])
    end = next(t for t, result in enumerate(results) if result.terminated[lane])
    assert abs(results[end].obs["obs"][lane, 2]) > 0.2, "the pole has fallen"
    assert results[end + 1].reset[lane]
    assert np.abs(results[end + 1].obs["obs"][lane]).max() <= 0.05
    assert np.array_equal(results[0].obs["obs"], play(lanes, 1, lane_seeds=(1, 2, 3))[0].obs["obs"]), (
        "seeded as a whole"
    )


PAIR = Box(-1, 1, (2,))


class Batch(gymnasium.vector.VectorEnv):
    """Gives prepared results."""

    num_envs = 2

    def __init__(self, mode=AutoresetMode.SAME_STEP, space=PAIR, **given):
        self.metadata = {"autoreset_mode": mode}
        self.seeds = []
        self.single_observation_space = space
        self.single_action_space = Box(-1, 1, (1,), np.float32)
        self.first = np.stack([np.asarray(space.sample())] * 2)
        end = np.zeros(2, np.bool_)
        self.given = {
            "obs": self.first,
            "reward": np.zeros(2),
            "terminated": end,
            "truncated": end,
            "infos": {},
        } | given

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, actions):
        self.action = actions
        return tuple(self.given.values())


def step(**given):
    lanes = source(Batch(**given))
    lanes.reset([0, 0])
    return lanes.step(np.zeros((2, 1), np.float32), lambda lane: 0)


def test_what_can_be_cast_safely_is_cast():
    result = step(obs=[[0.5, 1.0], [0, 0]], reward=[1, 2], terminated=[0, 0], truncated=np.zeros(2, np.int64))
    assert result.obs["obs"].dtype == np.float32
    assert result.reward.tolist() == [1, 2]
    assert result.terminated.dtype == result.truncated.dtype == np.bool_


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"obs": np.zeros((3, 2))}, r"^obs of lanes 10 to 11 of test has shape \(3, 2\), its space says \(2, 2\)"),
        ({"obs": np.zeros((2, 2), object)}, r"^obs of lanes 10 to 11 of test is .* of dtype object"),
        ({"obs": np.array([0, 9]), "space": Discrete(9)}, r"^obs of lanes 10 to 11 of test is \[0 9\], outside"),
        ({"reward": 1.0}, r"^reward of lanes 10 to 11 of test has shape \(\)"),
        ({"reward": ["a", "b"]}, r"^reward of lanes 10 to 11 of test is \['a', 'b'\]"),
        ({"truncated": np.zeros(3, np.bool_)}, r"^truncated of lanes 10 to 11 of test has shape \(3,\)"),
        ({"terminated": np.array([0.5, 0])}, r"^terminated of lanes 10 to 11 of test .* does not fit bool"),
        ({"truncated": np.array([True, False])}, r"^lanes 10 to 11 of test resets in the same step, but its infos"),
    ],
)
def test_what_cannot_be_used_is_named(given, says):
    with pytest.raises(BadDataError, match=says):
        step(**given)


def test_a_terminated_lane_needs_no_last_observation():
    assert step(terminated=np.array([True, False])).terminated[0]


def test_last_observations_may_be_an_array_of_objects():
    final = np.array([None, None], object)
    final[1] = np.array([0.5, -0.5])
    result = step(truncated=np.array([False, True]), infos={"final_obs": final})
    np.testing.assert_array_equal(result.final_obs["obs"][1], [0.5, -0.5])


def test_an_environment_may_keep_its_actions():
    env = Batch()
    lanes = source(env)
    lanes.reset([0, 0])
    given = np.zeros((2, 1), np.float32)
    lanes.step(given, lambda lane: 0)
    given[:] = 1
    assert not env.action.any()


def test_one_seed_where_lanes_cannot_be_seeded_one_by_one():
    class OneSeed(Batch):
        def reset(self, *, seed=None, options=None):
            if seed is not None and not isinstance(seed, int):
                raise TypeError("one seed only")
            self.seeds.append(seed)
            return self.first, {}

    env = OneSeed(AutoresetMode.DISABLED, truncated=np.array([False, True]))
    lanes = source(env)
    assert lanes.same_step
    assert not lanes.restorable
    lanes.reset([7, 8])
    asked = []
    lanes.step(np.zeros((2, 1), np.float32), lambda lane: asked.append(lane) or 9)
    assert env.seeds == [7, None]
    assert asked == [1], "asked all the same, because it counts episodes"


def test_a_list_that_seeds_all_lanes_together_is_not_taken_for_one_seed_a_lane():
    class Together(ClockVectorEnv):
        def reset(self, *, seed=None, options=None):
            mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
            if seed is not None:
                self.generator = np.random.default_rng(seed)
            self.phase[mask] = self.generator.random(mask.sum())
            self.steps[mask] = 0
            return self._observe(), {}

    assert not source(Together(2, AutoresetMode.DISABLED)).restorable


def test_an_array_with_a_seed_for_each_lane_that_is_reset():
    class OnlyResetLanes(ClockVectorEnv):
        def reset(self, *, seed=None, options=None):
            mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
            if not isinstance(seed, np.ndarray) or seed.shape != (mask.sum(),):
                raise TypeError("Unsupported seed type")
            every = np.zeros(self.num_envs, np.int64)
            every[mask] = seed
            return super().reset(seed=every, options=options)

    lanes = source(OnlyResetLanes(3, AutoresetMode.DISABLED))
    assert lanes.restorable
    results = play(lanes, 21, lane_seeds=(1, 2, 3))
    np.testing.assert_allclose(results[20].obs["obs"][:, 0], [1 / 20 + 0.02, 0.03, 21 / 20 + 0.03])


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "does not state its autoreset mode"),
        (None, "does not state its autoreset mode"),
        ({"autoreset_mode": "Sometimes"}, "states the unknown autoreset mode 'Sometimes'"),
    ],
)
def test_an_unknown_autoreset_mode_is_refused(metadata, says):
    env = ClockVectorEnv(2)
    env.metadata = metadata
    with pytest.raises(EnvError, match=says):
        source(env)


def test_another_number_of_lanes_is_refused():
    with pytest.raises(EnvError, match="test has 3 lanes instead of 2"):
        VectorSource("test", ClockVectorEnv(3), 2)


def test_a_source_may_be_closed_twice():
    lanes = source(ClockVectorEnv(2))
    lanes.close()
    lanes.close()


class Counted(ClockEnv):
    """Cut after so many steps; the info tells the step."""

    def __init__(self, limit):
        self.LIMIT = limit

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"steps": 0}

    def step(self, action):
        *others, _ = super().step(action)
        return *others, {"steps": self.steps}


@pytest.mark.parametrize("mode", MODES)
def test_the_numbers_of_last_infos_are_there_in_every_mode(mode):
    lanes = source(sync(lambda: Counted(2), lambda: Counted(3), mode=mode))
    metrics = lanes.follow(("steps", "unheard"))
    lanes.reset([0, 0])
    found = []
    for _ in range(6):
        lanes.step(np.zeros(2, np.int64), lambda lane: 0)
        found.append({lane: numbers[0] for lane, numbers in metrics.items()})
        assert all(np.isnan(unheard) for _, unheard in metrics.values())
    # In mode NEXT_STEP the step after an end is the reset.
    next_step = [{}, {0: 2.0}, {1: 3.0}, {}, {0: 2.0}, {}]
    at_once = [{}, {0: 2.0}, {1: 3.0}, {0: 2.0}, {}, {0: 2.0, 1: 3.0}]
    assert found == (next_step if mode == AutoresetMode.NEXT_STEP else at_once)


def test_last_infos_may_be_an_array_of_objects():
    infos = {"final_obs": np.array([np.zeros(2), None], object), "final_info": np.array([{"won": True}, None], object)}
    lanes = source(Batch(terminated=np.array([True, False]), infos=infos))
    metrics = lanes.follow(("won",))
    lanes.reset([0, 0])
    lanes.step(np.zeros((2, 1), np.float32), lambda lane: 0)
    assert metrics == {0: (1.0,)}
