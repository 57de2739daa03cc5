"""The table of learning results and its judge. Nothing is trained here: `make learn` does."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.backends import at_places, overlap
from benchmarks.learning.run import HERE, draw, verdict
from benchmarks.runs import Curve


def test_the_table_holds_every_promise() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    promised = {
        ("ppo", "Pendulum-v1", "1000000", -200, -175),
        ("ppo", "CartPole-v1", "150000", 475, None),
        ("ppo", "Pendulum-v1", "150000", -200, None),
        ("ppo", "Acrobot-v1", None, -100, None),
        ("ppo", "MountainCarContinuous-v0", None, 90, None),
        ("sac", "Pendulum-v1", "12000", -160, None),
        ("ddpg", "Pendulum-v1", "12000", -160, None),
        ("td3", "Pendulum-v1", "10000", -160, None),
        *((algo, "Pendulum-v1", "20000", -160, None) for algo in ("dsac", "dsact")),
        ("dqn", "CartPole-v1", "100000", 475, None),
        ("dqn non_blocking", "CartPole-v1", "100000", 475, None),
        ("apex non_blocking", "CartPole-v1", "100000", 475, None),
    }
    found = set()
    for row in table.values():
        flags = dict(zip(row["arguments"][::2], row["arguments"][1::2], strict=True))
        algo = " ".join([flags.get("--algo", "ppo"), *([flags["--sync_mode"]] if "--sync_mode" in flags else [])])
        found.add((algo, flags["--env"], flags.get("--timesteps"), row["each"], row.get("mean")))
    assert found == promised


def test_a_seed_below_its_threshold_falls_short() -> None:
    assert verdict({"each": -200}, [-150.0, -200.5, -199.9]) == ["seed 1: -200.5 < -200"]


def test_the_mean_is_judged_too() -> None:
    row = {"each": -200, "mean": -175}
    # (-190 - 180 - 170) / 3 = -180
    assert verdict(row, [-190.0, -180.0, -170.0]) == ["mean: -180.0 < -175"]
    assert verdict(row, [-170.0, -160.0, -150.0]) == []


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    line = Curve([0, 100], [0.0, 1.0], [-1200.0, -150.0])
    draw(tmp_path / "curve.png", "penstock train", {"each": -200, "arguments": []}, [line, line, line])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_curves_overlap_where_the_ranges_over_their_seeds_meet() -> None:
    curves = [Curve([0, 100], [0.0, 1.0], [0.0, 10.0]), Curve([0, 100], [0.0, 1.0], [4.0, 14.0])]
    plain = at_places(curves, np.array([0, 50, 100]))  # ranges 0..4, 5..9, 10..14
    assert plain.tolist() == [[0.0, 5.0, 10.0], [4.0, 9.0, 14.0]]
    # 4.5..5 misses 0..4; 8..12 meets 5..9; 14..15 touches 10..14
    fast = np.array([[4.5, 8.0, 14.0], [5.0, 12.0, 15.0]])
    assert overlap(fast, plain) == pytest.approx(2 / 3)
