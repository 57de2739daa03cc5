"""A policy as a function: one observation or a batch, in the environment's own units; and its export."""

from functools import partial

import numpy as np
import onnxruntime
import pytest

import penstock
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.errors import BadDataError, ConfigError
from penstock.inference import native
from penstock.policies.architecture import Body, deterministic_actor, q_network, squashed_actor
from penstock.serving.export import export
from penstock.serving.policy import Policy
from penstock.serving.run_policy import RunPolicy
from penstock.types import Arrays, Box, Discrete, Spaces

PLAIN = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0)))
NESTED = Spaces((("obs.dial", Box((2,), "float32", (-1.0,), (1.0,))), ("obs.which", Discrete(3, 1))), Discrete(4, 5))
PLACES = Spaces((("obs.0.a.b", Discrete(3)), ("obs.1", NESTED.obs[0][1])), Discrete(4))


def make(spaces: Spaces) -> tuple[Policy, Arrays]:
    config = PPOConfig(hidden_sizes=(8,))
    state = init_state(spaces, config, 1)
    graph = spec(spaces, config).policy
    return RunPolicy(spaces, graph, native.build(graph), state, "made here"), state


def test_a_policy_says_in_one_line_what_it_is(tmp_path) -> None:
    assert repr(make(NESTED)[0]) == (
        "<Policy: made here; obs.dial float32[2], obs.which Discrete(3) -> Discrete(4); no memory>"
    )
    settings = {"num_envs": 2, "num_workers": 1, "num_steps": 16, "mini_batch_size": 16, "timesteps": 32}
    task = {"env": "benchmarks.learning.tasks:MaskedAimEnv", "model": "gru", "memory_size": 8, "backend": "eager"}
    rest = {"runtime": "inline", "eval_episodes": 1, "log_dir": str(tmp_path)}
    done = penstock.train({**task, **settings, **rest}, quiet=True)
    # A GRU of 8 in the actor and one in the critic.
    assert repr(penstock.load_policy(done.run_folder)) == (
        "<Policy: ppo on benchmarks.learning.tasks:MaskedAimEnv, run by onnx; "
        "obs float32[5] -> 0 Discrete(3), 1 float32[2], chosen by action_mask; a memory of 16 numbers>"
    )


def test_one_observation_and_a_batch_give_the_same_actions() -> None:
    policy, _ = make(PLAIN)
    batch = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    actions = policy(batch)
    assert actions.shape == (5, 2)
    assert actions.dtype == np.float32
    assert (actions[:, 0] >= -2).all()
    assert (actions[:, 1] >= 0).all()
    for row, action in zip(batch, actions, strict=True):
        np.testing.assert_array_equal(policy(row), action)
        np.testing.assert_array_equal(policy(row.tolist()), action)


def test_a_discrete_action_is_an_int_in_the_environments_numbers() -> None:
    policy, _ = make(NESTED)
    one = policy({"dial": [0.5, -0.5], "which": 2})
    assert isinstance(one, int)
    assert 5 <= one < 9
    many = policy({"dial": np.zeros((3, 2)), "which": np.array([1, 2, 3])})
    assert many.shape == (3,)


def test_a_tuple_is_taken_as_the_environment_gives_it() -> None:
    policy, _ = make(PLACES)
    one = policy(({"a.b": 2, "left out": "a text"}, [0.5, -0.5]))
    assert one == policy(({"a": {"b": 2}}, np.array([0.5, -0.5])))
    many = policy(({"a.b": np.array([2, 2])}, np.array([[0.5, -0.5]] * 2)))
    assert many.tolist() == [one, one]


@pytest.mark.parametrize(
    ("spaces", "obs", "text"),
    [
        (PLAIN, [1.0, 2.0], r"obs has shape \[2\], wanted \[3\] or a batch \[n, 3\]"),
        (PLAIN, np.zeros((2, 2, 3)), r"obs has shape \[2, 2, 3\]"),
        (NESTED, {"dial": [0.0, 0.0]}, r"the observation lacks obs\.which"),
        (NESTED, [0.0, 0.0], r"the observation lacks obs\.dial"),
        (PLACES, ({"a.b": 2},), r"the observation lacks obs\.1$"),
        (PLACES, [{"a.b": 2}, [0.0, 0.0]], r"the observation lacks obs\.0\.a\.b$"),
    ],
)
def test_an_observation_of_another_shape_is_refused(spaces: Spaces, obs: object, text: str) -> None:
    with pytest.raises(BadDataError, match=text):
        make(spaces)[0](obs)


