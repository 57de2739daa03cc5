"""What the comparison of APPO with Sample Factory's judges. Nothing is trained here."""

from benchmarks.appo import judged


def test_ours_has_to_be_three_times_as_fast_and_no_worse() -> None:
    rates = {
        "penstock, Python environments": [290.0, 310.0, 300.0],
        "Sample Factory, Python environments": [100.0, 90.0, 110.0],
        "penstock, EnvPool": [299.0],
        "Sample Factory, EnvPool": [100.0],
    }
    bars = judged(rates, {"penstock": [400.0, 500.0], "Sample Factory": [450.0, 451.0]})
    assert [(round(bar.value, 3), bar.bar, bar.holds) for bar in bars] == [
        (3.0, 3.0, True),
        (2.99, 3.0, False),
        (450.0, 450.5, False),
    ]
