"""Scalar sources: the result of a step, the end and begin of episodes, and faults of environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from penstock.envs.gymnasium import ScalarSource
from penstock.envs.sources import open_source
from penstock.errors import BadDataError
from tests.environments import ClockEnv, CorridorEnv, DictEnv, TargetEnv


def source(*envs) -> ScalarSource:
    return ScalarSource("test", envs, first_lane=10)


def no_seed(lane):
    raise AssertionError(f"lane {lane} did not end")


PAIR = Box(-1, 1, (2,), np.float32)


class Scripted(gymnasium.Env):
    """Gives prepared results; then the last one again and again."""

    def __init__(self, *results, observation_space=PAIR, first=None):
        self.observation_space = observation_space
        self.action_space = Discrete(2, start=3)
        self.results = list(results)
        self.first = observation_space.sample() if first is None else first
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return self.first, {}

    def step(self, action):
        self.actions.append(action)
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


OBS = np.array([0.25, -0.5], np.float32)


def test_a_step_gives_each_lane_its_row():
    lanes = source(Scripted((OBS, 1.5, False, False, {})), Scripted((-OBS, -2, False, False, {})))
    first = lanes.reset([1, 2])
    assert first["obs"].shape == (2, 2)
    result = lanes.step(np.array([3, 4]), no_seed)
    np.testing.assert_array_equal(result.obs["obs"], [[0.25, -0.5], [-0.25, 0.5]])
    np.testing.assert_array_equal(result.reward, np.array([1.5, -2], np.float32))
    assert result.reward.dtype == np.float32
    assert not result.terminated.any()
    assert not result.truncated.any()
    assert not result.reset.any()


def test_an_ended_lane_begins_its_next_episode_in_the_same_step():
    last, first = np.array([1, 1], np.float32), np.array([-1, -1], np.float32)
    ends = Scripted((OBS, 0, False, False, {}), (last, 1, True, False, {}), (OBS, 0, False, False, {}), first=first)
    goes_on = Scripted((OBS, 0, False, False, {}))
    lanes = source(ends, goes_on)
    lanes.reset([5, 6])
    lanes.step(np.array([3, 3]), no_seed)
    result = lanes.step(np.array([3, 3]), {0: 77}.__getitem__)
    np.testing.assert_array_equal(result.terminated, [True, False])
    np.testing.assert_array_equal(result.final_obs["obs"][0], last)
    np.testing.assert_array_equal(result.obs["obs"], [first, OBS])
    assert (ends.seeds, goes_on.seeds) == ([5, 77], [6])
    result = lanes.step(np.array([3, 3]), no_seed)
    assert not result.terminated.any(), "the flags of the step before are gone"


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True), (True, True)])
def test_termination_and_truncation_are_two_facts(terminated, truncated):
    lanes = source(Scripted((OBS, 0, np.bool_(terminated), np.bool_(truncated), {})))
    lanes.reset([0])
    result = lanes.step(np.array([3]), lambda lane: 0)
    assert (result.terminated[0], result.truncated[0]) == (terminated, truncated)


def test_a_time_limit_is_a_truncation():
    lanes = open_source("Pendulum-v1", vector=False, num_lanes=2)
    lanes.reset([0, 1])
    for _ in range(199):
        assert not lanes.step(np.zeros((2, 1), np.float32), no_seed).truncated.any()
    result = lanes.step(np.zeros((2, 1), np.float32), lambda lane: 0)
    assert result.truncated.all()
    assert not result.terminated.any()
    lanes.close()


def test_an_episode_depends_on_its_seed_and_its_actions_alone():
    def play(order):
        lanes = open_source("CartPole-v1", vector=False, num_lanes=2)
        rows = [lanes.reset([order[0], order[1]])["obs"].copy()]
        next_seeds = {0: order[0] + 100, 1: order[1] + 100}
        for _ in range(40):
            rows.append(lanes.step(np.ones(2, np.int64), next_seeds.__getitem__).obs["obs"].copy())
        lanes.close()
        return np.stack(rows)

    one, other = play([3, 4]), play([4, 3])
    np.testing.assert_array_equal(one, other[:, ::-1])


class Reuses(ClockEnv):
    """Hands out one array all its life, and writes into it on reset."""

    def __init__(self):
        self.array = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.array[:] = super().reset(seed=seed)[0]
        return self.array, {}

    def step(self, action):
        obs, *rest = super().step(action)
        self.array[:] = obs
        return self.array, *rest


@pytest.mark.parametrize("reward", [2.0, np.array([2.0]), [2.0]])
def test_an_episode_is_restored_whatever_the_form_of_its_rewards(reward):
    lanes = source(Scripted((OBS, reward, False, False, {})))
    lanes.reset([5])
    assert [float(one.reward[0]) for one in lanes.replay({0: np.array([3, 3])})] == [2.0, 2.0]


def test_an_episode_is_restored_beside_others_where_actions_do_not_count_from_0():
    envs = [Scripted((OBS, 1.0, False, False, {})) for _ in range(2)]
    lanes = source(*envs)
    lanes.reset([5, 6])
    assert [one.lanes for one in lanes.replay({0: np.array([3]), 1: np.array([4, 3])})] == [(0,), (1,), (1,)]
    assert [env.actions for env in envs] == [[3], [4, 3]]


def test_an_array_that_is_handed_out_every_time_is_copied():
    shared = [Reuses(), Reuses()]
    shared[1].array = shared[0].array  # not even one for each environment
    lanes = source(*shared)
    lanes.reset([0, 0])
    lanes._envs[0].steps = 5  # so that the two differ
    result = lanes.step(np.zeros(2, np.int64), no_seed)
    np.testing.assert_allclose(result.obs["obs"][:, 0], [6 / 20, 1 / 20])


def test_the_last_observation_survives_the_reset_that_overwrites_it():
    lanes = source(Reuses())
    lanes.reset([0])
    for _ in range(19):
        lanes.step(np.zeros(1, np.int64), no_seed)
    result = lanes.step(np.zeros(1, np.int64), lambda lane: 0)
    assert result.truncated[0]
    assert result.final_obs["obs"][0, 0] == 1.0
    assert result.obs["obs"][0, 0] == 0.0


@pytest.mark.parametrize(
    "reward", [2, 2.0, True + 1, np.float32(2), np.float64(2), np.int64(2), np.array(2.0), np.array([2.0]), [2.0]]
)
def test_a_reward_may_come_in_any_form_of_one_number(reward):
    lanes = source(Scripted((OBS, reward, False, False, {})))
    lanes.reset([0])
    assert lanes.step(np.array([3]), no_seed).reward[0] == 2


@pytest.mark.parametrize("reward", [None, "2", np.array([1.0, 2.0]), {}, 1j, np.zeros(0)])
def test_another_reward_is_refused_by_name(reward):
    lanes = source(Scripted((OBS, 0, False, False, {})), Scripted((OBS, reward, False, False, {})))
    lanes.reset([0, 0])
    with pytest.raises(BadDataError, match=r"^reward of lane 11 of test"):
        lanes.step(np.array([3, 3]), no_seed)


@pytest.mark.parametrize("end", [True, 1, np.True_, np.array([True]), np.float32(1)])
def test_an_end_may_come_in_any_form_of_one_truth_value(end):
    lanes = source(Scripted((OBS, 0, end, False, {})), Scripted((OBS, 0, np.False_, end, {})))
    lanes.reset([0, 0])
    result = lanes.step(np.array([3, 3]), lambda lane: 0)
    assert (result.terminated.tolist(), result.truncated.tolist()) == ([True, False], [False, True])


@pytest.mark.parametrize("end", [[False], "False", float("nan"), 2, (0, 0), {"done": False}])
@pytest.mark.parametrize("which", ["terminated", "truncated"])
def test_what_python_would_take_for_an_end_is_refused_by_name(end, which):
    ends = (end, False) if which == "terminated" else (False, end)
    lanes = source(Scripted((OBS, 0, False, False, {})), Scripted((OBS, 0, *ends, {})))
    lanes.reset([0, 0])
    with pytest.raises(BadDataError, match=rf"^{which} of lane 11 of test is .*, neither true nor false"):
        lanes.step(np.array([3, 3]), no_seed)


def test_nan_and_infinity_pass_for_the_node_to_judge():
    bad = np.array([np.nan, np.inf], np.float32)
    lanes = source(Scripted((bad, float("nan"), False, False, {})), Scripted((bad, 1e300, False, False, {})))
    lanes.reset([0, 0])
    result = lanes.step(np.array([3, 3]), no_seed)
    assert np.isnan(result.obs["obs"][:, 0]).all()
    assert np.isnan(result.reward[0])
    assert np.isinf(result.reward[1])


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (Box(-1, 1, (2,), np.float32), np.array([0.5, 1.0]), [0.5, 1.0]),  # float64
        (Box(-1, 1, (2,), np.float32), [0.5, 1], [0.5, 1.0]),
        (Box(-1, 1, (2,), np.float32), np.array([[0.5, 1.0]], np.float32), [0.5, 1.0]),
        (Box(-1, 1, (2,), np.float32), np.ma.array([0.5, 1.0]), [0.5, 1.0]),
        (Box(-1, 1, (2,), np.float32), np.array([9, 9, 9, 9], np.float32)[::2] * 0 + 0.5, [0.5, 0.5]),
        (Box(-1, 1, (), np.float32), 0.5, 0.5),
        (Box(0, 255, (2, 1), np.uint8), np.array([[3.0], [4.0]]), [[3], [4]]),
        (Box(0, 255, (2, 2), np.uint8), np.array([[1, 2], [3, 4]], np.uint8).T, [[1, 3], [2, 4]]),
        (Box(0, 9, (2,), np.int64), np.array([3, 4], np.int32), [3, 4]),
        (Discrete(5), 3.0, 3),
        (Discrete(5), np.array([3]), 3),
        (Discrete(5, start=-2), np.int32(-1), -1),
    ],
)
def test_an_observation_is_cast_where_that_is_safe(space, obs, expected):
    lanes = source(Scripted((obs, 0, False, False, {}), observation_space=space))
    lanes.reset([0])
    result = lanes.step(np.array([3]), no_seed)
    np.testing.assert_array_equal(result.obs["obs"][0], expected)
    assert result.obs["obs"].dtype == space.dtype


@pytest.mark.parametrize(
    ("space", "obs", "says"),
    [
        (Box(-1, 1, (2,), np.float32), np.zeros(3, np.float32), r"shape \(3,\), its space says \(2,\)"),
        (Box(-1, 1, (2,), np.float32), np.zeros(1, np.float32), r"shape \(1,\), its space says \(2,\)"),
        (Box(-1, 1, (2,), np.float32), 0.0, r"shape \(\), its space says \(2,\)"),
        (Box(-1, 1, (2, 3), np.float32), np.zeros((3, 2), np.float32), r"shape \(3, 2\), its space says \(2, 3\)"),
        (Box(-1, 1, (2,), np.float32), None, "is None of dtype object"),
        (Box(-1, 1, (2,), np.float32), "hello", "is hello of dtype <U5"),
        (Box(-1, 1, (2,), np.float32), [[1.0], [1.0, 2.0]], "which is no array"),
        (Box(0, 255, (2,), np.uint8), np.array([0.5, 1.0]), "does not fit uint8"),
        (Box(0, 255, (2,), np.uint8), np.array([256, 1]), "does not fit uint8"),
        (Box(0, 9, (2,), np.int64), np.array([np.nan, 1.0]), "does not fit int64"),
        (Discrete(5), 5, r"is 5, outside its space 0 \.\. 4"),
        (Discrete(5), -1, r"is -1, outside its space 0 \.\. 4"),
        (Discrete(5), 2.5, "does not fit int64"),
    ],
)
def test_another_observation_is_refused_by_name(space, obs, says):
    lanes = source(Scripted((obs, 0, False, False, {}), observation_space=space))
    lanes.reset([0])
    with pytest.raises(BadDataError, match=f"^obs of lane 10 of test .*{says}"):
        lanes.step(np.array([3]), no_seed)


def test_dict_observations_are_fields_sorted_by_key():
    lanes = source(DictEnv(), DictEnv())
    obs = lanes.reset([0, 1])
    assert list(obs) == ["obs.dials.a", "obs.dials.b", "obs.which"]
    assert {name: values.shape for name, values in obs.items()} == {
        "obs.dials.a": (2, 1),
        "obs.dials.b": (2, 1),
        "obs.which": (2,),
    }
    env = DictEnv()
    second = env.reset(seed=1)[0]
    assert obs["obs.dials.b"][1] == second["dials"]["b"]
    assert obs["obs.which"][1] == second["which"]
    for _ in range(9):
        lanes.step(np.zeros(2, np.int64), no_seed)
        last = env.step(0)[0]
    result = lanes.step(np.zeros(2, np.int64), lambda lane: 5)
    last = env.step(0)[0]
    assert result.terminated.all()
    assert result.final_obs["obs.dials.a"][1] == last["dials"]["a"]
    assert result.final_obs["obs.which"][1] == last["which"]


@pytest.mark.parametrize("obs", [{}, {"a": np.zeros(1)}, None, np.zeros(2)])
def test_a_missing_key_is_named(obs):
    space = Dict({"a": Box(-1, 1, (1,)), "b": Dict({"c": Discrete(2)})})
    lanes = source(Scripted((obs, 0, False, False, {}), observation_space=space))
    lanes.reset([0])
    with pytest.raises(BadDataError, match=r"^observation of lane 10 of test has no (a|b\.c)$"):
        lanes.step(np.array([3]), no_seed)


@pytest.mark.parametrize("result", [(OBS, 0.0, False, {}), None, OBS, (OBS, 0.0), "abc"])
def test_a_step_that_gives_other_than_five_values_is_named(result):
    lanes = source(Scripted(result))
    lanes.reset([0])
    with pytest.raises(BadDataError, match=r"^step of lane 10 of test returned .*; expected five values") as caught:
        lanes.step(np.array([3]), no_seed)
    assert caught.value.__cause__ is None, "which would show a traceback"
    assert caught.value.__suppress_context__


def test_flags_that_are_neither_true_nor_false_are_named():
    lanes = source(Scripted((OBS, 0.0, False, np.array([True, False]), {})))
    lanes.reset([0])
    with pytest.raises(BadDataError, match=r"^truncated of lane 10 of test is \[ True False\]"):
        lanes.step(np.array([3]), no_seed)


def test_an_error_inside_the_environment_stays_what_it_is():
    class Broken(ClockEnv):
        def step(self, action):
            return {}[action]

    lanes = source(ClockEnv(), Broken())
    lanes.reset([0, 0])
    with pytest.raises(KeyError) as caught:
        lanes.step(np.zeros(2, np.int64), no_seed)
    assert caught.value.__notes__ == ["in lane 11 of test"]
    assert caught.traceback[-1].name == "step"


def test_discrete_actions_are_numpy_integers_in_the_space():
    env = Scripted((OBS, 0.0, False, False, {}))
    lanes = source(env)
    lanes.reset([0])
    lanes.step(np.array([4]), no_seed)
    assert env.actions == [4]
    assert type(env.actions[0]) is np.int64
    assert env.action_space.contains(env.actions[0])


@pytest.mark.parametrize("keep", [lambda action: action, lambda action: action[:1], memoryview])
def test_an_environment_may_keep_its_actions(keep):
    class Keeps(TargetEnv):
        kept = ()

        def step(self, action):
            assert self.action_space.contains(action)
            self.kept = (*self.kept, keep(action))
            return super().step(action)

    envs = [Keeps(), TargetEnv(), Keeps()]
    lanes = source(*envs)
    lanes.reset([0, 0, 0])
    given = np.zeros((3, 1), np.float32)
    for number in range(5):
        given[:] = [[number / 10], [1.0], [-number / 10]]
        lanes.step(given, no_seed)
    np.testing.assert_allclose([action[0] for action in envs[0].kept], [0, 0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose([action[0] for action in envs[2].kept], [0, -0.1, -0.2, -0.3, -0.4])


def test_rows_of_actions_are_used_again_while_nobody_keeps_them():
    seen = set()

    class Looks(TargetEnv):
        def step(self, action):
            seen.add(id(action))
            return super().step(action)

    lanes = source(Looks())
    lanes.reset([0])
    for _ in range(9):
        lanes.step(np.zeros((1, 1), np.float32), no_seed)
    assert len(seen) == 1


def test_integer_observations_of_many_lanes():
    lanes = source(*[CorridorEnv() for _ in range(3)])
    assert lanes.reset([0, 0, 0])["obs"].dtype == np.int64
    for _ in range(3):
        result = lanes.step(np.array([1, 0, 1]), no_seed)
    np.testing.assert_array_equal(result.obs["obs"], [3, 0, 3])


def test_a_source_may_be_closed_twice_and_closes_every_environment():
    closed = []

    class Closes(ClockEnv):
        def close(self):
            closed.append(self)
            if len(closed) == 1:
                raise OSError("the first one fails")

    lanes = source(Closes(), Closes())
    with pytest.raises(OSError, match="the first one fails"):
        lanes.close()
    assert len(closed) == 2
    lanes.close()


def test_the_last_info_of_an_episode_is_read_and_forgotten_with_the_next_step():
    """An environment may use its info again: it is read before the reset."""
    shared = {}

    class Reusing(Scripted):
        def reset(self, *, seed=None, options=None):
            shared.clear()
            return super().reset(seed=seed)

        def step(self, action):
            shared["laps"] = 3
            return super().step(action)

    ends = Reusing((OBS, 0, False, False, shared), (OBS, 0, True, False, shared), (OBS, 0, False, False, shared))
    lanes = source(Scripted((OBS, 0, False, False, {"laps": 9})), ends)
    metrics = lanes.follow(("laps",))
    lanes.reset([0, 0])
    found = []
    for _ in range(3):
        lanes.step(np.array([3, 3]), lambda lane: 0)
        found.append(dict(metrics))
    assert found == [{}, {1: (3.0,)}, {}]


def test_a_metric_that_is_no_number_is_named():
    lanes = source(Scripted((OBS, 0, True, False, {"won": "yes"})))
    lanes.follow(("won",))
    lanes.reset([0])
    with pytest.raises(BadDataError, match=r"^won in the last info of lane 10 of test is yes, which is no number"):
        lanes.step(np.array([3]), lambda lane: 0)
