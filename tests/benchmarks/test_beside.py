"""Reading two long runs for a picture with both. Nothing is trained here."""

import json
from pathlib import Path

import pytest
import tomli_w

from benchmarks.learning.beside import Trained, compared, draw, of_ours, of_output, of_run, of_theirs
from benchmarks.learning.pairs import OURS, PAIRS, PEER, at_defaults
from benchmarks.learning.run import HERE
from benchmarks.peers.install import HERE as PEERS
from benchmarks.runs import Curve
from penstock.algorithms.td3.spec import TD3Config

PAIR = PAIRS["halfcheetah-sac"]


def run_folder(folder: Path, **other: object) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text(tomli_w.dumps(PAIR.settings()[OURS] | {"seed": 2} | other))
    reports = [
        {"update": 1, "steps": 64, "time_s": 0.5, "rollout/return_mean": -300.0},
        {"update": 2, "steps": 128, "time_s": 1.0, "rollout/return_mean": 4000.0},
        {"update": 2, "steps": 128, "time_s": 1.0, "eval/return_mean": 4500.0, "eval/return_std": 50.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
    return folder


def test_a_run_folder_is_read(tmp_path: Path) -> None:
    found = of_run(PAIR, run_folder(tmp_path / "run"))
    assert found == (2, Curve([64, 128], [0.5, 1.0], [-300.0, 4000.0]), 4500.0, 50.0)
    line = {"steps": [64, 128], "seconds": [0.5, 1.0], "returns": [-300.0, 4000.0]}
    known = {"seed": 2, "mean_return": 4500.0, "last_100": 4000.0, "seconds": 1, "curve": line}
    assert found.entry() == known | {"std_return": 50.0}
    assert found._replace(std_return=None).entry() == known


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not trained as --preset halfcheetah .* says: \{'threads': 2, 'lr': 0.01\}"):
        of_run(PAIR, run_folder(tmp_path / "run", lr=0.01, threads=2))


def test_a_run_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(ValueError, match="has not ended: it holds no greedy episodes"):
        of_run(PAIR, run)


THEIRS = {"seed": 1, "mean_return": 10.0, "curve": {"steps": [1000], "seconds": [9.5], "returns": [-5.0]}}


def test_the_peers_line_is_read_also_where_it_names_no_settings() -> None:
    found = (1, Curve([1000], [9.5], [-5.0]), 10.0)
    assert of_output(PAIR, f"warning\nRESULT {json.dumps(THEIRS)}\n") == (*found, None)
    assert of_output(PAIR, f"RESULT {json.dumps(THEIRS | PAIR.theirs | {'std_return': 2.0})}") == (*found, 2.0)


@pytest.mark.parametrize("name", PAIR.theirs)
def test_a_peers_line_with_other_settings_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"seed 1 of stable-baselines3 .* other settings: \{{'{name}': 'other'\}}"):
        of_output(PAIR, f"RESULT {json.dumps(THEIRS | PAIR.theirs | {name: 'other'})}")


def test_a_long_curve_is_written_down_in_few_points_up_to_its_last() -> None:
    numbers = list(range(1000))
    written = Trained(0, Curve(numbers, list(map(float, numbers)), list(map(float, numbers))), 1.0, None).entry()
    assert written["curve"]["steps"] == [number for number in numbers if number % 7 == 999 % 7]
    assert len(written["curve"]["returns"]) == 143


def test_an_earlier_result_stands_in_for_runs_of_either_side(tmp_path: Path) -> None:
    mine = of_run(PAIR, run_folder(tmp_path / "run"))
    found = {OURS: [mine], PEER: [trained(2, 3.0)]}
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(compared(PAIR, found, pinned=False)))
    assert of_ours(PAIR, earlier) == of_ours(PAIR, tmp_path / "run") == [mine]
    assert of_theirs(PAIR, earlier) == found[PEER]


@pytest.mark.parametrize(("side", "read"), [(OURS, of_ours), (PEER, of_theirs)])
def test_an_earlier_result_of_other_settings_is_refused(tmp_path: Path, side: str, read) -> None:
    result = compared(PAIR, {OURS: [trained(0, 1.0)], PEER: [trained(0, 2.0)]}, pinned=False)
    changed = result["settings"] | {side: result["settings"][side] | {"lr": 0.5}}
    (tmp_path / "earlier.json").write_text(json.dumps(result | {"settings": changed}))
    with pytest.raises(ValueError, match=r"trained with other settings: \{'lr': 0.5\}"):
        read(PAIR, tmp_path / "earlier.json")


def test_an_earlier_result_that_names_no_settings_is_read(tmp_path: Path) -> None:
    run, other = of_output(PAIR, f"RESULT {json.dumps(THEIRS | {'std_return': 2.0})}"), trained(0, 3.0)
    (tmp_path / "earlier.json").write_text(json.dumps({PEER: [run.entry(), other.entry()]}))
    assert of_theirs(PAIR, tmp_path / "earlier.json") == [run, other]
    (tmp_path / "log").write_text(f"RESULT {json.dumps(THEIRS)}")
    assert of_theirs(PAIR, tmp_path / "log") == [run._replace(std_return=None)]


