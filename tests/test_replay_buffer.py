"""The public replay buffer: what is pushed is what is sampled, from many processes, also while some of them die."""

import gc
import multiprocessing
import os
import pickle
import signal
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from penstock import ParallelEnvironmentCollector, ReplayBuffer
from penstock.errors import BadDataError, ConfigError, PenstockError, ResourceError, UsageError
from penstock.replay.buffer_writer import BufferWriter
from tests.runtime.nodes import wait_until

FIELDS = {"obs": ((2,), "float32"), "action": ((), "int64")}
LIMIT_S = 120.0
SPAWN = multiprocessing.get_context("spawn")


def steps_of(lane: int, first: int, count: int) -> dict[str, np.ndarray]:
    """Steps of one lane that never end. Step i sees ``[i, lane]``, does ``i`` and is paid ``i + 1000 lane``."""
    numbers = np.arange(first, first + count + 1)
    obs = np.stack([numbers, np.full(count + 1, lane)], axis=1).astype(np.float32)
    return {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": numbers[:-1],
        "reward": numbers[:-1] + 1000.0 * lane,
        "terminated": np.zeros(count, np.bool_),
        "truncated": np.zeros(count, np.bool_),
    }


def check(batch: dict[str, np.ndarray]) -> None:
    """Every row is whole: all its parts are of one step."""
    number, lane = batch["obs"].T
    np.testing.assert_array_equal(batch["action"], number)
    np.testing.assert_array_equal(batch["reward"], number + 1000.0 * lane)
    np.testing.assert_array_equal(batch["next_obs"], np.stack([number + 1, lane], axis=1))


def test_what_is_pushed_is_sampled() -> None:
    with ReplayBuffer(FIELDS, 1000, rollout_steps=8, gamma=0.9) as buffer:
        with pytest.raises(ResourceError, match="no slot was pushed yet"):
            buffer.sample(4)
        # Of any size: rows can be sampled once their rollout of 8 is whole.
        for first, count in ((0, 3), (3, 4), (7, 0), (7, 22), (29, 1)):
            buffer.push(steps_of(0, first, count))
        assert len(buffer) == buffer.pushed == 24
        batch = buffer.sample(2000)
        check(batch)
        assert set(batch["action"].tolist()) == set(range(24))
        assert batch["discount"].tolist() == [np.float32(0.9)] * 2000
        assert batch["importance"].tolist() == [1.0] * 2000
        buffer.flush()
        assert len(buffer) == 32
        assert set(buffer.sample(2000)["action"].tolist()) == set(range(30))


def test_one_step_may_come_alone() -> None:
    whole = steps_of(0, 0, 16)
    with ReplayBuffer(FIELDS, 100, rollout_steps=8) as together, ReplayBuffer(FIELDS, 100, rollout_steps=8) as alone:
        together.push(whole)
        for step in range(16):
            row = {name: values[step] for name, values in whole.items()}
            alone.push({**row, "reward": float(row["reward"]), "terminated": False, "truncated": False})
        wanted, found = together.sample(64), alone.sample(64)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


def test_the_oldest_rows_are_overwritten() -> None:
    with ReplayBuffer(FIELDS, 16, rollout_steps=8) as buffer:
        buffer.push(steps_of(0, 0, 80))
        assert (len(buffer), buffer.pushed) == (16, 80)
        assert set(buffer.sample(500)["action"].tolist()) == set(range(64, 80))


