"""Processes forked from a template: what they share, what each has of its own, and what becomes of them without it."""

import json

import psutil
import pytest

from penstock.scheduler.processes import Processes
from tests.runtime.nodes import wait_until
from tests.scheduler.test_warden import exits, run

SAY = "import json; open({!r}, 'w').write(json.dumps({}))"


@pytest.fixture
def table():
    made = Processes()
    yield made
    made.kill_all()


def said(table: Processes, path, what: str, group: str = "one"):
    run(table, SAY.format(str(path), what), group)
    assert exits(table)[0].status == 0
    return json.loads(path.read_text())


def template(table: Processes) -> psutil.Process:
    """The child of the warden that is no node."""
    run(table, "import time; time.sleep(60)", "asleep")
    node = psutil.Process(table.pid("asleep"))
    (found,) = (child for child in node.parent().children() if child != node)
    return found


def test_a_process_has_numpy_at_hand_and_no_torch(table, tmp_path) -> None:
    what = "[name in __import__('sys').modules for name in ('numpy', 'penstock.nodes.env', 'torch')]"
    assert said(table, tmp_path / "modules", what) == [True, True, False]


def test_each_has_random_numbers_of_its_own(table, tmp_path) -> None:
    what = "[__import__('random').random(), __import__('numpy').random.random()]"
    first, second = (said(table, tmp_path / name, what, name) for name in ("one", "two"))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_each_has_the_environment_of_its_start(table, tmp_path, monkeypatch) -> None:
    template(table)
    monkeypatch.setenv("SAID_LATER", "yes")
    monkeypatch.delenv("HOME")
    what = "[os.environ.get(name) for name in ('SAID_LATER', 'HOME', 'PENSTOCK_GROUP', 'OMP_NUM_THREADS')]"
    assert said(table, tmp_path / "environment", what) == ["yes", None, "one", "1"]


def test_none_holds_what_another_was_given(table, tmp_path) -> None:
    run(table, "import time; time.sleep(60)", "asleep")
    table.pid("asleep")
    one = said(table, tmp_path / "one", "len(os.listdir('/proc/self/fd'))")
    run(table, "import time; time.sleep(60)", "asleep too")
    table.pid("asleep too")
    assert said(table, tmp_path / "two", "len(os.listdir('/proc/self/fd'))", "two") == one


def test_system_tools_call_it_by_its_group(table) -> None:
    run(table, "import time; time.sleep(60)", "env.0")
    process = psutil.Process(table.pid("env.0"))
    assert wait_until(lambda: process.name() == "env.0")


def test_without_a_template_processes_start_by_themselves(table, tmp_path) -> None:
    template(table).kill()
    assert said(table, tmp_path / "alone", "os.environ['PENSTOCK_GROUP']") == "one"
    # The one that was forked before lives on.
    assert table.running() == ("asleep",)


def test_a_template_that_dies_in_a_fork_leaves_no_process_that_nobody_knows(table) -> None:
    mold = template(table)
    mold.suspend()
    run(table, "import time; time.sleep(60)")
    mold.kill()
    pid = table.pid("one")
    warden = psutil.Process(pid).parent()
    assert wait_until(lambda: {child.pid for child in warden.children()} == {pid, table.pid("asleep")})


def test_the_template_ends_with_the_table() -> None:
    made = Processes()
    mold = template(made)
    made.kill_all()
    assert not mold.is_running()
