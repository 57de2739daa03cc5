"""Opponents as users type them."""

from pathlib import Path

from penstock.config.opponents import LONGEST_LABEL, NamedRun, named_run, named_runs, settled


def test_a_run_is_named_by_its_folder_and_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named_run("logs/one") == NamedRun("one", tmp_path.resolve() / "logs" / "one", None)
    assert named_run("/logs/one@best") == NamedRun("one@best", Path("/logs/one"), "best")
    assert named_runs(("self", "/logs/one", "random")) == (NamedRun("one", Path("/logs/one"), None),)
    assert settled(("self", "logs/one@50", "random")) == ("self", f"{tmp_path.resolve()}/logs/one@50", "random")
    assert named_run("logs/pettingzoo_game-ppo-20260101-120000").label == "game-ppo-20260101-120000"
    # What is settled stays as it is.
    assert settled(settled(("logs/one@50",))) == settled(("logs/one@50",))


def test_a_metric_has_room_for_the_label_of_a_run_with_a_long_name():
    label = named_run(f"/logs/{'x' * 100}-20260101-120000").label
    assert len(label) == LONGEST_LABEL
    assert label.endswith("x-20260101-120000")
    assert len(f"score/{label}") <= 64
