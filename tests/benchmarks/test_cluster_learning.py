"""Which case learns on which links, and by which settings. Namespaces are made by the benchmark only."""

import sys

import pytest

from benchmarks import cluster_learning
from benchmarks.cluster_learning import CASES, CUT_STEPS, LINKS, chosen, settings_of
from benchmarks.runs import flags
from penstock.config.flags import train_from_arguments


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
    assert [name for link, name in found if link == "cut"] == ["ppo"]
    assert settings_of(CASES["ppo"], "cut") == {"preset": "cartpole", "num_workers": 4, "timesteps": CUT_STEPS}


def test_links_on_which_no_case_runs_are_refused(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster_learning", "--cases", "apex4", "--links", "far"])
    with pytest.raises(SystemExit):
        cluster_learning.main()
    assert "no case of apex4 runs on --links far; leave out --links" in capsys.readouterr().err
