"""What is read of two long runs that are drawn beside each other. Nothing is trained here."""

import json
from pathlib import Path

import pytest
import tomli_w

from benchmarks.learning.beside import PRESET, draw, of_output, of_run
from benchmarks.runs import Curve


def run_folder(folder: Path, **other: object) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text(tomli_w.dumps(PRESET | {"seed": 2} | other))
    reports = [
        {"update": 1, "steps": 64, "time_s": 0.5, "rollout/return_mean": -300.0},
        {"update": 2, "steps": 128, "time_s": 1.0, "rollout/return_mean": 4000.0},
        {"update": 2, "steps": 128, "time_s": 1.0, "eval/return_mean": 4500.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
    return folder


def test_a_run_folder_is_read(tmp_path: Path) -> None:
    found = of_run(run_folder(tmp_path / "run"))
    assert found == (2, Curve([64, 128], [0.5, 1.0], [-300.0, 4000.0]), 4500.0)
    assert found.entry() == {"seed": 2, "mean_return": 4500.0, "last_100": 4000.0, "seconds": 1}


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not trained as the preset says: \{'lr': 0.01\}"):
        of_run(run_folder(tmp_path / "run", lr=0.01))


def test_the_peers_line_is_read() -> None:
    result = {"seed": 1, "mean_return": 10.0, "curve": {"steps": [1000], "seconds": [9.5], "returns": [-5.0]}}
    assert of_output(f"warning\nRESULT {json.dumps(result)}\n") == (1, Curve([1000], [9.5], [-5.0]), 10.0)


def test_both_are_drawn(tmp_path: Path) -> None:
    run = of_run(run_folder(tmp_path / "run"))
    draw(tmp_path / "beside.png", {"penstock": [run, run], "stable-baselines3": [run]})
    assert (tmp_path / "beside.png").read_bytes().startswith(b"\x89PNG")