@pytest.mark.parametrize("spaces", [PLAIN, NESTED])
def test_the_exported_policy_acts_the_same(tmp_path, spaces: Spaces) -> None:
    policy, state = make(spaces)
    path = export(tmp_path, spaces, spec(spaces, PPOConfig(hidden_sizes=(8,))).policy, state)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]
    session = onnxruntime.InferenceSession(path)
    generator = np.random.default_rng(0)
    fields = {
        part.name: generator.uniform(-1, 1, (6, *part.shape)).astype(part.dtype)
        if part.dtype == "float32"
        else generator.integers(1, 4, 6)
        for part in spaces.obs_specs()
    }
    (action,) = session.run(["action"], fields)
    obs = fields["obs"] if "obs" in fields else {name.removeprefix("obs."): values for name, values in fields.items()}
    np.testing.assert_allclose(action, policy(obs), atol=1e-5)


WITHOUT_VALUE = {
    "squashed": (squashed_actor, PLAIN),
    "deterministic": (deterministic_actor, PLAIN),
    "values": (partial(q_network, dueling=True, atoms=1, low=0.0, high=0.0), NESTED),
    "atoms": (partial(q_network, dueling=False, atoms=11, low=-5.0, high=5.0), NESTED),
}


@pytest.mark.parametrize("name", WITHOUT_VALUE)
def test_policies_without_a_value_act_and_are_exported_the_same(tmp_path, name: str) -> None:
    build, spaces = WITHOUT_VALUE[name]
    graph = build(spaces, Body("auto", (16,), "relu"), name)
    actor = graph.actor.initial(np.random.default_rng(0))
    state = {"actor": actor + np.random.default_rng(1).normal(0.0, 0.3, actor.shape).astype(np.float32)}
    policy = RunPolicy(spaces, graph, native.build(graph), state, "made here")
    generator = np.random.default_rng(2)
    if spaces is PLAIN:
        fields = {"obs": generator.uniform(-1, 1, (50, 3)).astype(np.float32)}
        acted = policy(fields["obs"])
    else:
        fields = {"obs.dial": generator.uniform(-1, 1, (50, 2)).astype(np.float32), "obs.which": np.arange(50) % 3 + 1}
        acted = policy({field.removeprefix("obs."): values for field, values in fields.items()})
    assert len(np.unique(acted)) > 1
    session = onnxruntime.InferenceSession(export(tmp_path, spaces, graph, state))
    assert [output.name for output in session.get_outputs()] == ["action", *graph.head.gives]
    np.testing.assert_allclose(session.run(["action"], fields)[0], acted, atol=1e-5)


@pytest.mark.parametrize(
    ("spaces", "obs", "text"),
    [
        (PLAIN, ["a", "b", "c"], "obs is .* which is no array of numbers"),
        (PLAIN, ["1", "2", "3"], "obs is .* which is no array of numbers"),
        (PLAIN, [None, 1.0, 2.0], "obs is .* which is no array of numbers"),
        (PLAIN, [[1.0], [1.0, 2.0]], "obs is .* which is no array of numbers"),
        (PLAIN, None, "obs is None, which is no array of numbers"),
        (PLAIN, [0.0, float("nan"), 0.0], "obs holds NaN or infinity"),
        (PLAIN, [0.0, 1e60, 0.0], "obs holds NaN or infinity"),
        (NESTED, {"dial": [0.0, 0.0], "which": 0}, r"obs.which is \[0\], outside its space 1 .. 3"),
        (NESTED, {"dial": [0.0, 0.0], "which": 4}, "outside its space 1 .. 3"),
        (NESTED, {"dial": [0.0, 0.0], "which": 1.5}, "obs.which is 1.5, which does not fit int64"),
        (NESTED, {"dial": [0.0, 0.0], "which": "2"}, "obs.which is 2, which is no array of numbers"),
        (NESTED, {"dial": np.zeros((2, 2)), "which": [1, 2, 3]}, r"batches of different sizes: \[2, 3\]"),
        (NESTED, {"dial": np.zeros((2, 2)), "which": 1}, r"batches of different sizes: \[1, 2\]"),
    ],
)
def test_what_no_policy_can_look_at_is_one_clear_line(spaces: Spaces, obs: object, text: str) -> None:
    policy, _ = make(spaces)
    with pytest.raises(BadDataError, match=text) as caught:
        policy(obs)
    assert "\n" not in str(caught.value)


def test_numbers_that_no_float32_can_hold_are_refused_in_a_field_of_float64_too() -> None:
    wide = Spaces((("obs", Box((3,), "float64", (), ())),), PLAIN.action)
    policy, _ = make(wide)
    policy([0.0, 1e38, 0.0])
    with pytest.raises(BadDataError, match="obs holds NaN or infinity"):
        policy([0.0, 1e39, 0.0])


@pytest.mark.parametrize(
    ("spaces", "obs"), [(PLAIN, np.zeros((0, 3))), (NESTED, {"dial": np.zeros((0, 2)), "which": []})]
)
def test_a_batch_of_none_gives_no_action(spaces: Spaces, obs: object) -> None:
    policy, _ = make(spaces)
    assert len(policy(obs)) == 0


def test_a_policy_of_nothing_is_one_line():
    with pytest.raises(ConfigError, match="run is None; wanted the folder of a run or of a bundle"):
        penstock.load_policy(None)
