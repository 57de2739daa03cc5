"""The ratios and bars of batches, from figures that stand here."""

from benchmarks.serve_batching import ALONE, CLIENTS, POLICIES, TOGETHER, WAYS, Case, Figures, bars_of, gains


def figures(ticks: float) -> Figures:
    return Figures(ticks, 1.0, 2.0, 0.0, 30.0, 4.0)


def test_batches_are_compared_with_every_tick_alone() -> None:
    found = {Case(policy, way, clients): figures(100.0) for policy in POLICIES for way in WAYS for clients in CLIENTS}
    large = Case("two layers of 512", TOGETHER, 64)
    found[large] = figures(140.0)
    assert gains(found)[large.policy] == {clients: 1.4 if clients == 64 else 1.0 for clients in CLIENTS}
    assert [(bar.value, bar.holds) for bar in bars_of(found)] == [(1.0, True), (1.4, False)]


def test_without_its_number_of_clients_there_is_no_bar() -> None:
    found = {Case("two layers of 64", way, 2): figures(100.0) for way in (ALONE, TOGETHER)}
    assert bars_of(found) == []
