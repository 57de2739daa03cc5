"""Action masks: found, checked and stored as the environment gives them, by scalar and vector sources."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from penstock.envs.masks import mask_rows
from penstock.envs.sources import open_source, probe
from penstock.errors import BadDataError, SpaceError
from penstock.types import Box, Discrete, Spaces
from tests.planned import prepared


class MaskedEnv(gymnasium.Env):
    """Episodes of three steps. In step t the mask forbids choice t; the last observation's mask forbids everything."""

    observation_space = spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observed()

    def step(self, action):
        self.t += 1
        obs, info = self.observed()
        return obs, 0.0, False, self.t == 3, info

    def mask(self):
        return np.zeros(4, np.int8) if self.t == 3 else (np.arange(4) != self.t).astype(np.int8)

    def observed(self):
        return np.array([self.t], np.float32), {"action_mask": self.mask(), "other": self.t}


class MaskedDictEnv(MaskedEnv):
    """The same with the mask in the observation."""

    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(4), "t": MaskedEnv.observation_space})

    def observed(self):
        obs, _ = super().observed()
        return {"action_mask": self.mask(), "t": obs}, {}


ENVS = {"action_mask": MaskedEnv, "obs.action_mask": MaskedDictEnv}
FIRST, SECOND, THIRD, NONE = [0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]


@pytest.mark.parametrize("field", ENVS)
def test_a_mask_is_found_where_the_environment_gives_it(field):
    profile = probe(ENVS[field], masks=True)
    assert (profile.spaces.mask, profile.unused_mask) == (field, None)
    assert dict(profile.spaces.obs)[field] == Box((4,), "uint8", (0.0,), (1.0,))
    assert [name for name, _ in profile.spaces.seen] == ["obs" if field == "action_mask" else "obs.t"]


class LateEnv(MaskedEnv):
    """Gives its mask from the second step on."""

    def observed(self):
        obs, info = super().observed()
        return obs, info if self.t >= 2 else {}


class BoxEnv(MaskedEnv):
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


LATE = (
    r"info of lane 4 of .* has an action_mask, but that of the first reset had none, or None, so it is not used: give "
    "it in every info from the first reset on"
)


def test_a_mask_that_comes_after_the_first_reset_is_named_at_its_first_sight():
    source = open_source(LateEnv, False, 2, first_lane=4, masks=True)
    source.reset([0, 0])
    source.step(np.zeros(2, np.int64), lambda _: 0)
    with pytest.raises(BadDataError, match=LATE):
        source.step(np.zeros(2, np.int64), lambda _: 0)


class Unmasked(MaskedEnv):
    """Gives no mask."""

    def observed(self):
        return super().observed()[0], {"other": self.t}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_a_late_mask_of_a_vector_environment_names_its_lane(mode):
    def make(num_envs):
        return SyncVectorEnv([Unmasked] * (num_envs - 1) + [LateEnv], autoreset_mode=mode)

    assert probe(make, masks=True).spaces.mask is None
    source = open_source(make, False, 3, first_lane=2, masks=True)
    source.reset([0, 0, 0])
    source.step(np.zeros(3, np.int64), lambda _: 0)
    with pytest.raises(BadDataError, match=LATE):
        source.step(np.zeros(3, np.int64), lambda _: 0)


