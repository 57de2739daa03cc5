"""Notes about the end of a run and about a resume; a resumed run continues exactly."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli import main, output
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping, with_changes
from penstock.errors import NodeError, StallError
from penstock.metrics.jsonl import read_reports
from penstock.notes import (
    changes,
    differences,
    evaluation_given_up,
    failed_at_the_end,
    failure,
    never_seen,
    stale_rows,
    table_in_memory,
    unchanged,
)
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.saved_runs.manifest import write_manifest
from penstock.supervision.lives import Exit

SMALL = {
    "env": "tests.environments:ClockEnv",
    "num_steps": 20,
    "num_envs": 4,
    "num_workers": 1,
    "epochs": 1,
    "mini_batch_size": 40,
    "eval_episodes": 2,
    "runtime": "inline",
}
BATCH = 80


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


def log_of(run: Path) -> list[str]:
    """The lines of the run's log, without their times."""
    return [line.partition(" ")[2] for line in (run / "run.log").read_text().splitlines()]


def test_the_log_tells_how_each_life_of_a_run_ended(tmp_path: Path) -> None:
    run = train(tmp_path, 3).run_folder
    first = log_of(run)
    assert first[0].startswith("ppo on tests.environments:ClockEnv")
    assert first[1].startswith("update 3 | steps 240/240")
    assert re.fullmatch(r"return .* over 2 greedy episodes, .* steps each", first[2])
    assert first[3:] == ["ended after 240 steps, at update 3"]
    penstock.resume(run, timesteps=5 * BATCH, quiet=True)
    second = log_of(run)
    assert second[:4] == first
    assert second[4].startswith("ppo on tests.environments:ClockEnv")
    assert second[5] == "goes on from checkpoint update-00000003: 240 steps of 400"
    assert second[-1] == "ended after 400 steps, at update 5"
    (nothing,) = penstock.resume(run, quiet=True).notes
    third = log_of(run)[len(second) :]
    assert third[1:] == [nothing, "ended after 400 steps, at update 5"]


