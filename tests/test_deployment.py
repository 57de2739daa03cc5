"""What `penstock.export` and `penstock.verify` refuse before they play anything."""

from typing import Any

import pytest

import penstock
from penstock.config.sources import from_mapping
from penstock.errors import BundleError, ConfigError
from penstock.saved_runs.run_folder import RunFolder


@pytest.mark.parametrize("number", [0, -1, 1.5, None])
def test_a_number_of_observations_is_at_least_1(number: Any) -> None:
    with pytest.raises(ConfigError, match=f"^observations of export takes a whole number of at least 1, not {number}$"):
        penstock.export("nowhere", "policy", observations=number)


def test_a_number_of_observations_to_compare_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match=r"^observations of verify takes a whole number of at least 1, not 0$"):
        penstock.verify("policy", against="nowhere", observations=0)


def test_an_unknown_precision_is_refused_at_once() -> None:
    unknown: Any = "int4"
    with pytest.raises(ConfigError, match=r"^there is no --quantize int4; give one of int8, fp16$"):
        penstock.export("nowhere", "policy", quantize=unknown)


def test_a_single_format_may_be_a_text(tmp_path) -> None:
    folder = RunFolder.fresh(tmp_path, "Pendulum-v1", "ppo")
    folder.make()
    folder.write_config(from_mapping({"env": "Pendulum-v1"}))
    with pytest.raises(ConfigError, match=r"^there is no --format pickle; give one of onnx"):
        penstock.export(folder.path, tmp_path / "policy", format="pickle")


def test_a_tilde_stands_for_the_home_of_the_user(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = RunFolder.fresh(tmp_path, "Pendulum-v1", "ppo")
    folder.make()
    folder.write_config(from_mapping({"env": "Pendulum-v1"}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(BundleError, match=f"^{tmp_path}/mine is there already and is no bundle"):
        penstock.export(f"~/{folder.name}", "~/mine")
    with pytest.raises(BundleError, match=f"^{tmp_path}/{folder.name} is a run, not a bundle"):
        penstock.verify(f"~/{folder.name}")
