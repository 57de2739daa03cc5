"""Opponents as users type them."""

from pathlib import Path

import pytest

from penstock.config.opponents import LONGEST_LABEL, NamedRun, named_run, named_runs, score_names, settled
from penstock.config.sources import from_mapping, with_changes
from penstock.errors import ConfigError
from penstock.metrics.episode_metrics import perhaps_misspelt


def test_a_run_is_named_by_its_folder_and_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named_run("logs/one") == NamedRun("one", tmp_path.resolve() / "logs" / "one", None)
    assert named_run("/logs/one@best") == NamedRun("one@best", Path("/logs/one"), "best")
    assert named_runs(("self", "/logs/one", "random")) == (NamedRun("one", Path("/logs/one"), None),)
    assert settled(("self", "logs/one@50", "random")) == ("self", f"{tmp_path.resolve()}/logs/one@50", "random")
    assert named_run("logs/pettingzoo_game-ppo-20260101-120000").label == "game-ppo-20260101-120000"
    # Behind a colon would be the kind of an episode metric.
    assert named_run("/logs/one:two@best").label == "one_two@best"
    # A folder above the run may have an @ in its name.
    assert named_run("/home/me@work/one") == NamedRun("one", Path("/home/me@work/one"), None)
    assert named_run("/home/me@work/one@50") == NamedRun("one@50", Path("/home/me@work/one"), "50")
    # What is settled stays as it is.
    assert settled(settled(("logs/one@50",))) == settled(("logs/one@50",))


def test_a_metric_has_room_for_the_label_of_a_run_with_a_long_name():
    label = named_run(f"/logs/{'x' * 100}-20260101-120000").label
    assert len(label) == LONGEST_LABEL
    assert label.endswith("x-20260101-120000")
    assert len(f"score/{label}") <= 64


@pytest.mark.parametrize("name", ["self", "random", "all", "pettingzoo_random"])
def test_a_run_whose_score_would_have_the_name_of_another_is_refused(name):
    label = name.removeprefix("pettingzoo_")
    with pytest.raises(ConfigError, match=rf"called score/{label}, which is another one; .*: /logs/{name}@latest"):
        from_mapping({"opponents": [f"/logs/{name}"]})
    assert score_names((f"/logs/{name}@latest",)) == ("score/all", f"score/{label}@latest")
    from_mapping({"opponents": [f"/logs/{name}@latest"]})


def test_with_opponents_only_scores_are_called_so():
    with pytest.raises(ConfigError, match="--episode_metrics score/home: with --opponents, score/ begins the names of"):
        from_mapping({"opponents": ["self"], "episode_metrics": ["won", "score/home"]})
    from_mapping({"episode_metrics": ["won", "score/home"]})


def test_a_resume_takes_the_scores_of_earlier_opponents_out():
    names = ["won", *score_names(("self", "/logs/one"))]
    before = from_mapping({"opponents": ["self", "/logs/one"], "episode_metrics": names})
    assert names[1:] == ["score/all", "score/self", "score/random", "score/one"]
    assert with_changes(before, {"opponents": None}).run.episode_metrics == ("won",)
    assert with_changes(before, {"opponents": ["random"]}).run.episode_metrics == ("won",)
    assert with_changes(before, {"episode_metrics": ["laps"]}).run.episode_metrics == ("laps",)
    # The user's own metric of such a name is not dropped silently.
    own = from_mapping({"episode_metrics": ["score/home"]})
    assert with_changes(own, {"timesteps": 7}).run.episode_metrics == ("score/home",)
    with pytest.raises(ConfigError, match="--episode_metrics score/home"):
        with_changes(own, {"opponents": ["self"]})


def test_a_missing_metric_is_told_unless_it_is_a_score():
    assert perhaps_misspelt({"won": False, "laps": True, "score/home": False}) == ["won", "score/home"]
    # With opponents: one of them may never have been drawn.
    assert perhaps_misspelt({"won": False, "score/all": True, "score/self": False}) == ["won"]
