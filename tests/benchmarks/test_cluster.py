"""What the comparison of the Ray runtime with the local one and with RLlib judges. Nothing is trained here."""

from benchmarks.cluster import CLAIMS, judged


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