def test_the_log_tells_why_a_run_failed(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise NodeError("learner", "ValueError: shapes differ")

    run = train(tmp_path, 1).run_folder
    monkeypatch.setattr("penstock.runtime.inline.launch", fail)
    with pytest.raises(NodeError):
        penstock.resume(run, timesteps=5 * BATCH, quiet=True)
    assert log_of(run)[-1] == "failed: ValueError: shapes differ"


def test_a_run_that_dropped_many_rows_for_their_age_says_so() -> None:
    run = RunConfig(env="CartPole-v1", max_policy_lag=4)
    record = {"steps": np.array(9_900), "stale": np.array(100)}
    assert stale_rows(run, record) == ()
    (said,) = stale_rows(run, {**record, "stale": np.array(1_100)})
    assert said.startswith(
        "1,100 of 11,000 rows were dropped (rows/stale): they, or all gradients of their batch, were older than --m"
    )


def test_a_run_that_reached_its_timesteps_needs_no_word(tmp_path: Path) -> None:
    assert train(tmp_path, 3).notes == ()


def test_a_large_table_is_told_of_with_what_makes_it_smaller() -> None:
    assert table_in_memory(0) == table_in_memory((256 << 20) - 1) == ""
    assert table_in_memory(3 << 28) == "the replay table takes 768.0 MiB of memory; a smaller --capacity needs less"


def test_a_run_says_how_much_memory_its_table_takes(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("penstock.notes._LARGE_TABLE", 1)
    settings = ["--env", "tests.environments:ClockEnv", "--algo", "dqn", "--timesteps", "64", "--num_envs", "2"]
    rest = [
        "--num_workers",
        "1",
        "--num_steps",
        "8",
        "--capacity",
        "64",
        "--min_rows",
        "32",
        "--mini_batch_size",
        "32",
        "--runtime",
        "inline",
    ]
    assert main(["train", *settings, *rest, "--eval_episodes", "0", "--log_dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()[1]
    assert re.match(r"the replay table takes \d+\.\d KiB of memory; a smaller --capacity", said)


def test_a_resume_of_a_finished_run_says_what_to_type_and_trains_nothing(tmp_path: Path) -> None:
    first = train(tmp_path, 3)
    before = (first.run_folder / "metrics.jsonl").read_bytes()
    again = penstock.resume(first.run_folder, quiet=True)
    (line,) = again.notes
    assert line.startswith("nothing to do: the run has its 240 timesteps; to go on: penstock resume ")
    assert line.endswith("--timesteps 480")
    assert again.steps == first.steps
    (line,) = penstock.resume(first.run_folder, timesteps=80, quiet=True).notes
    assert line.startswith("nothing to do: the run has done 240 steps; to go on: penstock resume ")
    # The log has the final evaluation once.
    assert (first.run_folder / "metrics.jsonl").read_bytes() == before


def test_a_target_that_is_reached_is_said_with_both_numbers(tmp_path: Path) -> None:
    # Each episode of the clock has return 20. In each batch 4 lanes end one: 100 episodes after 25 updates.
    result = train(tmp_path, 40, target_return=19.5)
    assert result.updates == 25
    (line,) = result.notes
    assert line == "stopped at its target: the last 100 training episodes average 20.0, --target_return is 19.5"
    (line,) = penstock.resume(result.run_folder, quiet=True).notes
    assert "--target_return has ended the run" in line
    assert line.endswith(f"penstock resume {result.run_folder} --target_return none")
    assert penstock.resume(result.run_folder, settings={"target_return": None}, quiet=True).updates == 40


def test_fewer_timesteps_for_a_run_that_its_target_ended_are_not_its_reason_and_change_nothing(tmp_path: Path) -> None:
    run = train(tmp_path, 40, target_return=19.5).run_folder
    config = (run / "config.toml").read_text()
    line, kept = penstock.resume(run, timesteps=BATCH, quiet=True).notes
    assert "--target_return has ended the run" in line
    assert kept == "--timesteps is still 3200, not 80: give it in the command above as well"
    assert (run / "config.toml").read_text() == config


def test_early_stop_counts_on_after_a_resume(tmp_path: Path) -> None:
    # Every evaluation of the clock gives 20: the first is the best, none after it is better.
    settings = {"eval_interval": 1, "early_stop": 6}
    first = train(tmp_path, 4, **settings)
    counted = int(load_checkpoint(find_checkpoint(first.run_folder)).arrays["since_best"])
    # In lock step no evaluation is left out, and no verdict comes late.
    assert counted == 3
    second = penstock.resume(first.run_folder, timesteps=40 * BATCH, quiet=True)
    (line,) = second.notes
    assert line.startswith("stopped early: 6 evaluations without improvement, the best was 20.0; ")
    assert f"penstock eval {first.run_folder} --checkpoint best" in line
    arrays = load_checkpoint(find_checkpoint(first.run_folder)).arrays
    assert (arrays["since_best"], arrays["best_evaluation"]) == (6, 20.0)


def test_a_checkpoint_of_format_1_is_migrated(tmp_path: Path) -> None:
    first = train(tmp_path, 3)
    path = find_checkpoint(first.run_folder)
    import safetensors.numpy

    arrays = load_checkpoint(path).arrays
    for name in ("since_best", "best_evaluation", "lane_collected", "lane_spoilt", "stale"):
        del arrays[name]
    state = {"state.safetensors": safetensors.numpy.save(arrays)}
    facts = json.loads((path / "manifest.json").read_text())
    facts = {name: value for name, value in facts.items() if name not in {"files", "manifest_sha256"}}
    (path / "state.safetensors").write_bytes(state["state.safetensors"])
    (path / "manifest.json").write_bytes(write_manifest({**facts, "format": 1}, state))
    assert penstock.resume(first.run_folder, timesteps=5 * BATCH, quiet=True).updates == 5
    latest = load_checkpoint(find_checkpoint(first.run_folder))
    assert latest.manifest["format"] == 3
    assert latest.arrays["lane_collected"].sum() == latest.arrays["steps"] == 5 * BATCH
    assert np.isneginf(latest.arrays["best_evaluation"])


def test_the_final_evaluation_stands_in_the_metrics(tmp_path: Path) -> None:
    result = train(tmp_path, 3)
    last = read_reports(result.run_folder)[-1]
    assert (last.update, last.steps) == (3, 240)
    assert last.values["eval/return_mean"] == 20.0
    assert last.values["eval/episodes"] == 2.0


def test_the_log_of_a_resumed_run_has_no_seam(tmp_path: Path) -> None:
    first = train(tmp_path, 3)
    penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    reports = read_reports(first.run_folder)
    assert [report.update for report in reports] == [1, 2, 3, 3, 4, 5, 6, 6]
    assert [report.steps for report in reports] == [80, 160, 240, 240, 320, 400, 480, 480]
    assert all(later.time_s >= earlier.time_s for earlier, later in itertools.pairwise(reports))
    episodes = [report.values["rollout/episodes"] for report in reports if "rollout/episodes" in report.values]
    assert episodes == [4, 8, 12, 16, 20, 24]


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        ({}, {}, ()),
        ({"backend": "fused", "threads": 1}, {"backend": "fused", "threads": 2}, ()),
        (
            {"instruction_set": "avx2", "threads": 1},
            {"instruction_set": "avx512", "threads": 2},
            ("not bit-exact: instruction_set avx2 -> avx512, threads 1 -> 2; all else continued",),
        ),
    ],
)
def test_what_is_not_the_same_as_before_is_one_line(before: dict, now: dict, says: tuple[str, ...]) -> None:
    same = {"instruction_set": "avx2", "backend": "eager", "inference": "native", "threads": 1, "penstock": "1"}
    assert differences({**same, **before}, {**same, **now}) == says


def test_a_resume_on_another_machine_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path, 2)
    monkeypatch.setattr("penstock.planning.prepared.instruction_set", lambda: "abacus")
    (line,) = penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True).notes
    assert line.startswith("not bit-exact: instruction_set ")
    assert "-> abacus;" in line