def test_ends_of_episodes() -> None:
    """Step 1 is cut off, step 4 ends its episode, step 6 only resets the lane."""
    rows = steps_of(0, 0, 8)
    rows["truncated"][1], rows["terminated"][4] = True, True
    rows["next_obs"][1] = [50.0, 0.0]
    rows["valid"] = np.arange(8) != 6
    with ReplayBuffer(FIELDS, 100, rollout_steps=4, gamma=0.5) as buffer:
        buffer.push(rows)
        buffer.push(steps_of(0, 8, 4))
        batch = buffer.sample(3000)
    after = dict(zip(batch["action"].tolist(), batch["next_obs"][:, 0].tolist(), strict=True))
    # What follows step 4 begins the next episode; nobody uses it.
    assert after == {0: 1, 1: 50, 2: 3, 3: 4, 4: 5, 5: 6, 7: 8, 8: 9, 9: 10, 10: 11, 11: 12}
    discounts = dict(zip(batch["action"].tolist(), batch["discount"].tolist(), strict=True))
    assert {action for action, discount in discounts.items() if discount == 0.0} == {4}
    assert set(discounts.values()) == {0.0, 0.5}


def test_sums_of_several_rewards() -> None:
    """Rewards 1, 2, 4, ... at a discount of 1/2: each of the n rewards in a sum counts as much as the first."""
    rows = steps_of(0, 0, 8)
    rows["reward"] = 2.0 ** np.arange(8)
    rows["truncated"][4] = True
    rows["next_obs"][4] = [50.0, 0.0]
    with ReplayBuffer(FIELDS, 100, rollout_steps=4, n_step=3, gamma=0.5) as buffer:
        buffer.push({name: values[:6] for name, values in rows.items()})
        buffer.flush()
        buffer.push({name: values[6:] for name, values in rows.items()})
        buffer.flush()
        batch = buffer.sample(3000)
    found = {
        action: (reward, obs, discount)
        for action, reward, obs, discount in zip(
            *(batch["action"].tolist(), batch["reward"].tolist(), batch["next_obs"][:, 0].tolist()),
            batch["discount"].tolist(),
            strict=True,
        )
    }
    assert found == {
        0: (3.0, 3.0, 0.125),  # 1 + 2/2 + 4/4
        1: (6.0, 4.0, 0.125),  # 2 + 4/2 + 8/4
        2: (12.0, 50.0, 0.125),  # 4 + 8/2 + 16/4, and there the episode is cut off
        3: (16.0, 50.0, 0.25),  # 8 + 16/2
        4: (16.0, 50.0, 0.5),
        5: (32.0, 6.0, 0.5),  # Behind it the buffer was flushed.
        6: (128.0, 8.0, 0.25),  # 64 + 128/2
        7: (128.0, 8.0, 0.5),
    }


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_a_flush_parts_what_is_before_it_from_what_follows(count: int) -> None:
    """Also where the steps before it fill their slots: sums of rewards must not run on into other steps."""
    other = {**steps_of(0, 1000, 8), "reward": np.full(8, 1e6)}
    with ReplayBuffer(FIELDS, 100, rollout_steps=4, n_step=3, gamma=1.0) as buffer:
        buffer.push(steps_of(0, 0, count))
        buffer.flush()
        assert set(buffer.sample(500)["action"].tolist()) == set(range(count))
        buffer.push(other)
        buffer.flush()
        batch = buffer.sample(3000)
    before = batch["action"] < 1000
    assert set(batch["action"][before].tolist()) == set(range(count))
    last = np.minimum(batch["action"][before] + 3, count)
    np.testing.assert_array_equal(batch["next_obs"][before, 0], last)
    sums = [sum(range(first, end)) for first, end in zip(batch["action"][before].tolist(), last.tolist(), strict=True)]
    np.testing.assert_array_equal(batch["reward"][before], sums)


def test_lanes_of_one_writer() -> None:
    parts = [steps_of(lane, 0, 20) for lane in range(3)]
    rows = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
    with ReplayBuffer(FIELDS, 300, lanes=3, rollout_steps=4) as buffer:
        buffer.push({name: values[:7] for name, values in rows.items()})
        buffer.push({name: values[7] for name, values in rows.items()})
        buffer.push({name: values[8:] for name, values in rows.items()})
        assert len(buffer) == 60
        batch = buffer.sample(3000)
    check(batch)
    assert len({(action, lane) for action, (_, lane) in zip(batch["action"], batch["obs"].tolist(), strict=True)}) == 60


