"""Learning from another run's rows, or from kept episodes, beside a run's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import penstock
from penstock.algorithms.ppo.spec import PPOConfig
from penstock.errors import BadDataError, CheckpointError, ConfigError
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.nodes.learner.demonstrations import (
    OF_NOBODY,
    EpisodeDemonstrations,
    TableDemonstrations,
    WithDemonstrations,
)
from penstock.planning import plans
from penstock.program.rollout import table_specs
from penstock.replay.mixture import Mixture
from penstock.replay.sampler import Sampler
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import TABLE, load_table
from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Box, Discrete, Spaces
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")

LANES, T, SLOTS, SIZE = 2, 4, 6, 8
SPACES = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(3))
SMALL = {
    "env": "CartPole-v1",
    "algo": "dqn",
    "timesteps": 600,
    "num_envs": 4,
    "num_workers": 1,
    "hidden_sizes": (8, 8),
    "min_rows": 100,
    "mini_batch_size": 16,
    "eval_episodes": 1,
    "backend": "eager",
    "runtime": "inline",
}


def sampler(table):
    lanes = table.arrays["valid"].shape[2]
    return Sampler(table, lanes, ["obs"], n_step=1, gamma=0.9, stack={})


def own(reward):
    """A table in which all rewards are the same."""
    specs = table_specs(SPACES, (), T, LANES, same_step=True)
    table = Table(Segment.create(Table.required(specs, 1, SLOTS), "table").bytes, specs, 1, SLOTS)
    for sequence in range(SLOTS - 1):
        slot = table.slot(table.claim(0, sequence))
        slot["reward"][...] = reward
        slot["valid"][:T] = True
        table.push(0, sequence)
    return table


def batch():
    return {"reward": np.zeros(SIZE, np.float32), "stamp": np.zeros(SIZE, np.int64), "index": np.zeros(SIZE, np.int64)}


def test_each_minibatch_holds_its_share_and_no_rank_of_the_others_is_ever_changed():
    mixed = WithDemonstrations(sampler(own(1.0)), [sampler(own(-1.0))], [0.25], [False])
    for number in range(5):
        out = batch()
        mixed.sample((1, number), out, [SLOTS - 1])
        assert out["reward"].tolist() == [1.0] * 6 + [-1.0] * 2
        assert (out["stamp"][:6] >= 0).all()
        assert (out["stamp"][6:] == OF_NOBODY).all()
        assert (out["index"][6:] == 0).all()


def test_one_source_is_sampled_with_the_bits_of_a_mixture_of_two() -> None:
    """As before there could be several: the rest is 1 - share, then the share."""
    for share in (0.1, 0.25, 0.3, 0.7):
        mixed = WithDemonstrations(sampler(own(1.0)), [sampler(own(-1.0))], [share], [False])
        plain = Mixture([sampler(own(1.0)), sampler(own(-1.0))], [1.0 - share, share])
        for number in range(20):
            out, same = ({**batch(), "obs": np.zeros((SIZE, 2), np.float32)} for _ in range(2))
            mixed.sample((1, number), out, [SLOTS - 1])
            end, _ = plain.sample((1, number), same, [[SLOTS - 1], None])
            for name in ("obs", "reward"):
                assert out[name].tobytes() == same[name].tobytes()
            for name in ("stamp", "index"):
                assert out[name][:end].tobytes() == same[name][:end].tobytes()


def test_several_sources_fill_their_shares_one_behind_the_other() -> None:
    mixed = WithDemonstrations(sampler(own(1.0)), [sampler(own(-1.0)), sampler(own(-2.0))], [0.125, 0.25], [False] * 2)
    for number in range(5):
        out = {**batch(), "demonstrated": np.full(SIZE, 9.0, np.float32)}
        mixed.sample((1, number), out, [SLOTS - 1])
        # Of 8 rows: 8 * 0.125 = 1 and 8 * 0.25 = 2; the other 5 are the run's own.
        assert out["reward"].tolist() == [1.0] * 5 + [-1.0] + [-2.0] * 2
        assert out["demonstrated"].tolist() == [0.0] * 5 + [1.0] * 3
        assert (out["stamp"][:5] >= 0).all()
        assert out["stamp"][5:].tolist() == [OF_NOBODY] * 3
        assert out["index"][5:].tolist() == [0] * 3


def test_shares_that_are_no_whole_number_of_rows_are_exact_on_average() -> None:
    class Numbered:
        def __init__(self, number):
            self.number = number

        def sample(self, key, out, before=None, beta=0.0):
            out["reward"][:] = self.number

    mixed = WithDemonstrations(Numbered(0), [Numbered(1), Numbered(2), Numbered(3)], [0.1, 0.3, 0.05], [False] * 3)
    counts = np.zeros(4)
    for number in range(2000):
        out = batch()
        mixed.sample((1, number), out)
        counts += np.bincount(out["reward"].astype(int), minlength=4)
    # Of 8 rows: 0.8, 2.4, 0.4 and 4.4. The mean of 2,000 is within five deviations (at most 0.5 / sqrt(2000) each).
    assert np.allclose(counts / 2000, [4.4, 0.8, 2.4, 0.4], atol=5 * 0.5 / np.sqrt(2000))


def test_minibatches_say_which_rows_are_held_out() -> None:
    """Each minibatch has the same number of them, also of sources whose shares are no whole numbers of rows."""
    parts, held_out = [sampler(own(-float(number))) for number in range(1, 5)], [False, False, True, True]
    mixed = WithDemonstrations(sampler(own(1.0)), parts, [0.375, 0.375, 0.125, 0.125], held_out)
    for number in range(20):
        out = {**batch(), "held_out": np.full(SIZE, 9.0, np.float32)}
        mixed.sample((1, number), out, [SLOTS - 1])
        assert out["reward"].tolist() == [-1.0] * 3 + [-2.0] * 3 + [-3.0, -4.0]
        assert out["held_out"].tolist() == [0.0] * 6 + [1.0] * 2
    odd = WithDemonstrations(sampler(own(1.0)), parts, [0.6, 0.15, 0.2, 0.05], held_out)
    for number in range(20):
        out = {**batch(), "held_out": np.full(SIZE, 9.0, np.float32)}
        odd.sample((1, number), out, [SLOTS - 1])
        assert out["held_out"].tolist() == [0.0] * 6 + [1.0] * 2
        assert (out["reward"] < 0.0).all()


def test_episodes_are_parted_into_those_that_are_learned_from_and_those_that_are_held_out(first, tmp_path) -> None:
    spaces = penstock.load_policy(first).spaces
    folder = keep(tmp_path / "kept", *(episode(number) for number in range(1, 11)))
    specs = table_specs(spaces, (), 2, 1, same_step=False)

    def lengths(*, judging: bool) -> set[float]:
        table = EpisodeDemonstrations(folder, spaces, spaces.action, specs, 0.2, judging).load()
        out = {"obs": np.zeros((2000, 4), np.float32), "next.obs": np.zeros((2000, 4), np.float32)}
        sampler(table).sample((0, 0), out)
        return set(out["next.obs"][:, 0].tolist())

    # Every fifth one is held out: the episodes of 5 and of 10 steps.
    assert max(lengths(judging=True)) == 10.0
    assert max(lengths(judging=False)) == 9.0
    empty = keep(tmp_path / "empty", *(episode(1, vanished=number == 5) for number in range(1, 6)))
    with pytest.raises(BadDataError, match="its held-out episodes have no step"):
        EpisodeDemonstrations(empty, spaces, spaces.action, specs, 0.2, judging=True).load()


def test_minibatches_say_which_rows_are_demonstrations_if_they_are_asked_to():
    mixed = WithDemonstrations(sampler(own(1.0)), [sampler(own(-1.0))], [0.25], [False])
    out = {**batch(), "demonstrated": np.full(SIZE, 9.0, np.float32)}
    mixed.sample((1, 0), out, [SLOTS - 1])
    assert out["demonstrated"].tolist() == [0.0] * 6 + [1.0] * 2


def test_demonstrations_weigh_what_the_own_rows_weigh_on_average():
    class Ranked:
        """Rows with the importance of rows that were sampled by priority."""

        def sample(self, key, out, before=None, beta=0.0):
            out["importance"][:] = np.resize([1.0, 0.25, 0.1], len(out["importance"]))

    class Uniform:
        def sample(self, key, out, before=None, beta=0.0):
            out["importance"][:] = 1.0

    mixed = WithDemonstrations(Ranked(), [Uniform()], [0.25], [False])
    out = {**batch(), "importance": np.zeros(SIZE, np.float32)}
    mixed.sample((1, 0), out)
    np.testing.assert_allclose(out["importance"][:6], [1.0, 0.25, 0.1] * 2)
    np.testing.assert_allclose(out["importance"][6:], 0.45, rtol=1e-6)
    several = WithDemonstrations(Ranked(), [Uniform(), Uniform()], [0.125, 0.125], [False] * 2)
    out["importance"][:] = 0.0
    several.sample((1, 0), out)
    np.testing.assert_allclose(out["importance"], [1.0, 0.25, 0.1] * 2 + [0.45] * 2, rtol=1e-6)
    every = WithDemonstrations(Ranked(), [Uniform()], [1.0], [False])
    every.sample((1, 0), out)
    assert out["importance"].tolist() == [1.0] * SIZE


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run whose table another run can learn from."""
    return penstock.train({**SMALL, "log_dir": str(tmp_path_factory.mktemp("first"))}, quiet=True).run_folder


