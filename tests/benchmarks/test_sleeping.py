"""Environments that sleep, the smallest run of scaling and non-blocking on them, and what is made of their figures."""

from itertools import islice

import numpy as np
import pytest

import penstock
from benchmarks import non_blocking, scaling, sleeping
from benchmarks.non_blocking import Slept, judged
from benchmarks.processes import Sample, cpu_per_step, cpu_s, slope
from benchmarks.runs import Curve, rate


def test_a_time_stays_for_a_rollout_and_lies_between_1_and_10_ms() -> None:
    seconds = np.array(list(islice(sleeping.drawn(3), 200 * sleeping.ROLLOUT))).reshape(200, sleeping.ROLLOUT)
    assert (seconds == seconds[:, :1]).all()
    assert 0.001 <= seconds.min() < 0.0012
    assert 0.009 < seconds.max() <= 0.01
    # Log-uniform over a decade: the median is the geometric mean, 3.2 ms.
    assert 0.0025 < np.median(seconds) < 0.004


def test_workers_draw_times_of_their_own() -> None:
    assert next(sleeping.drawn(0)) != next(sleeping.drawn(4))


def test_the_lasting_times_of_four_workers_differ_tenfold() -> None:
    assert [round(sleeping.kept(worker), 4) for worker in range(4)] == [0.001, 0.0022, 0.0046, 0.01]


def test_a_worker_keeps_the_time_of_its_first_lane(tmp_path, monkeypatch) -> None:
    """In one process the workers are made in turn: each gets the run's seed and its first lane, added."""
    made: list[int] = []
    monkeypatch.setattr(sleeping, "kept", lambda worker: made.append(worker) or 0.0)
    sizes = {"num_envs": 12, "num_workers": 4, "num_steps": 4, "eval_episodes": 1, "seed": 0, "timesteps": 48}
    settings = {**sizes, "env": "benchmarks.sleeping:lasting", "runtime": "inline", "log_dir": str(tmp_path)}
    penstock.train(settings, quiet=True)
    # One is made to find its spaces out, and one for the evaluation.
    assert made[1:-1] == [0, 1, 2, 3]


def test_an_observation_has_as_many_numbers_as_it_is_asked_for() -> None:
    assert sleeping.fixed(2).reset()[0].shape == (2, 4)
    wide = sleeping.fixed(2, numbers=256)
    assert wide.reset()[0].shape == (2, 256)
    assert wide.single_observation_space.shape == (256,)


def test_episodes_end_for_all_lanes_at_once(monkeypatch) -> None:
    monkeypatch.setattr(sleeping, "FIXED_S", 0.0)
    env = sleeping.fixed(3)
    env.reset(seed=1)
    ends = [env.step(np.zeros(3, np.int64))[2].tolist() for _ in range(2 * sleeping.EPISODE)]
    assert [t for t, ended in enumerate(ends) if any(ended)] == [63, 127]
    assert ends[63] == [True] * 3


@pytest.mark.nightly  # Six seconds. Shorter: ``test_non_blocking_at_its_smallest`` sleeps as well.
def test_scaling_at_its_smallest() -> None:
    ours, share = scaling.penstock(1, batches=1)
    assert 0 < ours < 210, "5 ms a step, and a clock that is read to the millisecond"
    assert 0 <= share < 1
    assert 0 < scaling.limit(2, steps=5) <= 400


def test_what_is_lost_adds_up() -> None:
    # A perfect batch: 400 steps/s of 2 workers. 380 bare, 342 of ours, 4 % idle.
    row = scaling.row(2, 342.0, 0.04, 380.0)
    assert row["of_limit"] == 0.9
    assert row["of_sleep_alone"] == pytest.approx(0.855)
    assert row["lost_to_longer_sleeps"] == pytest.approx(0.045)
    assert row["lost_to_the_rest"] == pytest.approx(0.06)
    lost = [row[name] for name in row if name.startswith("lost_")]
    assert row["of_sleep_alone"] + sum(lost) == pytest.approx(1.0)


@pytest.mark.nightly  # Ten seconds. Shorter: the scaling, above.
def test_non_blocking_at_its_smallest() -> None:
    for mode in non_blocking.MODES:
        slept = non_blocking.sleep("sleeping", 2, mode, updates=2)
        assert slept.steps_per_s > 0
        assert 0 <= slept.idle < 1
        assert 0 <= slept.stale < 1


def test_each_mode_beside_the_other() -> None:
    runs = {
        "blocking": [Slept(100.0, 0.3, 0.0), Slept(90.0, 0.3, 0.0), Slept(110.0, 0.3, 0.0)],
        "non_blocking": [Slept(125.0, 0.06, 0.1), Slept(119.0, 0.01, 0.0), Slept(130.0, 0.08, 0.2)],
    }
    assert [(bar.value, bar.holds) for bar in judged("sleeping", 2, runs)] == [(1.25, True), (0.06, False)]
    assert [(bar.value, bar.holds) for bar in judged("lasting", 4, runs)] == [(1.25, False), (0.06, False)]


def test_the_rate_leaves_the_first_entries_out() -> None:
    # From the second entry on: 200 steps in one second.
    assert rate(Curve([100, 200, 300, 400], [2.0, 3.0, 3.5, 4.0], [0.0] * 4), 1) == 200.0


def test_cpu_seconds_of_a_process_whose_name_holds_spaces(monkeypatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    numbers = ["S", "1", *["0"] * 9, "250", "50", "7", "7"]
    assert cpu_s(f"12 (a (b) c) {' '.join(numbers)}") == 3.0
    assert cpu_s(f"12 (a (b) c) {' '.join(numbers)}", ended_children=True) == 3.14


def test_cpu_seconds_a_step_are_a_slope() -> None:
    assert slope([Sample(1000, 5.0), Sample(2000, 5.2), Sample(3000, 5.4)]) == pytest.approx(0.0002)


def test_one_sample_is_no_slope_and_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"1 samples give no slope: .* more --updates"):
        slope([Sample(1000, 5.0)])


@pytest.mark.nightly  # Five seconds. Shorter: those above, of given numbers.
def test_cpu_seconds_of_a_real_run() -> None:
    words = ["--env", "CartPole-v1", "--num_workers", "1", "--num_steps", "512", "--timesteps", "60000"]
    assert 1e-6 < cpu_per_step(words, workers=1, skip=1) < 1e-2