def test_a_run_that_learned_nothing_from_its_table_says_so(tmp_path: Path) -> None:
    settings = {"env": "CartPole-v1", "algo": "dqn", "timesteps": 128, "runtime": "inline", "eval_episodes": 1}
    result = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    assert result.notes == (
        "nothing was learned: 128 steps made no gradient step due; see --min_rows 1000, --updates_per_step 0.5",
    )


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Traceback (most recent call last):\n  ...\nValueError: theirs\n", "ValueError: theirs"),
        (
            "at last:\nTraceback (most recent call last):\n  File 3\nValueError: theirs\n  more\nin lane 4 of env.1\n",
            "ValueError: theirs; in lane 4 of env.1",
        ),
        (
            "  + Exception Group Traceback (most recent call last):\n  |   File 3\n  | ExceptionGroup: both\n",
            "| ExceptionGroup: both",
        ),
        (
            "at last:\nno sign of life for 2 s\nCurrent thread 0x1 (most recent call first):\n  File 3\n",
            "no sign of life for 2 s",
        ),
        ("process env.0 was ended by SIGSEGV", "process env.0 was ended by SIGSEGV"),
        (
            "process env.0 was ended by SIGSEGV\nThread 0x1 (most recent call first):\n  File 3\n\nExtension modules\n",
            "process env.0 was ended by SIGSEGV",
        ),
        ("Traceback (most recent call last):\n", "it did not say why"),
        ("", "it did not say why"),
    ],
)
def test_the_line_on_a_failure_is_the_error_and_no_line_of_a_stack(detail, line):
    assert failure(NodeError("env.0", detail)) == line


def test_the_line_on_a_run_that_stood_still_names_no_node() -> None:
    stood = "the run came no further for 300 s, longer than --stall_timeout allows"
    error = StallError(f"{stood}\nenv.0: last sign of life 0.1 s ago\nenv.0:\nCurrent thread 0x1")
    assert failure(error) == stood
    assert evaluation_given_up(error) == f"the evaluation was given up: {stood}"
    assert output.failure(error).endswith(f"\npenstock: error: {stood}; what each node waited for stands above")