def source(run, num_envs=4, num_steps=8):
    specs = table_specs(penstock.load_policy(run).spaces, (), num_steps, num_envs, same_step=True)
    return TableDemonstrations(find_checkpoint(run), specs)


def test_what_a_run_kept_is_sampled_as_it_was_collected(first):
    held = load_table(find_checkpoint(first))
    assert held is not None
    kept_rows = sampler(source(first).load())
    out = {"obs": np.zeros((400, 4), np.float32), "reward": np.zeros(400, np.float32)}
    kept_rows.sample((0, 0), out)
    kept = {row.tobytes() for row in held["obs"][held["valid"]]}
    sampled = {row.tobytes() for row in out["obs"]}
    assert sampled <= kept
    assert len(sampled) > 200
    assert (out["reward"] == 1.0).all()


def test_a_table_of_another_layout_or_a_damaged_one_is_refused(first, tmp_path):
    with pytest.raises(CheckpointError, match="does not fit this run: its obs is"):
        source(first, num_envs=2).load()
    other = tmp_path / find_checkpoint(first).name
    other.mkdir()
    for part in find_checkpoint(first).iterdir():
        (other / part.name).write_bytes(part.read_bytes()[:-1] if part.name == TABLE else part.read_bytes())
    with pytest.raises(CheckpointError, match="cannot be used"):
        TableDemonstrations(other, source(first).specs).load()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"prioritised": True},
        # All rows of a minibatch are demonstrations. Six seconds. Shorter: the others.
        pytest.param(
            {"runtime": "local", "num_workers": 2, "learners": 2, "demonstration_share": 1.0},
            marks=pytest.mark.nightly,
        ),
        {"algo": "apex", "num_steps": 4},
    ],
)
def test_a_run_learns_from_another_runs_rows_and_is_resumed_with_them(first, tmp_path, more):
    told = {"demonstrations": str(first), "demonstration_share": 0.5, "log_dir": str(tmp_path)}
    result = penstock.train({**SMALL, **told, **more}, quiet=True)
    assert result.steps >= 600
    assert penstock.resume(result.run_folder, timesteps=800, quiet=True).steps >= 800


