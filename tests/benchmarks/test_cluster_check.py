"""The costs that runs tell, and how far the model is off, worked out by hand. Hosts are made by the benchmark only."""

from dataclasses import asdict, replace

import pytest

from benchmarks import hosts
from benchmarks.cluster_check import (
    EPOCHS,
    FEW,
    MANY,
    MOST,
    SHORT,
    TASKS,
    TIMES,
    Measured,
    Run,
    Runs,
    Task,
    bars_of,
    measured_by,
    median_check,
    median_measured,
    setting_of,
    trained,
    without,
)
from benchmarks.simulated_cluster import Cluster, Costs

COSTS = Costs(rollout_s=0.0005, turn_s=0.014, batch_s=0.001, pass_s=60e-6, row_s=15e-6, local_bytes_s=500e6)
STEP_S = 0.0052


BATCH_WORK_S, STEP_WORK_S, ROLLOUT_S, VERSION_S = 0.002, 0.0001, 0.001, 0.009


def run_of(workers: int, *, hosts: int = 1, times: int = 1) -> Run:
    """A run that costs just this, in time and in work of the cores; on no host none of what a cluster costs."""
    learn = COSTS.batch_s + times * (EPOCHS * COSTS.pass_s + workers * SHORT * COSTS.row_s)
    there = workers * COSTS.rollout_s + COSTS.turn_s if hosts else 0.0
    period = SHORT * STEP_S + learn + there
    work = (
        BATCH_WORK_S
        + workers * SHORT * STEP_WORK_S
        + learn
        + hosts * VERSION_S
        + (workers * ROLLOUT_S if hosts else 0.0)
    )
    return Run(period, learn, workers * SHORT / period, work)


def test_costs_are_those_that_explain_the_runs() -> None:
    slow, slowest = (run_of(workers, hosts=0, times=TIMES) for workers in (FEW, MANY))
    alone, crowd = run_of(1, hosts=0), run_of(MANY, hosts=0)
    runs = Runs(alone, crowd, slow, slowest, run_of(FEW), run_of(MANY), run_of(FEW, hosts=MOST))
    found = measured_by(runs, COSTS.local_bytes_s)
    assert asdict(found.costs) == pytest.approx(asdict(COSTS))
    assert found[1:] == pytest.approx((STEP_S, STEP_WORK_S, ROLLOUT_S, VERSION_S))
    # Four steps of 0.1 ms.
    shared = found.shared(Task("by hand", num_steps=4))
    assert (shared.rollout_s, shared.version_s) == pytest.approx((0.001 + 4 * 0.0001, 0.009))


def test_bytes_of_rows_and_weights() -> None:
    # Two networks: 4 x 64 + 64, 64 x 64 + 64 each; 64 x 2 + 2 for the actions, 64 + 1 for the value; 4 bytes a number.
    assert Task("by hand").weights_bytes == 4 * (2 * (320 + 4160) + 130 + 65)
    assert Task("by hand", numbers=256).row_bytes - Task("by hand").row_bytes == 4 * 252


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_shows_what_its_limit_costs(task: Task) -> None:
    """With the costs of a machine of today, at least one of its runs would be more than 20 % off without that cost."""
    number = max(task.hosts)
    setting = setting_of(task, 0, COSTS, STEP_S)
    whole = Cluster(setting, COSTS, number).run()
    less = without(task.name, setting, COSTS)
    if less is None:
        assert whole.limit == task.name == "workers"
        return
    # The way back is no queue. A relay with more to do than the workers would need more cores than this machine has.
    assert whole.limit == ("workers" if task.name in {"turn", "relay"} else task.name)
    assert Cluster(*less, number).run().steps_per_s > 1.25 * whole.steps_per_s


def test_the_model_must_be_near_and_each_cost_must_count() -> None:
    check = [
        {"task": "workers", "off": 0.1},
        {"task": "relay", "off": -0.05, "off_without": 0.1},
        {"task": "relay", "off": -0.25, "off_without": 0.5},
        {"task": "turn", "off": 0.0, "off_without": 0.15},
    ]
    bars = bars_of(check)
    assert [(round(bar.value, 3), bar.holds) for bar in bars] == [(0.25, False), (0.5, True), (0.15, False)]
    assert [bar.name for bar in bars[1:]] == [
        "the same if relay cost nothing, largest difference",
        "the same if turn cost nothing, largest difference",
    ]


def test_rounds_count_by_their_medians() -> None:
    rounds = [
        Measured(replace(COSTS, row_s=row), step, 0.1, 0.2, 0.3) for row, step in ((1.0, 7.0), (5.0, 9.0), (3.0, 8.0))
    ]
    assert median_measured(rounds) == Measured(replace(COSTS, row_s=3.0), 8.0, 0.1, 0.2, 0.3)
    # A round on slow cores measures 50 beside a model of 60, another 100 beside 90. Only the third is far off.
    figures = ((50.0, 60.0, 0.2, "cores"), (100.0, 90.0, -0.1, "relay"), (60.0, 90.0, 0.5, "relay"))
    checks = [
        [{"task": "relay", "hosts": 3, "lag": 0, "measured": real, "model": model, "off": off, "limit": limit}]
        for real, model, off, limit in figures
    ]
    assert median_check(checks) == [
        {"task": "relay", "hosts": 3, "lag": 0, "measured": 60.0, "model": 90.0, "off": 0.2, "limit": "relay"}
    ]
    assert median_check(checks[1:]) == [
        {"task": "relay", "hosts": 3, "lag": 0, "measured": 80.0, "model": 90.0, "off": 0.2, "limit": "relay"}
    ]


def test_a_limited_link_is_limited_at_both_ends(monkeypatch) -> None:
    said: list[list[str]] = []
    monkeypatch.setattr(hosts.subprocess, "run", lambda words, **_: said.append(words))
    hosts.Host(2, {"CPU": 1}, None).limit(1e6)
    assert [words[: words.index("root")] for words in said] == [
        ["tc", "qdisc", "replace", "dev", "penstockbr2"],
        ["tc", "-n", "penstock-2", "qdisc", "replace", "dev", "eth0"],
    ]
    assert all(words[words.index("rate") + 1] == "8000000bit" for words in said)


@pytest.mark.alone  # It adds up the work of all processes, and those that end meanwhile take theirs with them.
@pytest.mark.nightly  # Four seconds. Shorter: the runs of ``test_sleeping.py``.
def test_a_real_run_at_its_smallest() -> None:
    task = Task("by hand", num_steps=2, numbers=8, hidden=(4, 4), batches=60)
    real = trained(task, 2)
    assert real.period_s > 2 * 0.005
    assert 0 < real.learn_s < real.period_s
    assert real.steps_per_s == pytest.approx(2 * 2 / real.period_s)
    assert real.work_s > 0