def trained(seed: int, mean: float) -> Trained:
    return Trained(seed, Curve([64], [0.5], [-300.0]), mean, None)


def test_both_sides_are_compared_with_their_spread() -> None:
    found = {OURS: [trained(0, 10.0), trained(1, 20.0)], PEER: [trained(1, 12.0), trained(0, 16.0)]}
    result = compared(PAIR, found, pinned=False)
    assert result["holds"]
    assert result["mean_return"] == {OURS: 15.0, PEER: 14.0}
    assert result["range_over_seeds"] == {OURS: [10.0, 20.0], PEER: [12.0, 16.0]}
    # The root of 25 + 25, and of 4 + 4: of two values there is one degree of freedom.
    assert result["std_over_seeds"] == {OURS: 7.1, PEER: 2.8}


def test_ours_must_be_as_many_times_as_fast_as_the_pair_asks_for() -> None:
    found = {OURS: [lasting(0, 10.0), lasting(1, 30.0)], PEER: [lasting(0, 40.0), lasting(1, 60.0)]}
    # 50 s against 20 s.
    fast, slow = (compared(PAIR._replace(times=times), found, pinned=False) for times in (2.5, 2.6))
    assert fast["speed"] == {"name": "times as fast", "value": 2.5, "at_least": 2.5, "holds": True}
    assert (fast["holds"], slow["holds"]) == (True, False)


def lasting(seed: int, seconds: float) -> Trained:
    return Trained(seed, Curve([64], [seconds], [-300.0]), 1.0, None)


def test_only_those_that_were_pinned_say_so() -> None:
    found = {OURS: [trained(0, 1.0)], PEER: [trained(0, 2.0)]}
    free, pinned = (compared(PAIR, found, pinned=pinned) for pinned in (False, True))
    assert (free["each_on"], pinned["each_on"]) == ("one torch thread", "one core")
    assert [command.startswith("taskset -c CORE ") for command in free["commands"]] == [False, False]
    assert [command.startswith("taskset -c CORE ") for command in pinned["commands"]] == [True, True]


def test_other_seeds_are_not_compared() -> None:
    with pytest.raises(ValueError, match=r"the same seeds: \{'penstock': \[0, 1\], 'stable-baselines3': \[0, 2\]\}"):
        compared(
            PAIR, {OURS: [trained(0, 1.0), trained(1, 1.0)], PEER: [trained(0, 1.0), trained(2, 1.0)]}, pinned=False
        )


def test_the_committed_result_of_halfcheetah_is_read() -> None:
    committed = HERE / "results/halfcheetah-sac.json"
    assert [run.seed for run in of_ours(PAIR, committed)] == [run.seed for run in of_theirs(PAIR, committed)] == [0, 1]


@pytest.mark.parametrize("name", PAIRS)
def test_both_sides_of_a_pair_learn_the_same_task_for_as_long(name: str) -> None:
    pair = PAIRS[name]
    ours, theirs = pair.settings().values()
    assert {part: ours[part] for part in ("env", "timesteps", "threads")}.items() <= theirs.items()
    assert ours["eval_episodes"] == theirs["episodes"]
    assert (PEERS / pair.script).exists()
    assert (PEERS / f"requirements-{pair.environment}.txt").exists()


def test_ours_has_the_settings_of_the_peer_where_a_pair_says_so() -> None:
    ours = PAIRS["halfcheetah-sac-same-settings"].settings()[OURS]
    # The defaults of SAC in stable-baselines3 2.9.2, by our names.
    assert {name: ours[name] for name in ("lr", "critic_lr", "temperature_lr")} == dict.fromkeys(
        ("lr", "critic_lr", "temperature_lr"), 3e-4
    )
    theirs = {
        "num_envs": 1,
        "num_steps": 1,
        "updates_per_step": 1,
        "mini_batch_size": 256,
        "capacity": 1_000_000,
        "gamma": 0.99,
        "tau": 0.005,
        "hidden_sizes": [256, 256],
        "activation": "relu",
        "critics": 2,
        "optimizer": "adam",
        "adam_eps": 1e-8,
        "temperature": "auto",
        "target_entropy": "auto",
        "policy_delay": 1,
        "normalize_obs": False,
    }
    assert {name: ours[name] for name in theirs} == theirs


def test_a_pair_at_the_defaults_sets_nothing_of_the_algorithm() -> None:
    pair = at_defaults("td3", "X-v0", 100, "sb3-box2d")
    assert vars(TD3Config()).keys() & {*pair.ours, *pair.theirs} == set()
    assert pair.settings()[OURS]["critic_lr"] == TD3Config().critic_lr
    assert pair.our_words()[:4] == ["--algo", "td3", "--env", "X-v0"]


def test_both_are_drawn(tmp_path: Path) -> None:
    run = of_run(PAIR, run_folder(tmp_path / "run"))
    draw(tmp_path / "beside.png", PAIR, {OURS: [run, run], PEER: [run]}, pinned=True)
    assert (tmp_path / "beside.png").read_bytes().startswith(b"\x89PNG")