def test_rows_of_others_make_a_difference_and_a_share_of_nothing_makes_none(first, tmp_path):
    def actor(**told):
        result = penstock.train({**SMALL, **told, "log_dir": str(tmp_path)}, quiet=True)
        arrays = safetensors.numpy.load_file(find_checkpoint(result.run_folder) / "state.safetensors")
        return arrays["actor"].tobytes()

    alone = actor()
    assert actor(demonstrations=str(first), demonstration_share=0.0) == alone
    assert actor(demonstrations=str(first), demonstration_share=0.5) != alone


@pytest.mark.parametrize("more", [{}, {"prioritised": True}])
def test_a_run_learns_from_several_sources_and_is_resumed_with_them(first, tmp_path, more):
    folder = keep(tmp_path / "kept", *(episode(20) for _ in range(10)))
    told = {**SMALL, **more, "demonstrations": [str(first), str(folder)], "log_dir": str(tmp_path / "runs")}
    result = penstock.train({**told, "demonstration_share": [0.25, 0.125]}, quiet=True)
    assert result.steps >= 600
    run = RunFolder(result.run_folder)
    assert f"shares of each minibatch: 0.25 from {first}, 0.125 from {folder}" in run.log_path.read_text()
    assert penstock.resume(result.run_folder, timesteps=800, quiet=True).steps >= 800
    assert run.read_config().run.demonstration_share == (0.25, 0.125)
    # One source fewer, with its own share.
    fewer = {"demonstrations": [str(folder)], "demonstration_share": 0.5}
    assert penstock.resume(result.run_folder, timesteps=1000, settings=fewer, quiet=True).steps >= 1000


