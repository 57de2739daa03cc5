"""The model of a cluster against times worked out by hand."""

from dataclasses import replace

import pytest

from benchmarks.cluster_model import committed_costs, settings, table
from benchmarks.simulated_cluster import Cluster, Costs, Setting, Shared

COSTS = Costs(rollout_s=0.1, turn_s=0.5, batch_s=0.0, row_s=0.0, local_bytes_s=1.0)
SETTING = Setting(
    name="by hand",
    workers=1,
    lanes=1,
    num_steps=10,
    step_s=0.1,
    row_bytes=2,
    weights_bytes=30,
    link_bytes_s=100.0,
    row_s=0.04,
    spread=0.0,
)


def test_in_lock_step_a_batch_takes_the_sum_of_all_queues() -> None:
    # Collecting 1 s, link 20 / 100, relay 0.1, learning 10 * 0.04, the way back 30 / 100 and 0.5.
    outcome = Cluster(SETTING, COSTS, 1).run()
    assert outcome.steps_per_s == pytest.approx(10 / 2.5)
    assert outcome.lag == 0
    assert outcome.busy["workers"] == pytest.approx(1 / 2.5)
    # What a batch costs beside its rows comes once.
    assert Cluster(SETTING, replace(COSTS, batch_s=0.25), 1).run().steps_per_s == pytest.approx(10 / 2.75)


def test_a_version_ahead_the_slowest_queue_decides() -> None:
    # The worker waits for a version only where its way there and back is longer than collecting.
    outcome = Cluster(replace(SETTING, lag=2), COSTS, 1).run()
    assert outcome.steps_per_s == pytest.approx(10 / 1.0)
    assert outcome.limit == "workers"
    assert outcome.lag > 0


def test_many_machines_wait_for_the_learner_and_several_learners_share_its_work() -> None:
    crowd = replace(SETTING, lag=2, row_s=1.0)
    alone = Cluster(crowd, COSTS, 20).run()
    assert alone.limit == "learners"
    assert alone.steps_per_s == pytest.approx(1.0, rel=0.01)
    # 20 rollouts of 10 rows, two minibatches of 1,000: 3 x 30 / 100 s each for gradients, and 200 s / 4 for the rows.
    shared = Cluster(replace(crowd, learners=4, mini_batch_size=1000), COSTS, 20).run()
    assert shared.steps_per_s == pytest.approx(200 / (50 + 2 * 0.9), rel=0.01)


def test_each_learner_gets_the_gradients_of_all_others_over_its_link() -> None:
    # A batch of 10 rows is 100 minibatches of one row. Each takes (K - 1) x 30 / 100 s beside 10 / K s for the batch.
    crowd = replace(SETTING, lag=2, row_s=1.0, mini_batch_size=1)
    for learners, seconds in ((1, 10.0), (2, 5.0 + 100 * 0.3), (5, 2.0 + 100 * 1.2)):
        found = Cluster(replace(crowd, learners=learners), COSTS, 1).run()
        assert found.steps_per_s == pytest.approx(10 / seconds, rel=0.01)


def test_all_machines_get_a_version_at_once_and_share_the_link() -> None:
    # Collecting 1 s; 3 x 20 / 100 on the link and the relay of the last rollout 0.1; learning 30 x 0.04; 3 x 1000 / 100
    # on the link back, and 0.5.
    outcome = Cluster(replace(SETTING, weights_bytes=1000), COSTS, 3).run()
    assert outcome.steps_per_s == pytest.approx(30 / (1 + 0.6 + 0.1 + 1.2 + 30 + 0.5))
    assert outcome.limit == "link out"


def test_versions_that_come_while_one_is_on_its_way_are_left_out() -> None:
    # A batch takes a second to collect, and a version 4 s to send: about every fourth one is sent. Lag 12 covers that.
    outcome = Cluster(replace(SETTING, weights_bytes=400, lag=12), COSTS, 1).run()
    assert outcome.steps_per_s == pytest.approx(10 / 1.0, rel=0.01)
    assert outcome.busy["link out"] == pytest.approx(1.0, abs=0.15)


def test_imitated_hosts_wait_for_the_cores_that_they_share() -> None:
    # From a version's arrival on, the cores work without a pause: 3 x 0.4 / 2 s for the version, 3 x 1.5 / 2 s for the
    # rollouts. Then come the link of the last rollout with 20 / 100 s, the relay with 0.1 s, learning with 30 x 0.04 s,
    # and the link back with 3 x 30 / 100 s.
    shared = Shared(cores=2, rollout_s=1.5, version_s=0.4)
    outcome = Cluster(SETTING, COSTS, 3, shared).run()
    assert outcome.steps_per_s == pytest.approx(30 / (0.6 + 2.25 + 0.2 + 0.1 + 1.2 + 0.9))
    assert outcome.limit == "cores"
    # With enough of them nothing waits.
    many = Cluster(SETTING, COSTS, 3, replace(shared, cores=1000)).run()
    assert many.steps_per_s == pytest.approx(Cluster(SETTING, COSTS, 3).run().steps_per_s, rel=0.01)


def test_imitated_hosts_take_the_core_of_a_busy_learner() -> None:
    # One version ahead, with a learner that is always busy. Each batch of it takes 10 x 0.4 s. Meanwhile the host
    # begins one rollout, which takes 1.5 s of processor time, and gets one version, which takes 0.5 s. Half of both
    # falls on the learner's core.
    ahead = replace(SETTING, lag=1, row_s=0.4)
    assert Cluster(ahead, COSTS, 1).run().steps_per_s == pytest.approx(10 / 4.0)
    outcome = Cluster(ahead, COSTS, 1, Shared(cores=2, rollout_s=1.5, version_s=0.5)).run()
    assert outcome.steps_per_s == pytest.approx(10 / (4.0 + 1.5 / 2 + 0.5 / 2))
    assert outcome.limit == "learners"


def test_a_version_takes_cores_from_the_rollouts_that_are_under_way() -> None:
    # A rollout takes 1 s, and the version of the batch before comes in the middle of it: half of its 0.5 s of processor
    # time falls on each core. In lock step none is under way then.
    shared = Shared(cores=2, rollout_s=0.0, version_s=0.5)
    ahead = Cluster(replace(SETTING, lag=1, row_s=0.0), COSTS, 1, shared).run()
    assert ahead.steps_per_s == pytest.approx(10 / (1 + 0.5 / 2))
    assert Cluster(SETTING, COSTS, 1, shared).run().steps_per_s == pytest.approx(10 / 2.5)


def test_the_committed_costs_give_the_tables() -> None:
    costs = committed_costs()
    assert costs.rollout_s > 0
    (row,) = table(settings(costs)[0], costs, [1])
    assert row["steps_per_s"] > 0
