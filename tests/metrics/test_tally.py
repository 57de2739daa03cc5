"""Tally: the metrics of several updates, added up for one line."""

from penstock.metrics.tally import Tally


def test_losses_and_ages_are_means_counts_of_a_line_are_sums_and_counts_of_the_run_are_the_latest() -> None:
    tally = Tally()
    tally.add({"loss/policy": 1.0, "gradients/lag": 3.0, "gradients/lag_max": 7.0, "exchange/bytes": 100.0})
    tally.add({"loss/policy": 2.0, "policy/lag": 4.0, "replay/ratio": 0.5})
    tally.add({"loss/policy": 6.0, "gradients/lag": 1.0, "gradients/lag_max": 2.0, "exchange/bytes": 20.0})
    tally.add({"exchange/bytes": 3.0, "policy/lag": 5.0, "replay/ratio": 0.25, "gradients/applied": 9.0})
    assert tally.values() == {
        "loss/policy": 3.0,  # (1 + 2 + 6) / 3: the last update has no loss
        "gradients/lag": 2.0,
        "gradients/lag_max": 7.0,
        "exchange/bytes": 123.0,
        "policy/lag": 4.5,
        "replay/ratio": 0.25,
        "gradients/applied": 9.0,
    }


def test_a_tally_begins_anew_after_a_line() -> None:
    tally = Tally()
    tally.add({"loss/policy": 1.0, "exchange/bytes": 100.0})
    tally.clear()
    assert tally.values() == {}
    tally.add({"loss/policy": 4.0, "exchange/bytes": 5.0})
    assert tally.values() == {"loss/policy": 4.0, "exchange/bytes": 5.0}