def test_a_source_that_does_not_fit_is_named(first, tmp_path):
    told = {**SMALL, "demonstrations": [str(first), str(tmp_path / "nowhere")], "log_dir": str(tmp_path)}
    with pytest.raises(penstock.UsageError, match=r"nowhere is no run folder"):
        penstock.train(told, quiet=True)


def test_what_cannot_be_learned_from_is_said_before_anything_starts(first, tmp_path):
    with pytest.raises(ConfigError, match="--demonstrations is for algorithms that learn from a table"):
        penstock.train({"env": "CartPole-v1", "demonstrations": str(first), "log_dir": str(tmp_path)}, quiet=True)
    with pytest.raises(penstock.UsageError, match="is no run folder"):
        penstock.train({**SMALL, "demonstrations": "nowhere", "log_dir": str(tmp_path)}, quiet=True)
    with pytest.raises(ConfigError, match="it is of CartPole-v1, whose observations or actions are not of this run"):
        penstock.train(
            {**SMALL, "env": "Acrobot-v1", "demonstrations": str(first), "log_dir": str(tmp_path)}, quiet=True
        )
    plain = penstock.train(
        {"env": "CartPole-v1", "timesteps": 500, "num_steps": 16, "eval_episodes": 1, "log_dir": str(tmp_path / "ppo")},
        quiet=True,
    )
    with pytest.raises(ConfigError, match=r"keeps no table\.safetensors; give a run of an algorithm that learns"):
        penstock.train({**SMALL, "demonstrations": str(plain.run_folder), "log_dir": str(tmp_path)}, quiet=True)
    assert not list(Path(tmp_path).glob("CartPole-v1-dqn*"))


def episode(steps, reward=1.0, terminated=True, vanished=False):
    """An episode of CartPole in which every action is 1."""
    rows = np.arange(steps + (not vanished), dtype=np.float32)
    obs = {"obs": np.stack([rows, rows, rows, rows], axis=1)}
    return KeptEpisode(
        "s", obs, np.ones(steps, np.int64), np.full(steps - vanished, reward, np.float32), terminated, vanished
    )


def keep(folder, *episodes):
    files = EpisodeFiles(folder, keep=100)
    for one in episodes:
        files.add(one)
    return folder


