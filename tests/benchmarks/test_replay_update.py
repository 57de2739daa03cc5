"""The operations of a gradient step, and the bars that follow from them. What it measures is of no account here."""

import pytest

from benchmarks import peak
from benchmarks.replay_update import CARTPOLE, CASES, PENDULUM, Case, measure, operations


def case(algo: str, spaces, **settings) -> Case:
    return Case(algo, algo, spaces, {"hidden_sizes": (2,), "mini_batch_size": 1, **settings}, {}, {})


def test_the_operations_of_one_row_are_those_of_its_products() -> None:
    # SAC: the actor is 3 x 2 and 2 x 2: 20 operations, 12 in the first layer. A critic is 4 x 2 and 2 x 1: 20 and 16.
    # Critics' phase: the actor once, and each of two critics four times but once its first layer: 20 + 2 (80 - 16).
    # Actor's phase: the actor three times but once its first layer, and both critics twice: 60 - 12 + 2 x 40.
    assert operations(case("sac", PENDULUM)) == 148 + 128
    # TD3: the actor is 3 x 2 and 2 x 1: 16 and 12. Critics' phase: 16 + 2 (80 - 16). Every second step the actor's:
    # 48 - 12, and one critic twice, 40.
    assert operations(case("td3", PENDULUM)) == 144 + 76 / 2
    # DQN: 4 x 2 and 2 x 2: 24 and 16. Three times forward, and twice back but once the first layer.
    assert operations(case("dqn", CARTPOLE)) == 120 - 16


@pytest.mark.nightly
def test_the_bar_of_a_share_of_the_peak_is_in_every_result() -> None:
    rows = measure(CASES, ["fused"], {1: 1e11, 2: 2e11}, rounds=1, steps=1)
    found = {(row.case, row.what): row for row in rows}
    (large,) = [each for each in CASES if each.of_peak]
    limit = found[large.name, "its operations, two cores"].us
    assert limit == pytest.approx(operations(large) / 2e11 * 1e6, abs=1e-3)
    assert found[large.name, "fused, 2 threads"].may_be_us == pytest.approx(limit / 0.75, abs=1e-3)
    assert found[large.name, "fused, 1 thread"].may_be_us is None


def test_the_peak_is_measured_on_as_many_threads_as_are_asked_for() -> None:
    one, two = (peak.operations_per_second(threads) for threads in (1, 2))
    # A core of any machine that trains does a billion a second; two threads need not be two cores.
    assert min(one, two) > 1e9