@pytest.mark.parametrize("vector", [False, True])
def test_a_mask_in_the_first_reset_of_a_lane_is_late_if_the_one_before_the_run_had_none(vector):
    def make(num_envs):
        return SyncVectorEnv([MaskedEnv] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    source = open_source(make if vector else MaskedEnv, False, 2, first_lane=4, masks=True)
    with pytest.raises(BadDataError, match=LATE):
        source.reset([0, 0])


@pytest.mark.parametrize("vector", [False, True])
def test_a_mask_that_no_algorithm_uses_may_come_at_any_time(vector):
    def make(num_envs):
        return SyncVectorEnv([MaskedEnv] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    source = open_source(make if vector else MaskedEnv, False, 2)
    source.reset([0, 0])
    for _ in range(4):
        source.step(np.zeros(2, np.int64), lambda _: 0)


def test_a_mask_beside_actions_without_choices_is_found_and_not_used():
    profile = probe(BoxEnv, masks=True)
    assert (profile.spaces.mask, profile.unused_mask) == (None, "action_mask")
    (told,) = prepared(env=f"{__name__}:BoxEnv").remarks
    assert told.endswith("gives an action mask, but its actions have no choices: ppo does not see it")


@pytest.mark.parametrize("field", ENVS)
def test_without_masks_an_environment_is_what_it_was(field):
    profile = probe(ENVS[field])
    assert (profile.spaces.mask, profile.unused_mask) == (None, field)
    expected = {"action_mask": ["obs"], "obs.action_mask": ["obs.action_mask", "obs.t"]}
    assert [name for name, _ in profile.spaces.obs] == expected[field]


def test_a_mask_in_the_observation_may_be_left_out():
    assert probe(MaskedDictEnv, masks=True, ignore_obs=["action_mask"]).spaces.mask is None


@pytest.mark.parametrize("field", ENVS)
def test_each_row_has_the_mask_of_its_observation(field):
    lanes = open_source(ENVS[field], False, 2, mask=field)
    assert lanes.reset([0, 1])[field].tolist() == [FIRST, FIRST]
    seen = [copy.deepcopy(lanes.step(np.array([3, 3]), lambda lane: lane)) for _ in range(3)]
    assert [result.obs[field][1].tolist() for result in seen] == [SECOND, THIRD, FIRST]
    assert seen[2].final_obs[field][1].tolist() == NONE
    assert seen[2].obs[field].dtype == np.uint8
    # A restored episode has its masks again.
    assert lanes.begin(0, 5)[field][0].tolist() == FIRST
    replayed = [one.obs[field][0].tolist() for one in lanes.replay({0: np.array([3, 3])})]
    assert replayed == [SECOND, THIRD]


@pytest.mark.parametrize("field", ENVS)
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_vector_environments_give_masks_in_every_mode(field, mode):
    def make(num_envs):
        return SyncVectorEnv([ENVS[field]] * num_envs, autoreset_mode=mode)

    assert probe(make, masks=True).spaces.mask == field
    lanes = open_source(make, False, 2, mask=field)
    assert lanes.reset([0, 1])[field].tolist() == [FIRST, FIRST]
    seen = [copy.deepcopy(lanes.step(np.array([3, 3]), lambda lane: lane)) for _ in range(4)]
    masks = [result.obs[field][1].tolist() for result in seen]
    if mode == AutoresetMode.NEXT_STEP:
        assert masks == [SECOND, THIRD, NONE, FIRST]
    else:
        assert masks == [SECOND, THIRD, FIRST, SECOND]


class CutMaskedEnv(MaskedEnv):
    """What is possible in the last observation still counts: the episode was cut off there."""

    def mask(self):
        return np.array([0, 0, 0, 1], np.int8) if self.t == 3 else super().mask()


class CutMaskedDictEnv(CutMaskedEnv, MaskedDictEnv):
    """The same with the mask in the observation."""


@pytest.mark.parametrize(("field", "env"), [("action_mask", CutMaskedEnv), ("obs.action_mask", CutMaskedDictEnv)])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_the_last_observation_of_an_episode_that_was_cut_off_has_its_mask(field, env, mode):
    """The best action there is looked for among the possible ones."""

    def make(num_envs):
        return SyncVectorEnv([env] * num_envs, autoreset_mode=mode)

    lanes = open_source(make, False, 2, mask=field)
    lanes.reset([0, 1])
    seen = [copy.deepcopy(lanes.step(np.array([3, 3]), lambda lane: lane)) for _ in range(3)]
    assert seen[2].truncated.all()
    assert seen[2].final_obs[field].tolist() == [[0, 0, 0, 1]] * 2


class Custom(MaskedEnv):
    """Gives the masks that it was told, one after the other."""

    def __init__(self, *masks, action_space=MaskedEnv.action_space):
        self.masks = list(masks)
        self.action_space = action_space

    def observed(self):
        mask = self.masks.pop(0) if len(self.masks) > 1 else self.masks[0]
        return np.zeros(1, np.float32), {} if mask is None else {"action_mask": mask}


def steps(*masks, **settings):
    """The masks of a first observation and of all steps."""
    lanes = open_source(lambda: Custom(*masks, **settings), False, 1, first_lane=7, mask="action_mask")
    found = [lanes.reset([0])["action_mask"][0].tolist()]
    for _ in masks[1:]:
        found.append(lanes.step(np.zeros((1, 2), np.int64)[:, 0], lambda lane: lane).obs["action_mask"][0].tolist())
    return found


GOOD = np.ones(4, np.int8)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (np.zeros(4), r"action_mask of lane 7 of .* forbids every choice: at least one must be possible$"),
        (np.ones((2, 2)), r"lane 7 of .* has the shape \[2, 2\]; the mask of a Discrete has one axis: \[4\]$"),
        ([[1, 0], [1, 1]], r"lane 7 of .* has the shape \[2, 2\]; the mask of a Discrete has one axis: \[4\]$"),
        ([[1, 0], [1]], "is no array: its rows have different lengths"),
        (np.ones(3), r"action_mask of lane 7 of .* has 3 elements, but the actions have 4 choices$"),
        (np.array([1, 1, 2, 1]), r"action_mask of lane 7 .* is \[1 1 2 1\]; a mask holds 1 where a choice is possible"),
        (np.array([0.0, 0.0, -np.inf, 0.0]), "a mask holds 1 where a choice is possible, else 0"),
        (np.array(["a"] * 4), "a mask holds 1 where"),
        ("1101", r"action_mask of lane 7 .* is '1101'; a mask holds 1 where a choice is possible, else 0$"),
        (None, r"info of lane 7 of .* has no action_mask, but the first one had$"),
    ],
)
def test_a_mask_that_cannot_be_used_names_its_lane(bad, text):
    with pytest.raises(BadDataError, match=text):
        steps(GOOD, bad)
    if bad is not None:
        with pytest.raises(BadDataError, match=text):
            steps(bad)


