"""Observation fields: their names, and which are left out."""

import pytest
from gymnasium import spaces

from penstock.envs.fields import field_paths, used_fields
from penstock.errors import ConfigError, SpaceError

TWO = spaces.Discrete(2)
GRID = spaces.Dict({"image": spaces.Box(0, 255, (7, 7, 3)), "direction": TWO, "mission": spaces.Text(9)})
NESTED = spaces.Tuple((TWO, spaces.Dict({"dials": spaces.Tuple((TWO, TWO)), "dialect": TWO})))


def test_a_field_is_named_by_its_keys_and_places():
    assert field_paths(NESTED) == {
        "obs.0": (0,),
        "obs.1.dialect": (1, "dialect"),
        "obs.1.dials.0": (1, "dials", 0),
        "obs.1.dials.1": (1, "dials", 1),
    }
    assert field_paths(TWO) == {"obs": ()}


@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        ((), ["obs.0", "obs.1.dialect", "obs.1.dials.0", "obs.1.dials.1"]),
        (("0", "1.dials.1"), ["obs.1.dialect", "obs.1.dials.0"]),
        (("1.dials",), ["obs.0", "obs.1.dialect"]),
        (("1",), ["obs.0"]),
    ],
)
def test_a_name_leaves_out_its_field_or_all_that_is_in_it(ignored, left):
    assert list(used_fields(NESTED, ignored)) == left


def test_a_field_that_is_no_array_of_numbers_is_refused_with_the_flag_that_leaves_it_out():
    why = r"^observation field mission, Text\(.*, is no array of numbers with a fixed shape; to leave it out: "
    with pytest.raises(SpaceError, match=why + "--ignore_obs mission$"):
        used_fields(GRID)
    with pytest.raises(SpaceError, match=why + "--ignore_obs image,mission$"):
        used_fields(GRID, ["image"])
    assert list(used_fields(GRID, ["mission"])) == ["obs.direction", "obs.image"]


def test_several_such_fields_are_named_together():
    space = spaces.Dict({"a": spaces.Text(2), "b c": spaces.Sequence(TWO), "d": TWO})
    with pytest.raises(SpaceError, match=r"fields a, Text.*, and b c, Seq.*; to leave them out: --ignore_obs 'a,b c'$"):
        used_fields(space)


@pytest.mark.parametrize(
    ("space", "ignored", "said"),
    [
        (GRID, ["misson"], r"--ignore_obs misson: the observation has no field misson; did you mean mission\?"),
        (GRID, ["qqq"], r"--ignore_obs qqq: .* no field qqq; its fields are direction, image, mission"),
        (GRID, ["direction", "image", "mission"], r"leaves nothing .*; keep at least one of direction, image$"),
        (TWO, ["a"], r"--ignore_obs a names fields of a Dict or Tuple, but the observation is Discrete\(2\)"),
    ],
)
def test_what_cannot_be_left_out(space, ignored, said):
    with pytest.raises(ConfigError, match=said):
        used_fields(space, ignored)


def test_two_fields_of_one_name_and_none_at_all_are_refused():
    with pytest.raises(SpaceError, match=r"has two fields of one name, a\.0:"):
        used_fields(spaces.Dict({"a.0": TWO, "a": spaces.Tuple((TWO,))}))
    with pytest.raises(SpaceError, match="is empty"):
        used_fields(spaces.Tuple(()))
