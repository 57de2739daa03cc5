"""A table stores stacks of frames as single frames. Sampled stacks are the same as the environment's."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.replay.contents import restore
from penstock.replay.sampler import Sampler
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table
from penstock.types import Array, Box, Discrete, Spaces, Stack
from tests.children import killing
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

NUM_ENVS, STEPS = 4, 8
TURN = NUM_ENVS * STEPS
SMALL = {
    "env": "tests.environments:make_film",
    "algo": "dqn",
    "lr_schedule": "constant",
    "num_envs": NUM_ENVS,
    "num_steps": STEPS,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 60,
    # Six turns: the ring goes round.
    "capacity": 6 * TURN,
    "n_step": 3,
    "hidden_sizes": (8, 8),
    # The same whatever the run's length is, so that a run may be resumed for longer.
    "epsilon_first": 0.4,
    "epsilon_last": 0.4,
    "eval_episodes": 1,
    "seed": 5,
}


def train(log_dir: Path, turns: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


def table_of(result: Result) -> dict[str, Array]:
    table = load_table(find_checkpoint(result.run_folder))
    assert table is not None
    return table


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Twelve turns in one go, in one process."""
    return train(tmp_path_factory.mktemp("whole"), 12, num_workers=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 4},
        {"num_workers": 2, "runtime": "local"},
        {"num_workers": 2, "policy_placement": "node", "inference": "native"},
    ],
    ids=["inline", "local", "policy node"],
)
def test_one_answer_wherever_stacks_are_kept(tmp_path, whole, settings) -> None:
    assert fingerprint(train(tmp_path, 12, **settings)) == fingerprint(whole)


def test_resumed_equals_uninterrupted(tmp_path, whole) -> None:
    first = train(tmp_path, 5, num_workers=2)
    config = first.run_folder / "config.toml"
    config.write_text(config.read_text().replace("num_workers = 2\n", "num_workers = 4\n"))
    second = penstock.resume(first.run_folder, timesteps=12 * TURN, quiet=True)
    assert (second.not_restored, second.notes) == (0, ())
    assert fingerprint(second) == fingerprint(whole)


def test_a_death_does_not_change_a_bit(tmp_path) -> None:
    whole = train(tmp_path / "whole", 50)
    with killing(["env.1"] * 3, tmp_path / "killed"):
        result = train(tmp_path / "killed", 50, runtime="local", num_workers=2, save_interval=1)
    assert fingerprint(result) == fingerprint(whole)


def test_a_table_holds_every_frame_once(whole) -> None:
    table = table_of(whole)
    assert table["obs"].shape == (6, STEPS + 1, NUM_ENVS, 6)
    assert table["final.obs"].shape[1:] == (6,)
    assert table["obs"].dtype == np.uint8
    # An episode's last observation is stored as well if a time limit led to it.
    assert table["final.obs"].shape[0] == (table["truncated"] & ~table["terminated"])[:, :STEPS].sum()


def film(newest: Array, frames: int, padding: str) -> Array:
    """The stack that the environment gives with this newest frame: ``[frames, 5]``, actions left out."""
    ages = np.arange(int(newest[4]) - frames + 1, int(newest[4]) + 1)
    stack = np.column_stack([np.tile(newest[:4], (frames, 1)), ages.clip(0)]).astype(np.uint8)
    if padding == "zero":
        stack[ages < 0] = 0
    return stack


@pytest.mark.parametrize(
    ("env", "padding", "same_step"),
    [("make_film", "first", True), ("make_dark_film", "zero", True), ("make_many_films", "first", False)],
)
@pytest.mark.parametrize("n_step", [1, 3])
def test_what_is_sampled_is_what_the_environment_gave(tmp_path, env, padding, same_step, n_step) -> None:
    result = train(tmp_path, 9, num_workers=2, env=f"tests.environments:{env}")
    stack = Stack(4, padding)
    spaces = Spaces((("obs", Box((4, 6), "uint8", (0.0,), (255.0,), stack)),), Discrete(2))
    specs = table_specs(spaces, (), STEPS, NUM_ENVS, same_step=same_step)
    table = Table(aligned_zeros(Table.required(specs, 1, 7)), specs, 1, 7)
    restore(table, table_of(result))
    sampler = Sampler(table, NUM_ENVS, ["obs"], n_step=n_step, gamma=0.5, stack={"obs": stack}, reward_limit=1.0)
    m = 500
    out = {name: np.zeros((m, 4, 6), np.uint8) for name in ("obs", "next.obs")}
    out |= {"action": np.zeros(m, np.int64), "reward": np.zeros(m, np.float32), "discount": np.zeros(m, np.float32)}
    sampler.sample((3, 1), out)
    ages = set()
    for obs, after, action, reward, discount in zip(*out.values(), strict=True):
        np.testing.assert_array_equal(obs[:, :5], film(obs[-1], 4, padding))
        ages.add(int(obs[-1, 4]))
        if discount == 0.0:
            continue  # nothing is made of what follows a terminated row
        steps = int(after[-1, 4]) - int(obs[-1, 4])
        assert discount == 0.5**steps
        np.testing.assert_array_equal(after[:, :5], film(np.array([*obs[-1, :4], after[-1, 4], 0]), 4, padding))
        # The frames hold the actions between, which also give the reward: 3 each, cut to 1.
        between = after[4 - steps :, 5] if steps < 4 else after[:, 5]
        assert between[0] == action
        assert reward == sum(0.5**k * float(taken) for k, taken in enumerate(between))
    assert ages >= set(range(8))


def test_returns_are_reported_whole_where_rewards_are_cut(tmp_path) -> None:
    result = train(tmp_path, 6, num_workers=1, clip_reward=True)
    assert set(np.unique(table_of(result)["reward"])) == {0.0, 3.0}
    returns = load_checkpoint(find_checkpoint(result.run_folder)).arrays["returns"]
    assert set(returns % 3.0) == {0.0}
    assert returns.max() > 9.0
