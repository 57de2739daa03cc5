"""The table of learning results and its judge. Nothing is trained here: `make learn` does."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import alike
from benchmarks.learning.alike import at_places, overlap
from benchmarks.learning.run import HERE, bound, draw, in_both_modes, preset_of, verdict
from benchmarks.runs import Curve
from penstock.algorithms.appo.spec import APPOConfig
from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.algorithms.ppo.spec import PPOConfig
from penstock.config.flags import config_from_arguments


def test_the_table_holds_every_promise() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    promised = {
        ("ppo", "auto", "Pendulum-v1", 1_000_000, -200, -175),
        ("ppo", "auto", "CartPole-v1", 150_000, 475, None),
        # With a hundredth of each gradient.
        ("ppo", "auto", "CartPole-v1", 500_000, 475, None),
        ("ppo", "auto", "Pendulum-v1", 150_000, -200, None),
        ("ppo", "auto", "Acrobot-v1", 150_000, -100, None),
        ("ppo", "auto", "MountainCarContinuous-v0", 150_000, 90, None),
        ("sac", "auto", "Pendulum-v1", 12_000, -160, None),
        ("ddpg", "auto", "Pendulum-v1", 12_000, -160, None),
        ("td3", "auto", "Pendulum-v1", 12_000, -160, None),
        *((algo, "auto", "Pendulum-v1", 20_000, -160, None) for algo in ("dsac", "dsact")),
        ("dqn", "auto", "CartPole-v1", 45_000, 475, None),
        ("dqn", "non_blocking", "CartPole-v1", 45_000, 475, None),
        ("apex", "auto", "CartPole-v1", 60_000, 475, None),
        ("ppo", "auto", "benchmarks.learning.tasks:RanksEnv", 40_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:DigitsEnv", 20_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:BitsEnv", 20_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:AimEnv", 30_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:MaskedAimEnv", 30_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:PictureEnv", 20_000, 9.8, None),
        ("ppo", "auto", "benchmarks.learning.tasks:RecalledRanksEnv", 100_000, 9.8, None),
        ("sac", "auto", "benchmarks.learning.tasks:RecalledAimEnv", 20_000, 9.8, None),
        ("sac", "auto", "benchmarks.learning.tasks:RecalledAimEnv", 20_000, None, None),
        ("ppo", "auto", "benchmarks.peers.stateless_cartpole:make_env", 500_000, 450, None),
        ("ppo", "auto", "benchmarks.peers.stateless_cartpole:make_env", 500_000, None, None),
        *((algo, "auto", "CartPole-v1", 500_000, 475, None) for algo in ("impala", "appo", "a3c")),
        *((algo, "auto", "Acrobot-v1", 1_000_000, -100, None) for algo in ("impala", "appo", "a3c")),
        *(
            (algo, "auto", "benchmarks.peers.stateless_cartpole:make_env", 1_000_000, 400, None)
            for algo in ("impala", "appo")
        ),
        ("ppo", "auto", "popgym:popgym-RepeatPreviousEasy-v0", 1_000_000, 0.9, None),
        ("r2d2", "blocking", "popgym:popgym-RepeatPreviousEasy-v0", 150_000, 0.9, None),
        ("dqn", "blocking", "popgym:popgym-RepeatPreviousEasy-v0", 150_000, None, None),
        ("appo", "auto", "LunarLander-v3", 500_000, None, 207.9),
        ("ppo", "auto", "minigrid:MiniGrid-DoorKey-5x5-v0", 500_000, 0.9, None),
    }
    found = set()
    for row in table.values():
        run = config_from_arguments(row["arguments"]).run
        found.add((run.algo, run.sync_mode, run.env, run.timesteps, row.get("each"), row.get("mean")))
    assert found == promised


def test_a_row_is_of_a_preset_or_of_the_defaults_or_of_a_task_of_its_own() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    plain = [name for name, row in table.items() if preset_of(row) is None]
    of_actions = ["masked-choice", "several-choices", "bits", "parameterised", "parameterised-masked", "picture"]
    of_memory = ["recalled-choice", "cartpole-without-memory", "cartpole-lstm", "cartpole-gru", "repeat-previous-gru"]
    of_memory += ["repeat-previous-r2d2", "repeat-previous-dqn", "recalled-aim-sac", "recalled-aim-sac-without-memory"]
    lagging = [f"impala-{task}" for task in ("cartpole", "acrobot", "lstm")]
    lagging += [f"appo-{task}" for task in ("cartpole", "acrobot", "lunarlander", "lstm")]
    apart = ["a3c-cartpole", "a3c-acrobot"]
    assert plain == ["pendulum", *of_actions, *of_memory, "door-key", *lagging, *apart]
    assert preset_of(table["dqn-cartpole-overlapping"]) == "dqn-cartpole"
    config = config_from_arguments(table["pendulum"]["arguments"])
    assert config.algorithm == PPOConfig()
    assert config_from_arguments(table["impala-cartpole"]["arguments"]).algorithm == IMPALAConfig()
    assert config_from_arguments(table["appo-cartpole"]["arguments"]).algorithm == APPOConfig()


def test_dqn_differs_from_r2d2_only_in_what_it_lacks() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    with_memory, without = (table[f"repeat-previous-{algo}"]["arguments"] for algo in ("r2d2", "dqn"))
    assert [word for word in with_memory if word not in {"r2d2", "--model", "gru"}] == [
        word for word in without if word != "dqn"
    ]


def test_sac_without_memory_differs_from_sac_with_one_only_in_that() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    with_memory = [word for word in table["recalled-aim-sac"]["arguments"] if word not in {"--model", "gru"}]
    assert with_memory == table["recalled-aim-sac-without-memory"]["arguments"]


def test_appo_on_lunarlander_is_to_reach_what_ppo_did() -> None:
    table = tomllib.loads((HERE / "thresholds.toml").read_text())
    reached = json.loads((HERE / "results/lunarlander-ppo.json").read_text())["mean_return"]["penstock"]
    assert bound(table["appo-lunarlander"]) == reached
    assert config_from_arguments(table["appo-lunarlander"]["arguments"]).algorithm == APPOConfig()


def test_rows_of_both_modes_have_a_name_for_each() -> None:
    table = {"one": {"arguments": []}, "other": {"arguments": [], "both_modes": False}}
    assert in_both_modes(table) == {
        "one": (table["one"], []),
        "other": (table["other"], []),
        "one-non-blocking": (table["one"], ["--sync_mode", "non_blocking"]),
    }


def test_a_seed_below_its_threshold_falls_short() -> None:
    assert verdict({"each": -200}, {3: -150.0, 5: -200.5, 7: -199.9}) == ["seed 5: -200.5 < -200"]


def test_a_seed_that_should_stay_below_falls_short_above() -> None:
    assert verdict({"below": 150}, {3: 43.0, 5: 150.0, 7: 149.9}) == ["seed 5: 150.0 >= 150"]


def test_the_mean_is_judged_too() -> None:
    row = {"each": -200, "mean": -175}
    # (-190 - 180 - 170) / 3 = -180
    assert verdict(row, {0: -190.0, 1: -180.0, 2: -170.0}) == ["mean: -180.0 < -175"]
    assert verdict(row, {0: -170.0, 1: -160.0, 2: -150.0}) == []


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


def test_ranges_that_are_apart_by_a_hundredth_of_the_curve_meet() -> None:
    # The curves of the first value span 0..10: ranges may be 0.1 apart.
    plain = np.array([[0.0, 9.9, 10.0], [1.0, 9.9, 10.0]])
    assert overlap(np.array([[1.05, 9.8, 9.85], [1.2, 9.85, 9.89]]), plain) == pytest.approx(2 / 3)


def test_a_row_is_compared_by_the_checkpoint_and_the_curve_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []
    monkeypatch.setattr(alike, "train", lambda folder, words: Path(words[-1]))

    def curve(run: Path, of: str) -> Curve:
        asked.append(("curve", of))
        return Curve([0, 10], [0.0, 1.0], [1.0, 2.0])

    def evaluate(run: Path, episodes: int, checkpoint: str, seed: int) -> dict[str, float]:
        asked.append((checkpoint, seed))
        return {"mean_return": 480.0}

    monkeypatch.setattr(alike, "curve", curve)
    monkeypatch.setattr(alike, "evaluate", evaluate)
    monkeypatch.setattr(alike, "draw", lambda *given: None)
    monkeypatch.setattr(alike, "write", lambda path, result: asked.append((path.name, result["holds"])))
    (setting, _) = alike.SETTINGS
    table = tomllib.loads((HERE / "thresholds.toml").read_text("utf-8"))
    assert alike.learn(setting, "dqn-cartpole", table["dqn-cartpole"], [0]) == []
    of_one = [("curve", "eval/return_mean"), ("best", 1_000_000)]
    assert asked == [*of_one * len(setting.values), ("backends-dqn-cartpole.json", True)]
    assert set(setting.rows) <= set(table)