def test_steps_out_of_order_are_refused_and_nothing_is_stored() -> None:
    with ReplayBuffer(FIELDS, 100, rollout_steps=4) as buffer:
        buffer.push(steps_of(0, 0, 4))
        shuffled = {name: values[[0, 2, 1, 3]] for name, values in steps_of(0, 4, 4).items()}
        with pytest.raises(BadDataError, match="obs of step 1 of lane 0 is not next_obs of the step before"):
            buffer.push(shuffled)
        with pytest.raises(BadDataError, match="obs of step 0 of lane 0 is not next_obs of the step before"):
            buffer.push(steps_of(0, 40, 4))
        assert buffer.pushed == 4
        buffer.flush()
        buffer.push(steps_of(0, 40, 4))
        # Transitions in any order, each of which stands alone.
        alone = {**shuffled, "truncated": np.ones(4, np.bool_)}
        buffer.flush()
        buffer.push(alone)
        batch = buffer.sample(500)
        check(batch)
        assert set(batch["action"].tolist()) == {*range(8), *range(40, 44)}


def test_observations_are_compared_as_they_are_stored() -> None:
    with ReplayBuffer(FIELDS, 100, rollout_steps=4) as buffer:
        # A tenth is another number in float64. An agent often keeps a copy in float32 of what its environment gives.
        seen = np.arange(6)[:, None] / 10 + np.zeros(2)
        rest = {name: steps_of(0, 0, 5)[name] for name in ("action", "reward", "terminated", "truncated")}
        buffer.push({"obs": seen[:-1].astype(np.float32), "next_obs": seen[1:], **rest})
        assert buffer.pushed == 4


def test_a_second_writer_of_a_number_is_noticed() -> None:
    with ReplayBuffer(FIELDS, 100, rollout_steps=16) as buffer:
        first, second = buffer.writer(), buffer.writer()
        first.push(steps_of(0, 0, 5))
        second.push(steps_of(0, 100, 16))
        for call in (lambda: first.push(steps_of(0, 5, 20)), first.flush):
            with pytest.raises(UsageError, match="another writer 0 of this replay buffer has pushed meanwhile"):
                call()
        # What the second one has written is whole.
        assert set(buffer.sample(200)["action"].tolist()) == set(range(100, 116))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"obs": np.zeros((4, 3))}, r"obs has shape \[4, 3\]; wanted \[4, 2\], as reward has it"),
        ({"action": np.zeros(4)}, "action holds float64, which is no int64"),
        ({"terminated": np.zeros(4)}, "terminated holds float64, which is no bool"),
        ({"reward": np.array([0.0, 0.0, np.nan, 0.0])}, "reward of step 2 of lane 0 holds NaN or infinity"),
        ({"obs": np.full((4, 2), np.inf)}, "obs of step 0 of lane 0 holds NaN or infinity"),
        ({"reward": np.zeros((4, 2))}, r"reward has shape \[4, 2\]; wanted \[k, 1\] for k steps, or \[k\]"),
    ],
)
def test_rows_of_another_form_are_refused(change: dict[str, np.ndarray], text: str) -> None:
    with ReplayBuffer(FIELDS, 100) as buffer:
        with pytest.raises(BadDataError, match=text):
            buffer.push({**steps_of(0, 0, 4), **change})
        for name in ("reward", "next_obs", "action"):
            rows = steps_of(0, 0, 4)
            del rows[name]
            with pytest.raises(BadDataError, match=f"rows lack {name}"):
                buffer.push(rows)
        with pytest.raises(BadDataError, match="rows are a mapping of names to arrays, not list"):
            buffer.push([1, 2])


