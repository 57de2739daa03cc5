"""Where the files of modules are."""

import json
import sys
from pathlib import Path

import pytest

from penstock.module_files import is_installed, place_of


def test_a_module_is_found_inside_its_package_and_nothing_is_imported(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine_pkg" / "inner").mkdir(parents=True)
    for name in ("__init__", "envs", "inner/__init__"):
        (tmp_path / "mine_pkg" / f"{name}.py").write_text("raise RuntimeError\n")
    (tmp_path / "mine_alone.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path.resolve()
    assert place_of("mine_alone") == folder / "mine_alone.py"
    assert place_of("mine_pkg") == folder / "mine_pkg"
    assert place_of("mine_pkg.envs") == folder / "mine_pkg" / "envs.py"
    assert place_of("mine_pkg.inner") == folder / "mine_pkg" / "inner"
    assert place_of("mine_pkg.missing") is None
    assert place_of("mine_alone.part") is None
    assert "mine_pkg" not in sys.modules


@pytest.mark.parametrize("module", ["sys", "no_such_module", "no_such.module"])
def test_some_modules_have_no_file(module: str) -> None:
    assert place_of(module) is None


def test_what_python_brings_is_installed(tmp_path: Path) -> None:
    assert is_installed(Path(json.__file__).resolve())
    assert not is_installed(tmp_path / "mine.py")
