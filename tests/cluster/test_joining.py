"""Machines that join a run while it goes on, and those that were given up and are there all the same."""

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.cluster import joining, spread
from penstock.cluster.joining import RETURNS, Members, takes_part
from penstock.cluster.messages import facts
from penstock.errors import ConfigError
from tests.cluster.conftest import HOST
from tests.cluster.handing import spread_program
from tests.cluster.test_hosts import PPO, Launcher, train
from tests.runtime.nodes import wait_until

PROGRAM = SimpleNamespace(deaths=None)


class Machine:
    """One of the cluster, whose host answers at once."""

    name = "a machine"

    def __init__(self, id: str, *, there: bool) -> None:  # noqa: A002 - as the real one
        self.id = id
        self.door = SimpleNamespace(opens=lambda: there)

    def call(self, name: str, replied: Callable[[Any, None], None]) -> None:
        assert name == "facts"
        replied(facts(), None)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """The machines that Ray lists."""
    found: list[Machine] = []
    monkeypatch.setattr(joining, "LOOK_S", -1.0)
    monkeypatch.setattr(joining, "own_offer", lambda: None)
    monkeypatch.setattr(joining, "present", lambda: {one.id for one in found})
    monkeypatch.setattr(
        joining,
        "machines",
        lambda program, known: [Machine(one.id, there=True) for one in found if one.id not in known],
    )
    return found


def joined(members: Members, lost: set[Machine]) -> list[Machine]:
    """What has joined after a look that began now, and has ended."""
    found = members.joined(lost)[0]
    assert wait_until(lambda: not members._looking.is_alive(), 60)
    members._looked = float("inf")
    found += members.joined(lost)[0]
    members._looked = 0.0
    return found


def test_a_machine_joins_once(listed: list[Machine]) -> None:
    first = Machine("a", there=True)
    members = Members(PROGRAM, [first], None)
    listed += [first, Machine("b", there=True)]
    assert [machine.id for machine in joined(members, set())] == ["b"]
    assert joined(members, set()) == []


def test_a_machine_that_was_given_up_joins_again_once_it_is_there(listed: list[Machine]) -> None:
    gone, paused = Machine("a", there=False), Machine("b", there=True)
    members = Members(PROGRAM, [gone, paused], None)
    listed += [gone, paused]
    lost = {gone, paused}
    (again,) = joined(members, lost)
    assert again.id == "b"
    assert again is not paused
    # The first of both is not lost anew.
    assert joined(members, lost) == []


def test_a_machine_that_is_lost_again_and_again_stays_away(listed: list[Machine]) -> None:
    machine = Machine("a", there=True)
    members = Members(PROGRAM, [machine], None)
    listed.append(machine)
    lost = {machine}
    for _ in range(RETURNS):
        (again,) = joined(members, lost)
        lost.add(again)
    assert joined(members, lost) == []


def answering(name: str, **there: str) -> SimpleNamespace:
    """A machine whose host answers with these facts where they differ from ours."""
    found = facts()._replace(**there)
    return SimpleNamespace(
        name=name,
        door=SimpleNamespace(opens=lambda: True),
        facts=lambda: found,
        call=lambda method, replied: replied(found, None),
    )


BITS = "in lock step all machines must compute the same bits"


@pytest.mark.parametrize(
    ("there", "bits", "why"),
    [
        (
            {"penstock": "0.0.1"},
            None,
            f"has penstock 0.0.1, and the launcher's machine has {penstock.__version__}; inst",
        ),
        ({"python": "2.7"}, None, "has Python 2.7, and the launcher's machine has 3.*; install the same there$"),
        (
            {"code": "other"},
            None,
            "has other code of penstock than the launcher's machine, although both have version ",
        ),
        ({"instruction_set": "abacus"}, BITS, f"computes with abacus, and the launcher's machine with .*; {BITS}$"),
    ],
)
def test_a_machine_that_is_another_is_refused_with_the_reason(
    listed: list[Machine], monkeypatch: pytest.MonkeyPatch, there: dict[str, str], bits: str | None, why: str
) -> None:
    other = answering("machine b", **there)
    # It was there when the run began.
    with pytest.raises(ConfigError, match=f"^machine b {why}"):
        takes_part(other, bits)
    # It joins while the run goes on.
    monkeypatch.setattr(joining, "machines", lambda program, known: [] if "b" in known else [other])
    other.id = "b"
    members = Members(PROGRAM, [], bits)
    told: list[str] = []
    assert wait_until(lambda: told.extend(members.joined(set())[1]) or bool(told), 60)
    assert len(told) == 1
    assert re.match(f"^machine b {why}", told[0])
    assert members.machines == []


