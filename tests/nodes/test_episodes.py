"""Which episodes are played, which count, and which of them a NaN spoils."""

from collections.abc import Iterable

import gymnasium
import numpy as np
import pytest

from penstock.config.episode_metrics import episode_metrics
from penstock.envs.sources import open_source
from penstock.errors import BadDataError
from penstock.nodes.evaluation.episodes import Episode, PlaySettings, play
from penstock.nodes.evaluation.evaluator import summary
from penstock.policies import Deterministic, Network, PolicyGraph
from penstock.types import Array, BackendSpec
from tests.environments import ClockEnv, ClockVectorEnv
from tests.team_environments import Lives


class ScriptedEnv(gymnasium.Env):
    """The number of an episode is its seed less 100. Episode n has n + 1 steps of reward 1.

    ``spoilt_at`` is episode -> step: the reward of that step is NaN. At step 0 the first observation is NaN.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    spoilt_at: dict[int, int] = {}  # noqa: RUF012 - set by tests

    def reset(self, *, seed=None, options=None):
        self.number, self.steps = seed - 100, 0
        return np.full(1, np.nan if self.spoilt_at.get(self.number) == 0 else 0.0, np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = np.nan if self.spoilt_at.get(self.number) == self.steps else 1.0
        return np.zeros(1, np.float32), reward, self.steps > self.number, False, {}


class NeverLate(Lives):
    """Its agent ``late`` never comes."""

    BORN = {**Lives.BORN, "late": 99}  # noqa: RUF012
    DIES = {**Lives.DIES, "late": 99}  # noqa: RUF012


class FirstAction:
    def load(self, published) -> None: ...

    def act(self, inputs, out: dict[str, Array]) -> None:
        out["action"][...] = 0


def played(
    lanes: int, numbers: Iterable[int], *, bad_numbers="skip", env=ScriptedEnv, keeps=False, metrics=()
) -> list[Episode]:
    source, left = open_source(env, False, lanes), iter(numbers)
    settings = PlaySettings(
        env="Scripted",
        vector=False,
        ignore_obs=(),
        spaces=source.spaces,
        policy=PolicyGraph((), Network("actor", ()), None, Deterministic(1), gives_value=False),
        backend=BackendSpec(f"{__name__}:FirstAction", ()),
        lanes=lanes,
        seed=0,
        bad_numbers=bad_numbers,
        work_limit_s=10.0,
        episode_metrics=metrics,
    )
    playing = play(
        settings,
        source,
        FirstAction(),
        seed_of=lambda number: number + 100,
        next_number=lambda lane: next(left, None),
        keeps=keeps,
    )
    return sorted((episode for episode in playing if episode is not None), key=lambda episode: episode.number)


def sums(found: list[Episode]) -> list[tuple[int, float, int, bool]]:
    """Number, return, length of each episode, and whether it is spoilt."""
    return [(episode.number, episode.episode_return, episode.length, episode.spoilt) for episode in found]


@pytest.fixture(autouse=True)
def _sound(monkeypatch) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {})


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_each_episode_that_is_begun_is_played_once_whatever_the_lanes(lanes: int) -> None:
    assert sums(played(lanes, range(4))) == [
        (0, 1.0, 1, False),
        (1, 2.0, 2, False),
        (2, 3.0, 3, False),
        (3, 4.0, 4, False),
    ]


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_nan_spoils_its_own_episode_and_no_other(monkeypatch, lanes: int, step: int) -> None:
    # In episode 2: the first observation, the reward of a step, the reward of the last step.
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {2: step})
    others = [(0, 1.0, 1, False), (1, 2.0, 2, False), (3, 4.0, 4, False)]
    assert sums(played(lanes, range(4))) == sorted([*others, (2, 0.0, 0, True)])


def test_spoilt_episodes_in_a_row_are_each_told(monkeypatch) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {0: 1, 1: 0, 2: 0})
    assert sums(played(1, range(4))) == [(0, 0.0, 0, True), (1, 0.0, 0, True), (2, 0.0, 0, True), (3, 4.0, 4, False)]


def test_an_episode_that_begins_spoilt_after_a_skip_in_the_middle_of_another_is_told(monkeypatch) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {3: 1, 4: 0})
    sound = [(0, 1.0, 1, False), (1, 2.0, 2, False), (2, 3.0, 3, False), (5, 6.0, 6, False)]
    assert sums(played(1, range(6))) == sorted([*sound, (3, 0.0, 0, True), (4, 0.0, 0, True)])


def test_a_nan_is_refused_where_it_is_not_skipped(monkeypatch) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {1: 2})
    with pytest.raises(BadDataError, match="evaluation: reward of lane 0 of Scripted is nan at step 1 of its episode"):
        played(1, range(4), bad_numbers="stop")


def test_a_nan_in_an_episode_that_does_not_count_disturbs_nobody(monkeypatch) -> None:
    # A lane without an episode goes on with the seed of episode 0.
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {0: 1})
    assert sums(played(2, [3], bad_numbers="stop")) == [(3, 4.0, 4, False)]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_lanes_that_one_call_steps_play_each_episode_once(mode: str) -> None:
    def clocks(num_envs: int) -> ClockVectorEnv:
        return ClockVectorEnv(num_envs, mode, limit=3)

    # Lane i is cut after 3 + i steps.
    found = played(2, range(5), env=clocks)
    assert [episode.number for episode in found] == [0, 1, 2, 3, 4]
    assert {(episode.episode_return, episode.length) for episode in found} == {(3.0, 3), (4.0, 4)}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_episode_of_an_agent_that_never_comes_is_played_by_others(count: int) -> None:
    found = played(3, range(count), env=f"pettingzoo:{__name__}:NeverLate")
    assert [episode.number for episode in found] == list(range(count))
    assert {episode.length for episode in found} <= {2, 5}


def test_an_agent_that_comes_late_plays_its_own_episodes() -> None:
    """Lane 2 has an episode from the beginning, and plays it once it comes, though the others have none left."""
    found = played(3, range(3), env="pettingzoo:tests.team_environments:Lives")
    assert [(episode.number, episode.length) for episode in found] == [(0, 2), (1, 5), (2, 2)]
    # Each lane has ended its first episode by the time the environment begins its second one.
    found = played(3, range(6), env="pettingzoo:tests.team_environments:Lives")
    assert [episode.number for episode in found] == list(range(6))
    assert sorted(episode.length for episode in found) == [2, 2, 2, 2, 5, 5]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_kept_episode_holds_its_own_rows_up_to_its_last_observation(mode: str) -> None:
    def clocks(num_envs: int) -> ClockVectorEnv:
        return ClockVectorEnv(num_envs, mode, limit=3)

    for episode in played(2, range(5), env=clocks, keeps=True):
        kept, steps = episode.kept, episode.length
        assert kept is not None
        # The clock begins below one of its ticks and counts the steps of its episode.
        ticks = kept.obs["obs"][:, 0] * ClockEnv.LIMIT
        np.testing.assert_allclose(ticks, ticks[0] % 1.0 + np.arange(steps + 1), rtol=1e-5)
        assert kept.reward.tolist() == [1.0] * steps
        assert len(kept.action) == steps
        assert (kept.terminated, kept.vanished) == (False, False)


def test_nothing_of_a_spoilt_episode_is_kept_in_another(monkeypatch) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {1: 2, 2: 0})
    found = played(1, range(4), keeps=True)
    assert [episode.spoilt for episode in found] == [False, True, True, False]
    lengths = [None if episode.kept is None else len(episode.kept.reward) for episode in found]
    assert lengths == [1, None, None, 4]
    assert all(episode.kept is None or episode.kept.terminated for episode in found)


class TellingEnv(ScriptedEnv):
    """Its info tells the number of its episode, and of each odd one that it was won."""

    def step(self, action):
        *others, _ = super().step(action)
        return *others, {"number": self.number, **({"won": True} if self.number % 2 else {})}


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_each_episode_has_its_own_metrics_and_a_spoilt_one_has_none(monkeypatch, lanes: int) -> None:
    monkeypatch.setattr(ScriptedEnv, "spoilt_at", {2: 1})
    found = played(lanes, range(4), env=TellingEnv, metrics=("number", "won"))
    zero, one, two, three = (episode.metrics for episode in found)
    assert (one, two, three) == ((1.0, 1.0), (), (3.0, 1.0))
    np.testing.assert_array_equal(zero, (0.0, np.nan))
    metrics = episode_metrics(("number", "won", "number:max"))
    assert summary([found[0], found[1], found[3]], ("number", "won"), metrics) == {
        "eval/return_mean": 7 / 3,
        "eval/return_std": pytest.approx(np.std([1.0, 2.0, 4.0])),
        "eval/length_mean": 7 / 3,
        "eval/episodes": 3.0,
        "eval/episode/number": 4 / 3,
        "eval/episode/won": 1.0,
        "eval/episode/number:max": 3.0,
    }
