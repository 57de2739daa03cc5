"""Which checkpoint is the best and which are kept: by evaluations during the run, else by training episodes."""

import json

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.errors import CheckpointError
from penstock.metrics.jsonl import evaluations
from penstock.saved_runs.best import best_checkpoint, find_checkpoint, prune_checkpoints
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint

FACTS = {"env": "Pendulum-v1", "spaces": "Box", "algorithm": "ppo", "steps": 100}


def save(run, update, **facts):
    return save_checkpoint(run, {"actor": np.zeros(2, np.float32)}, {**FACTS, "update": update, **facts})


def log(run, *evaluated):
    """The run's log: of each ``(update, return)`` an evaluation, after a line on the update itself."""
    with (run / "metrics.jsonl").open("a") as file:
        for update, found in evaluated:
            head = {"update": update, "steps": 10 * update, "time_s": 1.0}
            file.write(json.dumps({**head, "rollout/return_mean": 7.0}) + "\n")
            file.write(json.dumps({**head, "eval/return_mean": found}) + "\n")


def names(run):
    return [path.name for path in list_checkpoints(run)]


def test_latest_best_and_names(tmp_path):
    for update, score in ((9, -5.0), (10, -1.0), (100_000_000, -3.0), (11, None)):
        save(tmp_path, update, return_mean=score)
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/update-00000010", False)
    assert names(tmp_path) == ["update-00000009", "update-00000010", "update-00000011", "update-100000000"]
    assert find_checkpoint(tmp_path).name == find_checkpoint(tmp_path, "latest").name == "update-100000000"
    assert find_checkpoint(tmp_path, "best").name == "update-00000010"
    assert find_checkpoint(tmp_path, 11).name == "update-00000011"
    for name in ("update-00000011", "11", str(tmp_path / "checkpoints" / "update-00000011")):
        assert find_checkpoint(tmp_path, name).name == "update-00000011"


@pytest.mark.parametrize("name", ["update-00000012", "12", "nonsense", "../..", "9" * 30, ""])
def test_a_name_that_is_not_there(tmp_path, name):
    save(tmp_path, 11)
    with pytest.raises(CheckpointError, match="update-00000011"):
        find_checkpoint(tmp_path, name)


def test_no_checkpoint_at_all_says_when_the_first_one_comes_and_what_to_type(tmp_path):
    said = "has no checkpoint: the first one comes after --save_interval updates, .* with a smaller --save_interval: "
    with pytest.raises(CheckpointError, match=said + r"penstock train --config .*/config\.toml$"):
        find_checkpoint(tmp_path)
    assert best_checkpoint(tmp_path) is None
    prune_checkpoints(tmp_path, 3)


def test_the_last_and_the_best_are_kept(tmp_path):
    for update in range(1, 8):
        save(tmp_path, update, return_mean=-float(abs(update - 2)))
    prune_checkpoints(tmp_path, 3)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["2", "5", "6", "7"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4


def test_passing_checkpoints_stay_until_there_is_a_newer_one_and_take_the_place_of_none(tmp_path):
    for update in (2, 3, 4, 5):
        save(tmp_path, update, passing=update in {3, 5})
        prune_checkpoints(tmp_path, 3)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["2", "4", "5"]
    for update in (6, 7):
        save(tmp_path, update, passing=update == 7)
        prune_checkpoints(tmp_path, 2)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["4", "6", "7"]


def test_evaluations_decide_where_there_were_some_on_the_way(tmp_path):
    for update, trained in ((4, 5.0), (8, 1.0), (10, 9.0), (12, 1.0)):
        save(tmp_path, update, return_mean=trained, evaluation_asked=update in {4, 8, 12})
    # There is no checkpoint of 6, 10 was not evaluated, and the return of 12 is NaN.
    log(tmp_path, (4, 20.0), (6, 90.0), (8, 30.0), (12, None))
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/update-00000008", True)
    # The latest of equal ones is the best. The evaluation at the end counts as well.
    log(tmp_path, (12, 30.0))
    assert find_checkpoint(tmp_path, "best").name == "update-00000012"
    log(tmp_path, (10, 31.0))
    assert find_checkpoint(tmp_path, "best").name == "update-00000010"


def test_an_evaluation_at_the_end_alone_decides_nothing(tmp_path):
    for update, trained in ((1, 5.0), (2, 1.0)):
        save(tmp_path, update, return_mean=trained, evaluation_asked=False)
    log(tmp_path, (2, 3.0))
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/update-00000001", False)


def test_training_decides_while_no_checkpoint_has_been_evaluated(tmp_path):
    for update, trained in ((1, 5.0), (2, 1.0)):
        save(tmp_path, update, return_mean=trained, evaluation_asked=True)
    log(tmp_path, (3, 8.0))
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/update-00000001", False)


def test_what_waits_for_its_evaluation_is_kept(tmp_path):
    for update in range(1, 9):
        save(tmp_path, update, return_mean=float(update), evaluation_asked=update in {2, 4, 6})
    log(tmp_path, (2, 3.0), (4, 1.0))
    # 2 is the best, 4 is worse, 6 may yet become better.
    prune_checkpoints(tmp_path, 1)
    assert names(tmp_path) == ["update-00000002", "update-00000006", "update-00000008"]
    log(tmp_path, (6, 4.0))
    prune_checkpoints(tmp_path, 1)
    assert names(tmp_path) == ["update-00000006", "update-00000008"]


class Worsening(gymnasium.Env):
    """Episodes of two steps. Each new environment gives less reward than those before, in training or evaluation."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    made = 0

    def __init__(self):
        Worsening.made += 1
        self._number, self._steps = Worsening.made, 0

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._steps += 1
        return np.zeros(1, np.float32), -float(self._number), self._steps == 2, False, {}


@pytest.mark.parametrize(
    "learning", [{"algo": "ppo", "epochs": 1, "mini_batch_size": 8}, {"algo": "dqn", "min_rows": 8}]
)
def test_a_run_keeps_its_best_evaluated_checkpoint(tmp_path, learning):
    settings = {
        "num_envs": 1,
        "num_steps": 8,
        "mini_batch_size": 8,
        "timesteps": 96,
        "runtime": "inline",
        "backend": "eager",
    }
    often = {"save_interval": 1, "keep_checkpoints": 1, "eval_interval": 2, "eval_episodes": 1}
    config = {"env": Worsening, "log_dir": str(tmp_path), **settings, **learning, **often}
    run = penstock.train(config, quiet=True).run_folder
    found = evaluations(run)
    first = min(found)
    assert len(found) > 1
    assert found[first] == max(found.values())
    assert best_checkpoint(run) == (run / f"checkpoints/update-{first:08d}", True)
    assert load_checkpoint(find_checkpoint(run, "best")).manifest["evaluation_asked"]
    assert len(list_checkpoints(run)) <= 3
    assert f"the best by its evaluation `update-{first:08d}`" in (run / "README.md").read_text()
    assert penstock.evaluate(run, checkpoint="best", episodes=1).checkpoint == f"update-{first:08d}"