FIRST = """
import sys
from importlib.machinery import PathFinder


class Here:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{folder!r}]) if name == "penstock" else None


# Where penstock is installed from its sources, its own finder comes before the module search path.
sys.meta_path.insert(0, Here)
"""
"""Python reads it when it starts, as ``sitecustomize``."""


def another_penstock(folder: Path) -> dict[str, str]:
    """Environment variables of a machine that has version 0.0.1 of penstock: the modules of this one."""
    ours, copy = Path(penstock.__file__), folder / "penstock"
    copy.mkdir(parents=True)
    for path in ours.parent.iterdir():
        if path.name not in {ours.name, "__pycache__"}:
            (copy / path.name).symlink_to(path)
    text = ours.read_text().replace(f'__version__ = "{penstock.__version__}"', '__version__ = "0.0.1"')
    (copy / ours.name).write_text(text)
    (folder / "sitecustomize.py").write_text(FIRST.format(folder=str(folder)))
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


@pytest.mark.nightly  # Half a minute. Shorter: the machines above, whose facts are made up.
@pytest.mark.timeout(400)
def test_a_machine_that_has_another_version_is_refused_and_ends_no_run(cluster, tmp_path: Path) -> None:
    other, says = None, f"has penstock 0.0.1, and the launcher's machine has {penstock.__version__}; install the same"
    launcher = Launcher(tmp_path, cluster.address, 1000, **PPO)
    try:
        assert launcher.next_checkpoint()
        other = cluster.add_node(**HOST, env_vars=another_penstock(tmp_path / "other"))
        deaths = launcher.run_folder() / "deaths.log"
        assert wait_until(lambda: deaths.exists() and says in deaths.read_text(), 90)
        assert launcher.next_checkpoint()
        assert not launcher.has(1, "moved to a machine that has joined")
        # A run that begins now is refused with the same reason.
        with pytest.raises(ConfigError, match=f"^machine .* {re.escape(says)}"):
            train(tmp_path / "second", **PPO, runtime="ray", address=cluster.address, num_workers=4)
    finally:
        launcher.process.terminate()
        assert launcher.process.wait() == 130
        if other is not None:
            cluster.remove_node(other)


def test_instruction_sets_may_differ_where_no_bits_must_be_the_same() -> None:
    assert takes_part(answering("machine b", instruction_set="abacus"), None)


def test_environments_are_closed_on_all_machines_also_on_those_that_have_joined(
    listed: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, leaves, joins = (Machine(name, there=True) for name in "abc")
    listed += [first, joins]
    found: list[Machine] = []

    def run(program: object, processes: object, cluster: Members) -> Any:
        found.extend(joined(cluster, set()))

    monkeypatch.setattr(spread, "joined", lambda address, modules: nullcontext())
    monkeypatch.setattr(spread, "_told", lambda program: program)
    monkeypatch.setattr(spread, "learners_apart", lambda program: program)
    monkeypatch.setattr(spread, "machines", lambda program, known: [first, leaves])
    monkeypatch.setattr(spread, "takes_part", lambda machine, bits: machine is first)
    monkeypatch.setattr(spread, "_run", run)
    ended: list[Machine] = []
    monkeypatch.setattr(spread, "end_all", ended.extend)
    spread.run(spread_program(), SimpleNamespace())
    assert [machine.id for machine in found] == ["c"]
    assert ended == [first, leaves, *found]


def test_an_error_while_machines_are_looked_for_is_logged_and_the_next_look_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def call(name: str, replied: Any) -> None:
        asked.append(name)
        if len(asked) == 1:
            raise ConnectionError("the head does not answer")
        replied(joining.facts(), None)

    joins = SimpleNamespace(id="1", name="machine 1", call=call)
    monkeypatch.setattr(joining, "LOOK_S", 0.01)
    monkeypatch.setattr(joining, "own_offer", lambda: None)
    monkeypatch.setattr(joining, "present", set)
    monkeypatch.setattr(joining, "machines", lambda program, known: [joins] if joins.id not in known else [])
    program = SimpleNamespace(deaths=tmp_path / "deaths.log")
    members = joining.Members(program, [], None)
    found: list[Any] = []
    assert wait_until(lambda: found.extend(members.joined(set())[0]) or bool(found), 30)
    assert found == [joins]
    assert "ConnectionError: the head does not answer" in program.deaths.read_text()