def test_a_vector_environment_names_the_lane_too():
    def make(num_envs):
        return SyncVectorEnv([lambda: Custom(GOOD)] * (num_envs - 1) + [lambda: Custom(GOOD, np.zeros(4))])

    lanes = open_source(make, False, 3, first_lane=4, mask="action_mask")
    lanes.reset([0, 1, 2])
    with pytest.raises(BadDataError, match=r"action_mask of lane 6 of .* forbids every choice"):
        lanes.step(np.zeros(3, np.int64), lambda lane: lane)


def test_a_mask_of_another_width_is_refused_before_a_run():
    with pytest.raises(SpaceError, match=r"^action_mask in the info of .* has 3 elements, but the actions have 4 choi"):
        probe(lambda: Custom(np.ones(3)), masks=True)

    class Wide(MaskedDictEnv):
        action_space = spaces.Discrete(5)

    with pytest.raises(SpaceError, match=r"^obs.action_mask of Wide has 4 elements, but its actions have 5 choices$"):
        probe(Wide, masks=True)

    class Square(MaskedDictEnv):
        observation_space = spaces.Dict({"action_mask": spaces.MultiBinary((2, 2)), "t": MaskedEnv.observation_space})

        def mask(self):
            return super().mask().reshape(2, 2)

    with pytest.raises(SpaceError, match=r"^obs.action_mask of Square has the shape \[2, 2\]; .* has one axis: \[4\]$"):
        probe(Square, masks=True)
    assert probe(Wide).spaces.mask is None, "an algorithm without masks does not look at it"


def test_a_mask_alone_is_no_observation():
    class Alone(MaskedDictEnv):
        observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(4)})

    with pytest.raises(SpaceError, match="the observation holds nothing but an action mask"):
        probe(Alone, masks=True)