def test_the_rows_of_kept_episodes_are_sampled_and_none_goes_over_the_end_of_its_episode(first, tmp_path):
    spaces = penstock.load_policy(first).spaces
    folder = keep(tmp_path / "kept", episode(5), episode(3, terminated=False), episode(4, vanished=True))
    specs = table_specs(spaces, (), 2, 1, same_step=False)
    table = EpisodeDemonstrations(folder, spaces, spaces.action, specs).load()
    out = {
        "obs": np.zeros((400, 4), np.float32),
        "next.obs": np.zeros((400, 4), np.float32),
        "reward": np.zeros(400, np.float32),
        "action": np.zeros(400, np.int64),
    }
    sampler(table).sample((0, 0), out)
    begin, end = out["obs"][:, 0], out["next.obs"][:, 0]
    np.testing.assert_array_equal(end, begin + 1)
    assert set(begin.tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert (out["reward"] == 1.0).all()
    assert (out["action"] == 1).all()


def test_a_run_learns_from_kept_episodes_and_is_resumed_with_them(tmp_path):
    folder = keep(tmp_path / "kept", *(episode(20) for _ in range(10)))
    told = {**SMALL, "demonstrations": str(folder), "demonstration_share": 1.0, "log_dir": str(tmp_path)}
    result = penstock.train(told, quiet=True)
    assert result.steps >= 600
    assert penstock.resume(result.run_folder, timesteps=800, quiet=True).steps >= 800


def test_episodes_that_cannot_be_learned_from_are_refused_before_anything_starts(tmp_path):
    def refused(folder, match, **more):
        told = {**SMALL, **more, "demonstrations": str(folder), "log_dir": str(tmp_path / "runs")}
        with pytest.raises(ConfigError, match=match):
            penstock.train(told, quiet=True)

    of_cartpole = keep(tmp_path / "kept", episode(5))
    refused(of_cartpole, "its obs is float32", env="Acrobot-v1")
    refused(of_cartpole, "r2d2 learns with a memory here, .*; give a run folder", algo="r2d2", model="lstm")
    refused(
        of_cartpole, "kept episodes hold the environment's own rewards", reward="tests.end_to_end.test_own_reward:fixed"
    )
    damaged = keep(tmp_path / "damaged", episode(5))
    next(damaged.iterdir()).write_bytes(b"no archive")
    refused(damaged, "is no kept episode")
    (tmp_path / "folder" / "episode-00000001.npz").mkdir(parents=True)
    refused(tmp_path / "folder", r"folder: episode-00000001\.npz cannot be read: Is a directory$")
    assert not list((tmp_path / "runs").glob("CartPole*"))


PENDULUM = {"env": "Pendulum-v1", "num_envs": 2, "num_workers": 1, "hidden_sizes": (8, 8), "runtime": "inline"}


def test_a_policy_that_shall_keep_to_demonstrations_needs_some_and_no_memory(tmp_path):
    told = {**PENDULUM, "algo": "sac", "imitation": 0.4, "log_dir": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"sac keeps to demonstrations \(--imitation\), and there are none"):
        penstock.train(told, quiet=True)
    with pytest.raises(ConfigError, match="--imitation is for policies without a memory"):
        penstock.train({**told, "model": "lstm", "demonstrations": "nowhere"}, quiet=True)


def test_an_algorithm_without_the_flag_is_not_told_of_it():
    found = prepared(algo="sac", env="Pendulum-v1", imitation=0.4)
    own = replace(found, config=replace(found.config, algorithm=PPOConfig()))
    with pytest.raises(ConfigError, match="sac keeps to demonstrations, and there are none; give --demonstrations"):
        plans._demonstrations(own)


@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg", "dsac", "dsact"])
def test_a_policy_keeps_to_the_actions_that_episodes_show(tmp_path, algo):
    """The episodes show full torque to the left, whatever the state."""
    rows = np.linspace(-1.0, 1.0, 201, dtype=np.float32)
    obs = {"obs": np.stack([np.cos(3 * rows), np.sin(3 * rows), rows], axis=1)}
    left = KeptEpisode("s", obs, np.full((200, 1), -2.0, np.float32), np.full(200, -1.0, np.float32), False, False)
    folder = keep(tmp_path / "kept", left)
    told = {**PENDULUM, "algo": algo, "imitation": 50.0, "demonstrations": str(folder), "demonstration_share": 0.5}
    more = {"timesteps": 600, "min_rows": 100, "mini_batch_size": 32, "lr": 3e-3, "eval_episodes": 0}
    run = penstock.train({**told, **more, "log_dir": str(tmp_path / "runs")}, quiet=True).run_folder
    policy = penstock.load_policy(run)
    assert np.mean([policy(row)[0] for row in obs["obs"][::10]]) < -1.5


def test_episodes_without_a_step_are_no_demonstrations(first, tmp_path):
    spaces = penstock.load_policy(first).spaces
    folder = keep(tmp_path / "kept", episode(1, vanished=True))
    specs = table_specs(spaces, (), 2, 1, same_step=False)
    with pytest.raises(BadDataError, match="its episodes have no step"):
        EpisodeDemonstrations(folder, spaces, spaces.action, specs).load()
