"""The tasks with hidden goals have the returns that they promise; what runs visit is counted alike for all lanes."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import exploration
from benchmarks.exploration import LADDER, ROWS, Explored, entries, kept, main, run
from benchmarks.hidden_goals import Chain, DeepSea, HiddenGoal, first_visits

pytestmark = pytest.mark.usefixtures("shared_templates")


def right_all_along(env: HiddenGoal) -> tuple[float, int]:
    """The return and the length of an episode that takes the right action in each state."""
    obs, _ = env.reset()
    total, steps, ended = 0.0, 0, False
    while not ended:
        obs, reward, ended, _, _ = env.step(env.right[int(obs.argmax())])
        total, steps = total + reward, steps + 1
    return total, steps


@pytest.mark.parametrize("task", [DeepSea, Chain])
def test_the_right_action_in_each_state_earns_the_best_return(task: type[DeepSea | Chain]) -> None:
    for layout in range(3):
        assert right_all_along(task(6, layout)) == (pytest.approx(task.BEST), 6)


def test_a_dive_that_goes_left_once_misses_the_goal() -> None:
    """Five steps to the right cost 5/6 of 0.01."""
    env = DeepSea(6, layout=0)
    obs, _ = env.reset()
    rewards = []
    for row in range(6):
        right = env.right[int(obs.argmax())]
        obs, reward, ended, _, _ = env.step(1 - right if row == 2 else right)
        rewards.append(reward)
    assert ended
    assert sum(rewards) == pytest.approx(-0.01 * 5 / 6)


def test_a_wrong_door_ends_the_episode_with_what_was_earned() -> None:
    env = Chain(4, layout=0)
    env.reset()
    assert env.step(env.right[0])[1:4] == (0.25, False, False)
    assert env.step((env.right[1] + 1) % Chain.DOORS)[1:4] == (0.0, True, False)


def test_a_visit_counts_in_steps_of_all_lanes(tmp_path: Path) -> None:
    """The first lane sees rooms 0, 1 and the goal in steps 1 and 2; the other opens a wrong door, then goes on.

    Two lanes, so step 1 of a lane is step 2 of all, and step 3 is step 6.
    """
    quick, slow = (Chain(2, layout=0, visits=str(tmp_path)) for _ in range(2))
    for env, wrong in ((quick, 0), (slow, 1)):
        for step in range(2 + wrong):
            if step in (0, wrong):
                env.reset()
            env.step((env.right[0] + 1) % Chain.DOORS if step < wrong else env.right[step - wrong])
    assert first_visits(tmp_path, 2, timesteps=100).tolist() == [2, 4, 4]
    assert first_visits(tmp_path, 2, timesteps=3).tolist() == [2, 0, 0], "later visits do not count"
    with pytest.raises(ValueError, match="3 lanes have kept their visits in 2 files"):
        first_visits(tmp_path, 3, timesteps=100)


def test_a_small_run_counts_what_its_lanes_visit() -> None:
    found = run("chain", ROWS["Ape-X, 4 actors"], 1024, 1)
    assert 2 <= found.visited <= 22
    assert len(found.curve) == exploration.POINTS
    assert found.curve == sorted(found.curve)
    assert found.curve[-1] == found.visited
    assert found.goal_step is None


def test_shares_and_differences_are_over_the_seeds() -> None:
    reaches = Explored(0, 22, 900, 1.0, [22] * 2)
    fails = Explored(1, 12, None, 0.5, [10, 12])
    found = {name: [reaches, reaches] if name == LADDER else [reaches, fails] for name in ROWS}
    rows = {row["what"]: row for row in entries("chain", 1024, found)}
    first = rows["DQN, 1 environment"]
    assert first["visited"] == [17.0, 12.0, 22.0]
    assert first["found"] == first["learned"] == [0.5, 0.0, 1.0]
    assert first["ladder_less"]["visited"] == [5.0, 0.0, 10.0]
    assert first["curve"] == [16.0, 17.0]
    assert first["runs"][1] == {"seed": 1, "visited": 12, "goal_step": None, "greedy_return": 0.5}
    assert rows[LADDER]["found"] == [1.0, 1.0, 1.0]
    assert "ladder_less" not in rows[LADDER]


def test_a_run_of_this_commit_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def trained(_case: str, _row: object, _timesteps: int, seed: int) -> Explored:
        seeds.append(seed)
        return Explored(seed, 3, None, 0.1, [3])

    monkeypatch.setattr(exploration, "ROOT", tmp_path)
    monkeypatch.setattr(exploration, "run", trained)
    for at in ("0123456789ab", "0123456789ab", "ba9876543210", "ba9876543210+", "ba9876543210+"):
        monkeypatch.setattr(exploration, "commit", lambda at=at: at)
        assert kept("chain", LADDER, 1024, 5) == Explored(5, 3, None, 0.1, [3])
    assert len(seeds) == 4, "the second call finds the run of the first; changed code keeps nothing"


def test_a_result_names_its_tasks_and_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "kept", lambda *_: Explored(0, 3, None, 0.1, [1] * exploration.POINTS))
    file = tmp_path / "exploration.json"
    words = ["--cases", "chain", "--seeds", "0", "1"]
    monkeypatch.setattr("sys.argv", ["exploration", *words, "--write", str(file)])
    main()
    written = json.loads(file.read_text())
    assert written["command"] == "python -m benchmarks.exploration --cases chain --seeds 0 1"
    assert written["setting"]["tasks"] == {"chain": {"size": 22, "states": 22}}
    assert [row["what"] for row in written["rows"]] == list(ROWS)
    assert '--env_args \'{"size": 22, "layout": SEED}\' --algo dqn' in written["rows"][0]["command"]


def test_the_middle_is_that_of_the_ladder_of_eight() -> None:
    ladder = 0.4 ** (1 + 7 * np.arange(8) / 7)
    assert np.exp(np.log(ladder).mean()) == pytest.approx(exploration.MIDDLE, rel=0.01)