def test_rows_are_sampled_by_priority() -> None:
    with ReplayBuffer(FIELDS, 100, rollout_steps=4, alpha=0.5) as buffer:
        buffer.push(steps_of(0, 0, 4))
        batch = buffer.sample(64)
        # To the power 1/2: 1, 1, 2, 4.
        priorities = np.array([1.0, 1.0, 4.0, 16.0])
        assert buffer.update_priorities(batch, priorities[batch["action"]]) == 64
        batch = buffer.sample(8000, beta=1.0)
        check(batch)
        counts = np.bincount(batch["action"])
        # One row of each of 8,000 equal parts of the sum.
        np.testing.assert_allclose(counts, [1000, 1000, 2000, 4000], atol=2)
        # 1 / P over the largest: P is 1/8, 1/8, 1/4, 1/2.
        np.testing.assert_allclose(batch["importance"], np.array([1.0, 1.0, 0.5, 0.25])[batch["action"]], rtol=1e-6)
        half = buffer.sample(64, beta=0.5)
        np.testing.assert_allclose(half["importance"], 2.0 ** -np.array([0, 0, 0.5, 1.0])[half["action"]], rtol=1e-6)
        # New rows have the largest priority so far.
        buffer.push(steps_of(0, 4, 4))
        np.testing.assert_allclose(np.bincount(buffer.sample(2400)["action"])[4:], [400] * 4, atol=2)
        assert buffer.update_priorities(batch, np.zeros(8000)) == 8000
        assert set(buffer.sample(100)["action"].tolist()) == {4, 5, 6, 7}


def test_priorities_of_overwritten_rows_change_nothing() -> None:
    with ReplayBuffer(FIELDS, 8, rollout_steps=4, alpha=1.0) as buffer:
        buffer.push(steps_of(0, 0, 4))
        batch = buffer.sample(10)
        buffer.push(steps_of(0, 4, 12))
        assert buffer.update_priorities(batch, np.full(10, 100.0)) == 0
        for wrong in (np.full(9, 1.0), np.full(10, -1.0), np.full(10, np.nan)):
            with pytest.raises(BadDataError, match="priorit"):
                buffer.update_priorities(batch, wrong)
    with ReplayBuffer(FIELDS, 8) as plain, pytest.raises(UsageError, match="make it with alpha"):
        plain.update_priorities(batch, np.ones(10))


@pytest.mark.parametrize("beta", [-0.1, 1.5, np.nan, "0.4"])
def test_an_exponent_that_cannot_be_used_is_refused(beta: object) -> None:
    with ReplayBuffer(FIELDS, 100, alpha=0.6) as buffer:
        buffer.push(steps_of(0, 0, 64))
        with pytest.raises(ConfigError, match=f"beta is {beta!r}; give a number from 0 to 1"):
            buffer.sample(4, beta=beta)


def test_a_batch_may_be_filled_anew() -> None:
    with ReplayBuffer(FIELDS, 100, rollout_steps=4) as buffer:
        buffer.push(steps_of(0, 0, 40))
        batch = buffer.sample(32)
        first = {name: values.copy() for name, values in batch.items()}
        assert buffer.sample(32, out=batch) is batch
        check(batch)
        assert (batch["action"] != first["action"]).any()
        for wrong in ({}, {**batch, "obs": batch["obs"][:3]}, first | {"reward": first["reward"][:1]}):
            with pytest.raises(ConfigError, match="out is no batch of 32 rows"):
                buffer.sample(32, out=wrong)
        with pytest.raises(ConfigError, match="n takes a whole number of at least 1, not 0"):
            buffer.sample(0)


def write_steps(writer: BufferWriter, count: int) -> None:
    with writer:
        for first in range(0, count, 7):
            writer.push(steps_of(writer.number, first, min(7, count - first)))


