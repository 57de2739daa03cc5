"""Spaces as plain data."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import registry

from penstock.envs.fields import field_paths, one_line
from penstock.envs.spaces import check_same_arrays, spaces_of
from penstock.errors import SpaceError
from penstock.types import Box, Composite, Discrete, MultiDiscrete

TWO = spaces.Discrete(2)
PAIR = Box((2,), "float32", (-1.0,), (1.0,))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 2, (3,), np.float32), Box((3,), "float32", (-1.0,), (2.0,))),
        (spaces.Box(np.array([0, -1.5]), np.array([1, 1]), dtype=np.float64), Box((2,), "float64", (0, -1.5), (1,))),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), Box((84, 84, 4), "uint8", (0,), (255,))),
        (spaces.Box(-np.inf, np.inf, (), np.float32), Box((), "float32", (-np.inf,), (np.inf,))),
        (spaces.Discrete(5), Discrete(5)),
        (spaces.Discrete(5, start=-2), Discrete(5, -2)),
        (spaces.MultiBinary(4), Box((4,), "int8", (0,), (1,))),
        (spaces.MultiBinary([2, 3]), Box((2, 3), "int8", (0,), (1,))),
        (spaces.MultiDiscrete([3, 5]), Box((2,), "int64", (0,), (2, 4))),
        (spaces.MultiDiscrete([3, 3], start=[1, 2]), Box((2,), "int64", (1, 2), (3, 4))),
    ],
)
def test_observations(space, expected):
    assert spaces_of(space, TWO).obs == (("obs", expected),)
    spec = spaces_of(space, TWO).obs_specs()[0]
    assert (spec.shape, spec.dtype) == (space.shape, space.dtype)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3, start=1), Discrete(3, 1)),
        (spaces.Box(-2, 2, (1,)), Box((1,), "float32", (-2,), (2,))),
        (
            spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32)),
            Box((2,), "float32", (-1, 0), (1, np.inf)),
        ),
        (spaces.MultiDiscrete([3, 5]), MultiDiscrete((3, 5), (0, 0), (2,), "int64")),
        (spaces.MultiDiscrete([[3], [5]], np.int32, start=[[1], [2]]), MultiDiscrete((3, 5), (1, 2), (2, 1), "int32")),
        (spaces.MultiBinary(3), MultiDiscrete((2, 2, 2), (0, 0, 0), (3,), "int8")),
        (spaces.MultiBinary([2, 1]), MultiDiscrete((2, 2), (0, 0), (2, 1), "int8")),
        (spaces.Tuple((TWO, spaces.Box(-1, 1, (2,)))), Composite((((0,), Discrete(2)), ((1,), PAIR)))),
        (
            spaces.Dict({"kick": spaces.Dict({"power": spaces.Box(-1, 1, (2,))}), "by": spaces.Tuple((TWO,))}),
            Composite(((("by", 0), Discrete(2)), (("kick", "power"), PAIR))),
        ),
    ],
)
def test_actions(space, expected):
    assert spaces_of(TWO, space).action == expected


def test_half_numbers_are_stored_as_floats_that_kernels_read():
    half = spaces.Box(-2, 2, (3,), np.float16)
    assert spaces_of(half, half) == spaces_of(spaces.Box(-2, 2, (3,)), spaces.Box(-2, 2, (3,)))


def test_a_field_of_a_dict_may_have_an_empty_name():
    space = spaces.Dict({"": TWO, "b": TWO})
    assert [name for name, _ in spaces_of(space, TWO).obs] == ["obs.", "obs.b"]
    assert list(field_paths(space)) == ["obs.", "obs.b"]


def test_fields_of_dicts_and_tuples_are_sorted_by_name():
    inner = spaces.Tuple((TWO, spaces.Dict({"a": spaces.Box(0, 1, (2,))})))
    found = spaces_of(spaces.Dict({"m": spaces.Discrete(3), "b": inner}), TWO)
    assert found.obs == (
        ("obs.b.0", Discrete(2)),
        ("obs.b.1.a", Box((2,), "float32", (0.0,), (1.0,))),
        ("obs.m", Discrete(3)),
    )


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((spaces.Text(5), spaces.Sequence(TWO))),
        spaces.Text(5),
        spaces.Graph(TWO, None),
        object(),
        None,
    ],
)
def test_another_observation_is_refused(space):
    with pytest.raises(SpaceError, match=r"^observation space .* is not supported: an observation may be a Box"):
        spaces_of(space, TWO)


LISTED = "an action may be a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of those"


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Dict({"a": TWO, "b": spaces.Text(3)}), None])
def test_another_action_is_refused(space):
    with pytest.raises(SpaceError, match=rf"^action space .* is not supported: {LISTED}$"):
        spaces_of(TWO, space)


@pytest.mark.parametrize(
    ("space", "what"),
    [
        (spaces.Tuple(()), "has an empty part"),
        (spaces.Tuple((TWO, spaces.Dict({}))), "has an empty part"),
        (spaces.Dict({1: TWO}), "has a key that is no text"),
        (spaces.Dict({"a.0": TWO, "a": spaces.Tuple((TWO,))}), r"has two parts of one name: a\.0"),
    ],
)
def test_a_composite_action_that_cannot_be_named_is_refused(space, what):
    with pytest.raises(SpaceError, match=rf"^action space .* {what}"):
        spaces_of(TWO, space)


def test_an_empty_box_or_dict_is_refused():
    for space in (spaces.Box(0, 1, (0,)), spaces.Dict({})):
        with pytest.raises(SpaceError, match=r"is not supported|is empty"):
            spaces_of(space, TWO)


def test_a_message_is_one_line_of_bounded_length():
    with pytest.raises(SpaceError) as caught:
        spaces_of(spaces.Sequence(spaces.Box(-np.arange(50.0), np.arange(50.0), dtype=np.float64)), TWO)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert one_line("a\n  b" + "c" * 200, 10) == "a bcccc..."


def test_an_environment_with_other_arrays_than_the_run_is_refused():
    planned = spaces_of(spaces.Box(-1, 1, (3,)), TWO)
    check_same_arrays("game", spaces_of(spaces.Box(-2, 5, (3,)), TWO), planned)
    with pytest.raises(SpaceError, match=r"game differs on machine .*: obs float32 \[4\] instead of float32 \[3\];"):
        check_same_arrays("game", spaces_of(spaces.Box(-1, 1, (4,)), TWO), planned)
    with pytest.raises(SpaceError, match=r"action .* of \[5\] choices instead of .* of \[2\] choices"):
        check_same_arrays("game", spaces_of(spaces.Box(-1, 1, (3,)), spaces.Discrete(5)), planned)
    with pytest.raises(
        SpaceError, match=r": obs missing instead of float32 \[3\], obs\.a float32 \[3\] instead of none"
    ):
        check_same_arrays("game", spaces_of(spaces.Dict(a=spaces.Box(-1, 1, (3,))), TWO), planned)


def test_classic_control_is_supported():
    known = [spec for spec in registry.values() if "classic_control" in str(spec.entry_point)]
    assert len(known) >= 6
    for spec in known:
        env = spec.make()
        spaces_of(env.observation_space, env.action_space)
        env.close()
