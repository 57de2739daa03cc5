"""Stacks of frames: how an environment declares them, and a source that hands out only the newest frames."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation, RecordEpisodeStatistics, TimeLimit, TransformObservation

from penstock.envs.sources import open_source
from penstock.envs.stacks import newest_frames, stack_of
from penstock.errors import BadDataError, EnvError
from penstock.types import Stack
from tests.environments import DictEnv, FilmEnv, make_dark_film, make_film, make_many_films


def test_gymnasiums_wrapper_says_it() -> None:
    assert stack_of(make_film()) == Stack(4, "first")
    assert stack_of(make_dark_film()) == Stack(4, "zero")
    assert stack_of(RecordEpisodeStatistics(TimeLimit(make_film(), 5))) == Stack(4, "first")
    assert stack_of(FilmEnv()) is None
    # As an environment of the older API may have them.
    assert stack_of(SimpleNamespace(metadata=["human"])) is None
    assert stack_of(FrameStackObservation(FilmEnv(), 1)) is None
    bright = FrameStackObservation(FilmEnv(), 4, padding_type=np.full(6, 255, np.uint8))
    assert stack_of(bright) is None
    # What lies outside may have made anything of the stack.
    turned = TransformObservation(make_film(), lambda obs: obs[::-1], make_film().observation_space)
    assert stack_of(turned) is None


def test_metadata_say_it() -> None:
    assert stack_of(make_many_films(2)) == Stack(4, "first")
    env = FilmEnv()
    for said in ({"frames": 1, "padding": "zero"}, {"frames": 4}, {"frames": 4, "padding": "last"}, 4):
        env.metadata = {"frame_stack": said}
        with pytest.raises(EnvError, match=r'metadata\["frame_stack"\] is .*; expected'):
            stack_of(env)


def test_of_a_dict_every_field_is_one() -> None:
    spaces = open_source(lambda: FrameStackObservation(DictEnv(), 3), vector=False, num_lanes=1).spaces
    assert spaces.stacks() == dict.fromkeys([name for name, _ in spaces.obs], Stack(3, "first"))
    whole, newest = spaces.obs_specs(), spaces.newest().obs_specs()
    assert [spec.shape[1:] for spec in whole] == [spec.shape for spec in newest]
    assert spaces.newest().stacks() == {}


@pytest.mark.parametrize("make", [make_film, make_dark_film, make_many_films])
def test_the_newest_frames_are_handed_out_and_whole_observations_stand_beside(make) -> None:
    whole = open_source(make, vector=False, num_lanes=3, seed=1)
    parted = open_source(make, vector=False, num_lanes=3, seed=1)
    stacks = {"obs": np.zeros((3, 4, 6), np.uint8)}
    source = newest_frames(parted, stacks, "film", 0)
    assert (source.num_lanes, source.same_step, source.restorable) == (3, parted.same_step, parted.restorable)
    assert source.spaces.obs_specs()[0].shape == (6,)
    np.testing.assert_array_equal(source.reset([1, 2, 3])["obs"], whole.reset([1, 2, 3])["obs"][:, -1])
    ended, random = 0, np.random.default_rng(0)
    for step in range(60):
        action = random.integers(0, 2, 3)
        expected, found = (lanes.step(action, lambda lane, step=step: 7 * step + lane) for lanes in (whole, source))
        np.testing.assert_array_equal(found.obs["obs"], expected.obs["obs"][:, -1])
        np.testing.assert_array_equal(stacks["obs"], expected.obs["obs"])
        for name in ("reward", "terminated", "truncated", "reset"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        cut = found.truncated & ~found.terminated
        ended += int(cut.sum())
        if source.same_step:
            np.testing.assert_array_equal(found.final_obs["obs"][cut], expected.final_obs["obs"][cut, -1])
    assert ended
    source.close()
    whole.close()


def test_a_restored_lane_has_its_stack_again() -> None:
    stacks = {"obs": np.zeros((2, 4, 6), np.uint8)}
    source = newest_frames(open_source(make_film, vector=False, num_lanes=2), stacks, "film", 0)
    source.reset([1, 2])
    begun = source.begin(1, 2)
    assert begun is not None
    frames = [begun["obs"][1].copy()]
    frames += [one.obs["obs"][1].copy() for one in source.replay({1: np.array([1, 0])})]
    np.testing.assert_array_equal(stacks["obs"][1], [frames[0], *frames])
    many = newest_frames(open_source(make_many_films, vector=False, num_lanes=2), stacks, "film", 0)
    assert many.begin(0, 1) is None


def test_without_stacks_it_is_the_source_itself() -> None:
    source = open_source(FilmEnv, vector=False, num_lanes=1)
    assert newest_frames(source, {}, "film", 0) is source


class Liar(gymnasium.Env):
    """Declares stacks of three frames, but shows something else at a step or at an episode's begin."""

    metadata = {"frame_stack": {"frames": 3, "padding": "first"}}  # noqa: RUF012
    observation_space = Box(0.0, 100.0, (3, 1), np.float32)
    action_space = Discrete(2)

    def __init__(self, observations) -> None:
        self.observations = [np.array(frames, np.float32)[:, None] for frames in observations]

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observations[0], {}

    def step(self, action):
        self.steps += 1
        cut = self.steps == len(self.observations) - 1
        return self.observations[self.steps], 0.0, False, cut, {}


@pytest.mark.parametrize(
    "observations",
    [
        [[1, 1, 2]],
        [[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 3]],
        [[1, 1, 1], [1, 1, 2], [1, 1, 3]],
    ],
    ids=["at its beginning", "at a step", "at its end"],
)
def test_what_is_no_stack_is_refused_by_its_name(observations) -> None:
    stacks = {"obs": np.zeros((1, 3, 1), np.float32)}
    source = newest_frames(
        open_source(lambda: Liar(observations), vector=False, num_lanes=1, first_lane=4), stacks, "liar", 4
    )
    with pytest.raises(BadDataError, match="obs of lane 4 of liar is not the stack of 3 frames, padded by first"):  # noqa: PT012
        source.reset([0])
        for _ in observations[1:]:
            source.step(np.array([0]), lambda lane: lane)


def test_a_frame_that_is_no_number_is_left_to_who_stores_it() -> None:
    nan = float("nan")
    stacks = {"obs": np.zeros((1, 3, 1), np.float32)}
    lie = [[1, 1, 1], [1, 1, nan], [1, nan, 2], [nan, 2, 3]]
    source = newest_frames(open_source(lambda: Liar(lie), vector=False, num_lanes=1), stacks, "liar", 0)
    source.reset([0])
    seen = [float(source.step(np.array([0]), lambda lane: lane).obs["obs"][0, 0]) for _ in range(2)]
    assert np.isnan(seen[0])
    assert seen[1] == 2
