"""Learning from a table keeps its word: one answer on any number of workers, after a resume, after a death."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.experiments.checkpoints import find_checkpoint, load_checkpoint, load_table
from penstock.run import Result
from tests.processes import of_group

TURN = 16 * 4
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 100,
    # Six turns: the ring goes round.
    "capacity": 6 * TURN,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "seed": 5,
}


def train(log_dir: Path, turns: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


def fingerprint(result: Result) -> dict[str, str]:
    path = find_checkpoint(result.run_folder)
    arrays = {**load_checkpoint(path).arrays, **{f"table.{k}": v for k, v in (load_table(path) or {}).items()}}
    # Where in a log's ring an episode lies, how long the run took: no part of the answer.
    arrays["lane_position"] = arrays["lane_position"][:, [0, 2, 3]]
    arrays["taken"] = arrays["taken"].max()
    apart = ("elapsed",)
    return {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in arrays.items() if not k.startswith(apart)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Twenty turns in one go, in one process."""
    return fingerprint(train(tmp_path_factory.mktemp("whole"), 20, num_workers=1))


@pytest.mark.parametrize(("runtime", "workers"), [("inline", 4), ("local", 1), ("local", 2)])
def test_runtime_and_workers_do_not_change_a_bit(tmp_path, whole, runtime: str, workers: int) -> None:
    result = train(tmp_path, 20, runtime=runtime, num_workers=workers)
    assert result.steps == 20 * TURN
    assert fingerprint(result) == whole


@pytest.mark.parametrize("turns", [1, 4, 11])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 4)])
def test_resumed_equals_uninterrupted(tmp_path, whole, turns: int, before: int, after: int) -> None:
    first = train(tmp_path, turns, num_workers=before)
    config = first.run_folder / "config.toml"
    config.write_text(config.read_text().replace(f"num_workers = {before}\n", f"num_workers = {after}\n"))
    second = penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)
    assert (second.not_restored, second.notes) == (0, ())
    assert fingerprint(second) == whole


@contextlib.contextmanager
def killing(group: str, times: int, every_s: float) -> Iterator[None]:
    """Kill the processes of a group while the body runs, at most so often; at least one must have been there."""
    over = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        while killed < times and not over.wait(every_s):
            process = of_group(group)
            if process is not None:
                process.kill()
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()
    assert killed


@pytest.mark.parametrize("group", ["env.1", "learner", "monitor"])
def test_a_death_does_not_change_a_bit(tmp_path, whole, group: str) -> None:
    # The process imports torch or waits for one that does: some of these moments lie within the run's turns.
    with killing(group, 3, every_s=0.3):
        result = train(tmp_path, 20, runtime="local", num_workers=2)
    assert fingerprint(result) == whole


def test_what_is_drawn_is_what_was_collected(tmp_path) -> None:
    result = train(tmp_path, 8, num_workers=2)
    table = load_table(find_checkpoint(result.run_folder))
    assert table is not None
    assert table["obs"].shape == (6, 17, 4, 3)
    # The angle's cosine and sine lie on a circle, row T is the next slot's row 0 unless an episode ended.
    assert np.allclose(np.square(table["obs"][..., :2]).sum(-1), 1.0, atol=1e-5)
    goes_on = table["continues"][1:] & ~table["truncated"][:-1, 15]
    assert (table["obs"][:-1, 16] == table["obs"][1:, 0]).all(-1)[goes_on].all()


def test_a_table_that_was_not_kept_is_told_of(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("penstock.nodes.checkpointer.TABLE_LIMIT", 1000)
    first = train(tmp_path, 10, num_workers=1)
    second = penstock.resume(first.run_folder, timesteps=14 * TURN, quiet=True)
    assert second.notes == (
        "not bit-exact: the replay table was too large to be kept and filled anew; all else continued",
    )
    assert second.steps == 14 * TURN
    before, after = (load_checkpoint(find_checkpoint(second.run_folder, name)).arrays for name in ("10", "14"))
    # 64 rows of one turn are fewer than min_rows: no step in the first turn, 8 in each of the other three.
    assert after["gradient_steps"] - before["gradient_steps"] == 24


@pytest.mark.parametrize("workers", [1, 2])
def test_collecting_may_overlap_learning(tmp_path, workers: int) -> None:
    result = train(tmp_path, 20, runtime="local", num_workers=workers, sync_mode="non_blocking")
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps >= 20 * TURN
    # As many gradient steps as the rows collected make due.
    assert arrays["gradient_steps"] == (result.steps - 100) // 8


def test_a_minibatch_in_parts_gives_what_it_gives_whole(tmp_path) -> None:
    # The first turn that learns: later the rounding of sums would grow, in what is drawn as well.
    whole, parts = (train(tmp_path / str(n), 2, accumulate=n, num_workers=1) for n in (1, 4))
    one, other = (load_checkpoint(find_checkpoint(result.run_folder)).arrays for result in (whole, parts))
    assert one["gradient_steps"] == other["gradient_steps"] == 3
    for name in ("critic", "target.critic"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learners", [2, 3])
def test_learners_that_step_together_do_what_one_does(tmp_path, learners: int) -> None:
    # With two critics' losses the mean over minibatches drawn apart is another sample: so steps are compared by count,
    # and the numbers by tests/exchange. Here: whole runs go through, and their ends are told.
    result = train(tmp_path, 12, runtime="local", num_workers=2, learners=learners, mini_batch_size=24)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps == 12 * TURN
    assert arrays["gradient_steps"] == (12 * TURN - 100) // 8


@pytest.mark.parametrize("group", ["learner", "learner.1"])
def test_one_of_two_learners_dies_and_training_goes_on(tmp_path, group: str) -> None:
    with killing(group, 2, every_s=1.0):
        result = train(tmp_path, 40, runtime="local", num_workers=2, learners=2)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert arrays["gradient_steps"] == (40 * TURN - 100) // 8
