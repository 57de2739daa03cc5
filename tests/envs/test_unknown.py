"""What to type in place of an unknown id."""

import sys

import pytest

from penstock.envs.imports import find_callable
from penstock.envs.unknown import hint
from penstock.errors import EnvError

NOTHING = "; give a Gymnasium id, module:Id, module:name of what makes it, or in Python the callable itself"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes modules that raise an error when they are imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(*names: str) -> None:
        for name in names:
            (tmp_path / f"{name}.py").write_text("raise ImportError('nobody should import this')")

    return make


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("zzgrid", "ZzGrid-Empty-5x5-v0"),
        ("zz_grid", "Zz-Grid-Empty-v0"),
        ("zzgrid", "Zz-Grid-Empty-v0"),
        ("zz_robots", "zz_robots/Arm-v2"),
        ("zz_road_env", "zz-road-fast-v0"),
        ("gym_zzpush", "ZzPush-v0"),
    ],
)
def test_a_module_of_that_name_is_pointed_to_and_not_imported(installed, module, name):
    installed(module)
    assert hint(name, ["CartPole-v1"]) == f"; module {module} is installed and may register it: --env {module}:{name}"


def test_more_words_of_the_name_win(installed):
    installed("zz", "zz_grid")
    assert "--env zz_grid:Zz-Grid-v0" in hint("Zz-Grid-v0", [])


def test_of_an_imported_module_it_is_known_that_it_does_not_register_it(monkeypatch):
    assert hint("Penstock-v0", []) == NOTHING
    monkeypatch.setitem(sys.modules, "zzbare", sys)  # its spec is not its own
    assert hint("ZzBare-v0", []) == NOTHING


def test_another_version_and_a_part_of_python_are_no_reason_to_look(installed):
    installed("zzgrid")
    assert hint("ZzGrid-v9", ["ZzGrid-v1"]) == "; did you mean ZzGrid-v1?"
    assert hint("Random-Walk-v0", []) == NOTHING


def test_ids_that_a_package_of_another_name_registers(installed, monkeypatch):
    name = "dm_control/cartpole-balance-v0"
    real = "penstock.envs.unknown._is_installed"
    monkeypatch.setattr(real, lambda module: module == "shimmy")
    said = f"; such ids are of shimmy: pip install 'shimmy[dm-control]', then --env shimmy:{name}"
    assert hint(name, []) == said
    monkeypatch.setattr(real, lambda _: True)
    assert hint(name, []) == f"; such ids are of shimmy: --env shimmy:{name}"
    monkeypatch.setitem(sys.modules, "shimmy", sys)
    assert "shimmy" not in hint(name, [])


@pytest.mark.parametrize("fault", ["not python", "raise RuntimeError('no licence')"])
def test_a_package_that_fails_when_it_is_imported_is_still_answered(tmp_path, monkeypatch, fault):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "zzfails").mkdir()
    (tmp_path / "zzfails" / "__init__.py").write_text(fault)
    assert hint("zzfails.envs", []) == "; did you mean zzfails:envs?"
    with pytest.raises(EnvError, match=r"^wrapper zzfails\.envs\.Mine is no name in a module: write zzfails\.envs:M"):
        find_callable("zzfails.envs.Mine", "wrapper")
