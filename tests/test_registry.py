import importlib
import sys
from importlib.metadata import EntryPoint

import pytest

from penstock.config.fields import fields_of
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.registry import (
    ALGORITHMS,
    INFERENCE,
    NODES,
    RUNTIMES,
    TOPOLOGIES,
    UPDATES,
    Registry,
    load,
)


def references():
    yield from (NODES[name] for name in NODES.names())
    yield from (RUNTIMES[name].launch for name in RUNTIMES.names())
    yield from (INFERENCE[name].build for name in INFERENCE.names())
    for name in TOPOLOGIES.names():
        yield from TOPOLOGIES[name].modes.values()
    for name in UPDATES.names():
        yield from (part for part in UPDATES[name] if isinstance(part, str))


@pytest.mark.parametrize("reference", sorted(set(references())))
def test_every_shipped_reference_loads(reference):
    assert callable(load(reference))


def test_every_topology_runs_in_a_sync_mode_that_a_run_may_have():
    modes = next(field.choices for field in fields_of(RunConfig) if field.name == "sync_mode")
    for name in TOPOLOGIES.names():
        assert TOPOLOGIES[name].modes
        assert set(TOPOLOGIES[name].modes) <= set(modes)


@pytest.mark.parametrize(
    ("setting", "registry"), [("runtime", RUNTIMES), ("backend", UPDATES), ("inference", INFERENCE)]
)
def test_what_a_setting_may_be_is_what_the_registry_holds(setting, registry):
    field = next(field for field in fields_of(RunConfig) if field.name == setting)
    assert set(field.choices) - {"auto"} == set(registry.names())


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown algorithm 'pppo'; did you mean ppo, appo\?"):
        ALGORITHMS["pppo"]


@pytest.mark.parametrize(("name", "says"), [("SAC", r"did you mean sac\?$"), ("PPPO", r"did you mean ppo, appo\?$")])
def test_capital_letters_do_not_hide_the_nearest_name(name, says):
    with pytest.raises(ConfigError, match=f"unknown algorithm '{name}'; {says}"):
        ALGORITHMS[name]


def test_where_no_name_is_near_all_are_listed():
    with pytest.raises(ConfigError, match=r"unknown fruit 'xyz'; known: apple, pear"):
        Registry("fruit", {"pear": "m:p", "apple": "m:a"})["xyz"]


def test_get_answers_none_for_an_unknown_name():
    assert ALGORITHMS.get("pppo") is None
    assert ALGORITHMS.get("ppo") == ALGORITHMS["ppo"]


@pytest.fixture
def entry_points(monkeypatch):
    def give(*points):
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [p for p in points if p.group == group])

    return give


def test_a_third_party_adds_an_algorithm_by_the_package_it_is_in(entry_points):
    entry_points(EntryPoint("mine", "their_package.mine", "penstock.algorithms"))
    assert ALGORITHMS["mine"] == "their_package.mine"
    assert ALGORITHMS.names()[:2] == ("ppo", "a2c")
    assert ALGORITHMS.names()[-1] == "mine"


def test_a_third_party_cannot_replace_what_is_shipped(entry_points):
    shipped = ALGORITHMS["ppo"]
    entry_points(EntryPoint("ppo", "their_package.ppo", "penstock.algorithms"))
    assert ALGORITHMS["ppo"] == shipped


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("json", "not a reference; write module:attribute"),
        ("no_such_module_here:x", "there is no module 'no_such_module_here'"),
        ("json.no_such_part:x", "there is no module 'json.no_such_part'"),
        ("json:dumsp", r"module 'json' has no 'dumsp'; did you mean dump"),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_line(reference, says):
    with pytest.raises(ConfigError, match=says):
        load(reference)


def test_a_module_that_misses_its_own_import_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load("half_there:anything")
    sys.modules.pop("half_there", None)
