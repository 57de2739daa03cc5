"""What is said of a trial that has ended."""

from pathlib import Path
from types import SimpleNamespace

from penstock.tune.callbacks import Teller
from penstock.tune.trial import FAILED


def test_what_is_said_of_a_trial_has_the_settings_that_its_results_are_of(tmp_path: Path):
    said: list[str] = []
    changed = SimpleNamespace(trial_id="copy", config={"lr": 0.5})
    changed.last_result = {"steps": 64, "config": {"lr": 0.125}}
    Teller(said.append, tmp_path).on_trial_complete(1, [changed], changed)
    assert said == ["trial copy: no episode has ended after 64 steps (lr 0.125)"]


def test_what_ray_says_of_a_trial_counts_if_its_output_is_on_another_machine(tmp_path: Path):
    said: list[str] = []
    (tmp_path / "error.txt").write_text(f"Failure # 1\nPenstockError: {FAILED}no room\n\n")
    there = SimpleNamespace(trial_id="there", config={"lr": 0.125}, error_file=str(tmp_path / "error.txt"))
    teller = Teller(said.append, tmp_path)
    teller.on_trial_error(1, [there], there)
    there.error_file = None
    teller.on_trial_error(1, [there], there)
    assert said == ["trial there failed: no room (lr 0.125)", "trial there failed: it failed (lr 0.125)"]
