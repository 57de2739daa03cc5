"""Which case learns on which links, and by which settings. Namespaces are made by the benchmark only."""

import sys

import numpy as np
import pytest

from benchmarks import cluster_learning
from benchmarks.cluster_learning import (
    CASES,
    CUT_STEPS,
    LINKS,
    bars_of,
    bars_of_links,
    chosen,
    fingerprint,
    settings_of,
    shard_rows,
    share_min,
)
from benchmarks.runs import flags
from penstock.config.flags import train_from_arguments
from penstock.metrics.report import SHARE_MIN, Report


def test_apex_learns_with_eight_workers_four_learners_and_a_million_rows() -> None:
    settings = settings_of(CASES["apex4"], "near")
    _, config, _ = train_from_arguments(flags({**settings, "runtime": "ray"}))
    run, rules = config.run, config.algorithm
    assert (run.algo, run.num_workers, run.learners, rules.capacity) == ("apex", 8, 4, 1_000_000)
    assert rules.prioritised
    assert CASES["apex4"].threshold == CASES["apex"].threshold


def test_every_case_learns_near_and_only_ppo_where_a_host_is_cut_off() -> None:
    found = chosen(list(CASES), list(LINKS))
    assert [name for link, name in found if link == "near"] == list(CASES)
    assert [name for link, name in found if link == "far"] == ["ppo", "appo", "sac", "apex"]
    assert [name for link, name in found if link in {"blink", "cut"}] == ["ppo", "ppo"]
    assert settings_of(CASES["ppo"], "cut") == {
        "preset": "cartpole",
        "num_workers": 4,
        "sync_mode": "blocking",
        "timesteps": CUT_STEPS,
    }
    assert settings_of(CASES["appo"], "far")["sync_mode"] == "non_blocking"


def test_links_on_which_no_case_runs_are_refused(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster_learning", "--cases", "apex4", "--links", "far"])
    with pytest.raises(SystemExit):
        cluster_learning.main()
    assert "no case of apex4 runs on --links far; leave out --links" in capsys.readouterr().err


def test_the_fingerprint_of_a_checkpoint_is_that_of_all_but_its_time_and_slots() -> None:
    arrays = {"policy": np.array([0.5, 1.0], np.float32), "elapsed_s": np.array(3.0), "consumed_slot": np.array([1])}
    later = {**arrays, "elapsed_s": np.array(9.0), "consumed_slot": np.array([2])}
    # The next number above 1 that float32 has.
    other = {**arrays, "policy": np.array([0.5, np.nextafter(np.float32(1), np.float32(2))], np.float32)}
    assert fingerprint(later) == fingerprint(arrays) != fingerprint(other)


def test_rows_of_a_shard_are_those_of_its_lanes_without_the_spoilt() -> None:
    arrays = {"lane_collected": np.array([10, 10, 11, 12]), "lane_spoilt": np.array([0, 1, 0, 0])}
    assert shard_rows(arrays, 2) == [19, 23]
    assert shard_rows(arrays, 1) == [42]
    assert [CASES[name].shards for name in ("apex4", "apex4-free", "apex")] == [4, 1, 1]


def test_a_run_must_reach_its_threshold_leave_nothing_and_balance_its_shards() -> None:
    row = {"case": "apex4", "link": "near", "return": 500.0, "unbalanced": 0, "left": 0, "shard_rows": [100, 105]}
    assert [bar.holds for bar in bars_of(row)] == [True, True, True]
    assert [bar.holds for bar in bars_of({**row, "shard_rows": [100, 106]})] == [True, True, False]
    assert [bar.holds for bar in bars_of({**row, "return": 470.0, "left": 1, "shard_rows": [60]})] == [False, False]


def test_bits_are_compared_where_a_case_in_lock_step_was_learned_near_and_far() -> None:
    def row(case: str, link: str, learned: str) -> dict[str, str]:
        return {"case": case, "link": link, "learned": learned}

    rows = [row("ppo", "near", "a"), row("sac", "near", "b"), row("appo", "near", "c"), row("apex", "near", "d")]
    rows += [row("ppo", "far", "a"), row("sac", "far", "x"), row("appo", "far", "y"), row("ppo", "cut", "z")]
    rows += [row("ppo", "blink", "a")]
    assert [(bar.name, bar.holds) for bar in bars_of_links(rows)] == [
        ("ppo: far runs with other bits than near", True),
        ("sac: far runs with other bits than near", False),
        ("ppo: blink runs with other bits than near", True),
    ]


def test_a_link_that_is_cut_for_a_moment_restarts_nothing() -> None:
    row = {"case": "ppo", "link": "blink", "return": 500.0, "unbalanced": 0, "left": 0, "shard_rows": [60]}
    assert [bar.holds for bar in bars_of({**row, "restarts": 0})] == [True, True, True]
    assert [bar.holds for bar in bars_of({**row, "restarts": 1})] == [True, True, False]


def test_the_share_of_the_slowest_process_is_the_median_of_the_reports() -> None:
    reports = [Report(0, 0, 0.0, {}), *(Report(1, 1, 1.0, {SHARE_MIN: value}) for value in (0.5, 0.9, 0.8))]
    assert share_min(reports) == 0.8