def prefer_lane_one(buffer: ReplayBuffer, writer: BufferWriter) -> None:
    """Reads and writes in a process of its own: rows of other lanes are not sampled any more."""
    write_steps(writer, 64)
    for _ in range(50):
        batch = buffer.sample(64)
        check(batch)
        buffer.update_priorities(batch, np.where(batch["obs"][:, 1] == 1, 1.0, 0.0))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_write_and_sample(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ReplayBuffer(FIELDS, 1000, writers=3, rollout_steps=8, alpha=1.0) as buffer:
        processes = [context.Process(target=write_steps, args=(buffer.writer(number), 200)) for number in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(LIMIT_S)
            assert process.exitcode == 0
        assert buffer.pushed == 400
        batch = buffer.sample(4000)
        check(batch)
        assert len(np.unique(batch["obs"], axis=0)) == 400
        # One process gets both, which share a descriptor.
        process = context.Process(target=prefer_lane_one, args=(buffer, buffer.writer(2)))
        process.start()
        process.join(LIMIT_S)
        assert process.exitcode == 0
        assert buffer.pushed == 464
        batch = buffer.sample(500)
        check(batch)
        assert (batch["obs"][:, 1] == 1).mean() > 0.9


def sampled(buffer: ReplayBuffer, results) -> None:
    results.put(buffer.sample(16)["action"].tolist())


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes_sample_other_batches(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ReplayBuffer(FIELDS, 1000, seed=3) as buffer, ReplayBuffer(FIELDS, 1000, seed=3) as again:
        for one in (buffer, again):
            one.push(steps_of(0, 0, 960))
        results = context.SimpleQueue()
        for _ in range(2):
            process = context.Process(target=sampled, args=(buffer, results))
            process.start()
            process.join(LIMIT_S)
        mine = buffer.sample(16)["action"].tolist()
        assert mine == again.sample(16)["action"].tolist()
        assert mine not in (theirs := [results.get(), results.get()])
        assert theirs[0] != theirs[1]


def write_on(writer: BufferWriter) -> None:
    """Writes until it is killed. Each life begins where it does not know what was written."""
    first = 0
    while True:
        writer.push(steps_of(writer.number, first, 5))
        first += 5


def test_killed_writers_leave_no_torn_row() -> None:
    with ReplayBuffer(FIELDS, 20_000, writers=2, rollout_steps=16, alpha=0.6) as buffer:
        for life in range(6):
            processes = [SPAWN.Process(target=write_on, args=(buffer.writer(number),)) for number in range(2)]
            for process in processes:
                process.start()
            before = buffer.pushed
            until = time.monotonic() + LIMIT_S
            while buffer.pushed < before + 4000:
                assert time.monotonic() < until
                if life or len(buffer):
                    batch = buffer.sample(256)
                    check(batch)
                    buffer.update_priorities(batch, np.linspace(0.1, 5.0, 256))
            for process in processes:
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                process.join(LIMIT_S)
                assert process.exitcode == -signal.SIGKILL
        # All that is left is whole, and nobody waits for the dead.
        check(buffer.sample(5000))
        buffer.push(steps_of(0, 0, 64))
        check(buffer.sample(5000))


@pytest.mark.parametrize(("alpha", "most"), [(None, 200), (0.7, 60)])
def test_it_is_saved_and_loaded(tmp_path: Path, alpha: float | None, most: int) -> None:
    path = tmp_path / "rows.zip"
    settings = {"writers": 3, "rollout_steps": 4, "n_step": 2, "gamma": 0.5, "alpha": alpha, "seed": 5}
    with ReplayBuffer(FIELDS, 240, **settings) as buffer:
        # Of 200 rows, one writer has gone round its ring. One writer has written nothing.
        for number, count in ((0, most), (2, 22)):
            rows = steps_of(number, 0, count)
            rows["truncated"][5::6] = True
            buffer.writer(number).push(rows)
        if alpha is not None:
            batch = buffer.sample(500)
            buffer.update_priorities(batch, batch["action"] + 1.0)
        buffer.save(path)
        buffer._batches = 0
        with ReplayBuffer.load(path) as loaded:
            assert (len(loaded), loaded.pushed) == (len(buffer), buffer.pushed)
            for _ in range(3):
                wanted, found = buffer.sample(300, beta=0.5), loaded.sample(300, beta=0.5)
                for name, values in wanted.items():
                    np.testing.assert_array_equal(found[name], values)
            # The writers go on, with new episodes.
            loaded.push(steps_of(0, 500, 8))
            assert loaded.pushed == buffer.pushed + 8
    assert [file.name for file in tmp_path.iterdir()] == ["rows.zip"]


def test_a_buffer_with_numbers_of_numpy_is_saved(tmp_path: Path) -> None:
    numbers = {"capacity": np.int64(100), "gamma": np.float32(0.5), "alpha": np.float32(0.5), "seed": np.int64(3)}
    with ReplayBuffer(FIELDS, **numbers) as buffer:
        buffer.push(steps_of(0, 0, 64))
        buffer.save(tmp_path / "rows.zip")
    with ReplayBuffer.load(tmp_path / "rows.zip") as buffer:
        assert len(buffer) == 64


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.zip"
    with pytest.raises(UsageError, match=r"rows\.zip cannot be used as a replay buffer: .*No such file"):
        ReplayBuffer.load(path)
    with ReplayBuffer(FIELDS, 100, rollout_steps=4) as buffer:
        buffer.push(steps_of(0, 0, 40))
        buffer.save(path)
        with pytest.raises(UsageError, match=r"cannot write .*nowhere"):
            buffer.save(tmp_path / "nowhere" / "rows.zip")
    content = path.read_bytes()
    # In the rows of the observations.
    place = content.index(np.array([8, 0, 9, 0], np.float32).tobytes())
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    with pytest.raises(UsageError, match="cannot be used as a replay buffer: Bad CRC-32"):
        ReplayBuffer.load(path)
    path.write_bytes(content[:-40])
    with pytest.raises(UsageError, match="cannot be used as a replay buffer: File is not a zip file"):
        ReplayBuffer.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "nothing")
    with pytest.raises(UsageError, match=r"cannot be used as a replay buffer: .*buffer\.json"):
        ReplayBuffer.load(path)


def test_a_collector_fills_it() -> None:
    fields = {"obs": ((1,), "float32"), "action": ((), "int64"), "log_prob": ((), "float32")}
    with (
        ParallelEnvironmentCollector(
            "tests.environments:ClockEnv", num_workers=2, num_envs=4, rollout_steps=8
        ) as source,
        ReplayBuffer(fields, 1000, lanes=4, rollout_steps=8) as buffer,
    ):
        for _ in range(4):
            buffer.push(source.collect(16))
        batch = buffer.sample(2000)
    # The clock counts twentieths, and is cut off at 1, which is the last observation of its episode.
    np.testing.assert_allclose(batch["next_obs"] * 20, batch["obs"] * 20 + 1, rtol=1e-5)
    assert (batch["next_obs"] == 1.0).any()
    assert (batch["reward"] == 1.0).all()
    assert (batch["log_prob"] < 0.0).all()


def test_fields_of_spaces() -> None:
    seen = spaces.Dict({"dial": spaces.Box(-1.0, 1.0, (2,)), "which": spaces.Discrete(3)})
    done = spaces.Tuple((spaces.Discrete(4), spaces.Box(0.0, 1.0, (2,), np.float64)))
    assert ReplayBuffer.fields_of(seen, done) == {
        "obs.dial": ((2,), "float32"),
        "obs.which": ((), "int64"),
        "action.0": ((), "int64"),
        "action.1": ((2,), "float64"),
    }
    picture = spaces.Box(0, 255, (4, 4), np.uint8)
    fields = ReplayBuffer.fields_of(picture, spaces.MultiDiscrete([2, 3]))
    assert fields == {"obs": ((4, 4), "uint8"), "action": ((2,), "int64")}
    with ReplayBuffer(fields, 10, rollout_steps=2) as buffer:
        rows = {
            "obs": picture.sample(),
            "next_obs": picture.sample(),
            "action": [1, 2],
            "reward": 1,
            "terminated": False,
        }
        buffer.push({**rows, "truncated": True})
        buffer.flush()
        batch = buffer.sample(1)
    assert (batch["obs"][0] == rows["obs"]).all()
    assert (batch["next_obs"][0] == rows["next_obs"]).all()
    assert batch["action"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"fields": {"action": ((), "int64")}}, "one of them is obs or obs.<key>"),
        ({"fields": [("obs", 1)]}, "one of them is obs or obs.<key>"),
        ({"fields": {**FIELDS, "reward": ((), "float32")}}, "reward is a name of the buffer's own"),
        ({"fields": {**FIELDS, "next_action": ((), "float32")}}, "next_action is a name of the buffer's own"),
        ({"fields": {**FIELDS, "a b": ((), "float32")}}, "'a b' is no name of a field"),
        ({"fields": {"obs": (4, "float32")}}, r"obs is \(4, 'float32'\); give its shape and dtype"),
        ({"fields": {"obs": ((0,), "float32")}}, "the shape of obs takes a whole number of at least 1, not 0"),
        ({"fields": {"obs": ((), "U5")}}, "obs has dtype <U5; give a kind of number, or bool"),
        ({"capacity": 0}, "capacity takes a whole number of at least 1, not 0"),
        ({"gamma": 1.5}, "gamma is 1.5; give a number from 0 to 1"),
        ({"alpha": 0.0}, "alpha is 0.0; give a number above 0 and up to 1, or leave it out"),
        ({"gamma": "0.9"}, "gamma is '0.9'; give a number from 0 to 1"),
        ({"alpha": "0.6"}, "alpha is '0.6'; give a number above 0 and up to 1, or leave it out"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ReplayBuffer(**{"fields": FIELDS, "capacity": 10, **arguments})


def test_it_frees_its_memory_and_says_that_it_is_closed() -> None:
    gc.collect()
    before = mapped()
    buffer = ReplayBuffer(FIELDS, 100)
    buffer.push(steps_of(0, 0, 64))
    buffer.sample(4)
    assert mapped() == before + 1
    assert buffer.nbytes > 0
    buffer.close()
    buffer.close()
    assert mapped() == before
    for call in (lambda: buffer.sample(4), lambda: len(buffer), buffer.writer, lambda: pickle.dumps(buffer)):
        with pytest.raises(PenstockError, match="this replay buffer is closed"):
            call()


def test_a_buffer_that_nobody_closes_frees_its_memory_with_its_last_handle() -> None:
    gc.collect()
    before = held()
    buffer = ReplayBuffer(FIELDS, 100, alpha=0.6)
    each = held() - before
    buffer.push(steps_of(0, 0, 64))
    buffer.sample(4)
    writer = pickle.loads(pickle.dumps(buffer.writer()))
    # The thread that hands a descriptor over closes its own copy a little later.
    assert wait_until(lambda: held() == before + 2 * each, 10)
    del buffer
    gc.collect()
    assert held() == before + each
    writer.push(steps_of(0, 0, 64))
    del writer
    gc.collect()
    assert held() == before


def held() -> int:
    """How many descriptors of buffers this process has. Each keeps memory, also where it is not mapped."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum("penstock-replay buffer" in str(link.readlink()) for link in links)


def mapped() -> int:
    """How many buffers this process maps."""
    return Path("/proc/self/maps").read_text().count("penstock-replay buffer")


def test_a_writer_has_a_number() -> None:
    with ReplayBuffer(FIELDS, 100, writers=2) as buffer:
        assert buffer.writer(1).number == 1
        for wrong in (2, -1, "0", True):
            with pytest.raises(ConfigError, match=f"there is no writer {wrong}; they are numbered 0 to 1"):
                buffer.writer(wrong)
