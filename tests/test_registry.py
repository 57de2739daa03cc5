import importlib
import sys
from importlib.metadata import EntryPoint

import pytest

from penstock.errors import ConfigError
from penstock.registry import (
    ALGORITHMS,
    INFERENCE,
    NODES,
    RUNTIMES,
    TOPOLOGIES,
    UPDATES,
    AlgorithmEntry,
    Table,
    algorithms_for,
    load,
)


@pytest.mark.parametrize(
    "reference",
    [table[name] for table in (INFERENCE, NODES, RUNTIMES, TOPOLOGIES, UPDATES) for name in table.names()]
    + [part for name in ALGORITHMS.names() for part in ALGORITHMS[name] if isinstance(part, str)],
)
def test_every_shipped_reference_loads(reference):
    assert callable(load(reference))


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown algorithm 'pppo'; did you mean ppo\?"):
        ALGORITHMS["pppo"]


def test_where_no_name_is_near_all_are_listed():
    with pytest.raises(ConfigError, match=r"unknown fruit 'xyz'; known: apple, pear"):
        Table("fruit", {"pear": "m:p", "apple": "m:a"})["xyz"]


def test_get_answers_none_for_an_unknown_name():
    assert ALGORITHMS.get("pppo") is None
    assert ALGORITHMS.get("ppo") == ALGORITHMS["ppo"]


def test_algorithms_are_listed_by_the_actions_they_serve(monkeypatch):
    table = {
        "one": AlgorithmEntry("", "", "", ""),
        "two": AlgorithmEntry("", "", "", "", actions=("bounded",)),
        "three": AlgorithmEntry("", "", "", "", actions=("bounded", "discrete")),
    }
    monkeypatch.setattr("penstock.registry.ALGORITHMS", Table("algorithm", table))
    assert algorithms_for("bounded") == "one, two or three"
    assert algorithms_for("discrete") == "one or three"
    assert algorithms_for("unbounded") == "one"


@pytest.fixture
def entry_points(monkeypatch):
    def give(*points):
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [p for p in points if p.group == group])

    return give


def test_a_third_party_adds_an_algorithm_by_the_package_it_is_in(entry_points):
    entry_points(EntryPoint("mine", "their_package.mine", "penstock.algorithms"))
    assert ALGORITHMS["mine"] == AlgorithmEntry(
        config="their_package.mine.spec:Config",
        spec="their_package.mine.spec:spec",
        initial="their_package.mine.spec:init_state",
        learn="their_package.mine.learn:build",
    )
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