def test_actions_without_choices_have_no_mask():
    assert probe(lambda: Custom(GOOD, action_space=spaces.Box(-1, 1, (2,))), masks=True).spaces.mask is None


SEVERAL = spaces.MultiDiscrete([2, 3])
PARTS = spaces.Dict({"kind": spaces.Discrete(2), "at": spaces.Box(-1, 1, (2,)), "more": spaces.Tuple((SEVERAL,))})


@pytest.mark.parametrize(
    ("action_space", "mask", "expected"),
    [
        (SEVERAL, np.array([1, 0, 0, 1, 1]), [1, 0, 0, 1, 1]),
        (SEVERAL, (np.array([1, 0]), np.array([False, True, True])), [1, 0, 0, 1, 1]),
        (spaces.MultiBinary(2), np.array([1, 0, 1, 1]), [1, 0, 1, 1]),
        (spaces.MultiDiscrete([2, 2]), np.array([[1, 0], [1, 1]]), [1, 0, 1, 1]),
        # A Dict is sorted by key: at, kind, more.
        (PARTS, np.array([0, 1, 1, 0, 0, 1, 1]), [0, 1, 1, 0, 0, 1, 1]),
        (PARTS, {"kind": np.array([0, 1]), "more": (np.array([1, 0, 0, 1, 1]),)}, [0, 1, 1, 0, 0, 1, 1]),
        (PARTS, {"kind": np.array([0, 1]), "more": None, "at": None}, [0, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_a_mask_has_the_choices_of_all_elements_one_after_the_other(action_space, mask, expected):
    lanes = open_source(lambda: Custom(mask, action_space=action_space), False, 1, mask="action_mask")
    assert lanes.reset([0])["action_mask"].tolist() == [expected]


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (np.array([1, 1, 0, 0, 0]), "forbids every choice of element 1: at least one must be possible"),
        ((np.array([1, 1]),), "has 2 elements, but the actions have 5 choices"),
    ],
)
def test_each_element_needs_a_choice(mask, text):
    with pytest.raises(BadDataError, match=text):
        steps(mask, action_space=SEVERAL)


def test_the_mask_of_a_discrete_part_has_one_axis():
    with pytest.raises(BadDataError, match=r"has the shape \[1, 2\]; the mask of a Discrete has one axis: \[2\]$"):
        steps({"kind": np.ones((1, 2)), "more": None}, action_space=PARTS)


def test_a_batch_that_a_caller_gives_says_what_a_mask_is():
    text = "given is no batch of 4 masks; a mask is 3 numbers, 1 where a choice is possible, else 0$"
    for given in ("101", np.ones((3, 3))):
        with pytest.raises(BadDataError, match=text):
            mask_rows(Discrete(3), given, 4, "given")


def test_a_mask_in_the_observation_is_used_where_info_has_another():
    class Both(MaskedDictEnv):
        def observed(self):
            obs, _ = super().observed()
            return obs, {"action_mask": np.ones(4, np.int8)}

    assert probe(Both, masks=True).spaces.mask == "obs.action_mask"
    source = open_source(Both, False, 1, mask="obs.action_mask")
    assert source.reset([0])["obs.action_mask"].tolist() == [FIRST]


def test_a_mask_after_none_is_late():
    source = open_source(lambda: Custom(None, GOOD), False, 1, masks=True)
    source.reset([0])
    with pytest.raises(BadDataError, match="had none, or None, so it is not used"):
        source.step(np.zeros(1, np.int64), lambda _: 0)


def test_a_part_of_a_mask_that_is_missing_is_named():
    with pytest.raises(BadDataError, match=r"action_mask of lane 7 of .* has no part more\.0: give None there"):
        steps({"kind": np.ones(2)}, action_space=PARTS)


def test_spaces_without_a_mask_show_all_fields():
    spaces_of_one = Spaces((("obs", Box((1,), "float32", (0.0,), (1.0,))),), Box((1,), "float32", (0.0,), (1.0,)))
    assert spaces_of_one.seen == spaces_of_one.obs