def test_processes_that_failed_while_the_run_ended_are_one_line() -> None:
    said = "Traceback (most recent call last):\n  File 3\nValueError: theirs\n"
    line = "env.0{} failed while the run ended, which costs the run nothing: ValueError: theirs"
    assert failed_at_the_end(()) == ()
    assert failed_at_the_end((Exit("env.0", 1, said),)) == (line.format(""),)
    assert failed_at_the_end((Exit("env.0", 1, said), Exit("env.1", 1, said))) == (line.format(" and 1 more"),)
    (killed,) = failed_at_the_end((Exit("env.0", -11, ""),))
    assert killed.endswith("nothing: process env.0 was ended by SIGSEGV")


def test_metrics_that_no_episode_had_are_told_of_at_the_end() -> None:
    seen, unseen = np.array([np.nan, 1.0]), np.full(2, np.nan)
    record = {"episodes": np.array(250), "episode_metric.won": seen, "episode_metric.wno": unseen}
    assert never_seen(record) == (
        "no wno in the last info of the latest 100 episodes: check the names of --episode_metrics",
    )
    assert not never_seen({**record, "episodes": np.array(0)})
    assert not never_seen({**record, "episode_metric.wno": seen})


def test_after_a_resume_only_its_own_episodes_count_for_metrics_that_none_had() -> None:
    record = {"episodes": np.array(250), "episode_metric.new": np.full(2, np.nan)}
    (note,) = never_seen(record, before=249)
    assert note == "no new in the last info of the latest 1 episode: check the names of --episode_metrics"
    assert not never_seen(record, before=250)


def test_a_resume_names_what_it_changes_and_what_it_does_not() -> None:
    before = from_mapping({**SMALL, "lr": 1e-3, "threads": 1})
    given = with_changes(before, {"lr": 1e-4, "timesteps": 500, "target_return": 3.0, "threads": "auto"})
    now = replace(given, run=replace(given.run, threads=1))
    assert changes(before, given, now) == ("changed: --target_return none -> 3.0, --lr 0.001 -> 0.0001",)
    assert changes(before, before, now) == ()
    fewer = with_changes(before, {"eval_episodes": 5, "eval_interval": 2})
    changed, luck = changes(before, fewer, fewer)
    assert "--eval_episodes" in changed
    assert luck.startswith("the best checkpoint is chosen among evaluations of 2 and of 5 episodes")
    over = "nothing to do: ...; to go on without it: penstock resume a --target_return none"
    (said,) = unchanged(before, given, now, over)
    assert said == (
        "--timesteps is still 1000000, not 500, --lr is still 0.001, not 0.0001: give them in the command above as well"
    )
    (said,) = unchanged(before, given, now, "nothing to do: ...; to go on: penstock resume a --timesteps 800")
    assert said.startswith("--target_return is still none, not 3.0, --lr is still 0.001, ")
    assert unchanged(before, before, before, over) == ()


def test_a_resume_tells_of_a_changed_setting_whether_it_goes_on_or_not(tmp_path: Path) -> None:
    run = train(tmp_path, 2, lr=1e-3).run_folder
    nothing, kept = penstock.resume(run, settings={"lr": 1e-4}, quiet=True).notes
    assert nothing.startswith("nothing to do: the run has its 160 timesteps; to go on: ")
    assert kept == "--lr is still 0.001, not 0.0001: give it in the command above as well"
    assert "lr = 0.001\n" in (run / "README.md").read_text()
    assert not any(b"lr = 0.0001" in events.read_bytes() for events in run.rglob("events.*"))
    assert penstock.resume(run, timesteps=3 * BATCH, settings={"lr": 1e-4}, quiet=True).notes == ()
    assert "lr = 0.0001\n" in (run / "README.md").read_text()
    assert any(b"lr = 0.0001" in events.read_bytes() for events in run.rglob("events.*"))
    assert "changed: --lr 0.001 -> 0.0001" in log_of(run)
