"""What the comparison of the Ray runtime with the local one and with RLlib judges. Nothing is trained here."""

import pytest

from benchmarks.cluster import CLAIMS, judged, settled
from benchmarks.runs import Curve, rate


def test_ray_may_cost_five_hundredths_and_a_claim_is_a_bar() -> None:
    rates = {"local": [100.0, 90.0, 110.0], "ray": [94.0], "DistributedPPO": [1_000.0], "RLlib": [90.0, 100.0, 110.0]}
    claim = CLAIMS[0]
    claimed = {"steps_per_s": claim.steps_per_s, "mean_return": claim.mean_return}
    row = {"what": claim.what, "claimed": claimed, "steps_per_s": 501, "mean_return": -200.1}
    found = [(bar.name, round(bar.value, 2), bar.bar, bar.holds) for bar in judged(rates, [row])]
    assert found == [
        ("Ray runtime / local runtime, one machine", 0.94, 0.95, False),
        ("DistributedPPO / RLlib's PPO", 10.0, 10.0, True),
        ("1 environment: steps_per_s", 501, 500, True),
        ("1 environment: mean_return", -200.1, -200, False),
    ]


def test_what_ray_does_while_it_starts_does_not_count() -> None:
    # A thousand steps in the first three seconds, two thousand in the next two.
    log = Curve([0, 1000, 2000, 3000], [0.5, 3.0, 4.0, 5.0], [0.0] * 4)
    assert rate(log, settled(log)) == 1000
    with pytest.raises(ValueError, match=r"the run took 3.0 s, and 3.0 s do not count; give more updates"):
        settled(Curve([0, 1000], [0.5, 3.0], [0.0] * 2))
