"""Processes forked from a template: what they share, what each has of its own, and what happens after its death."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from penstock.processes.starts import Processes
from penstock.supervision.lives import Exit
from penstock.types import Cause
from tests.processes.test_warden import exits, run
from tests.runtime.nodes import wait_until

SAY = "import json; open({!r}, 'w').write(json.dumps({}))"


HERE = Path(__file__)


@pytest.fixture
def table():
    made = Processes()
    yield made
    made.close()


def said(table: Processes, path, what: str, group: str = "one", imports: Sequence[str] = ()):
    run(table, SAY.format(str(path), what), group, imports)
    assert exits(table)[0].status == 0
    return json.loads(path.read_text())


def template(table: Processes) -> psutil.Process:
    """The warden's child that runs no nodes."""
    run(table, "import time; time.sleep(600)", "asleep")
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
    run(table, "import time; time.sleep(600)", "asleep")
    table.pid("asleep")
    one = said(table, tmp_path / "one", "len(os.listdir('/proc/self/fd'))")
    run(table, "import time; time.sleep(600)", "asleep too")
    table.pid("asleep too")
    assert said(table, tmp_path / "two", "len(os.listdir('/proc/self/fd'))", "two") == one


def test_system_tools_call_it_by_its_group(table) -> None:
    run(table, "import time; time.sleep(600)", "env.0")
    process = psutil.Process(table.pid("env.0"))
    assert wait_until(lambda: process.name() == "env.0")


def test_without_a_template_processes_start_by_themselves(table, tmp_path) -> None:
    template(table).kill()
    assert said(table, tmp_path / "alone", "os.environ['PENSTOCK_GROUP']") == "one"
    # The one that was forked before lives on.
    assert table.running() == ("asleep",)


def test_a_template_that_dies_when_it_is_asked_leaves_no_process_that_nobody_knows(table) -> None:
    mold = template(table)
    mold.suspend()
    run(table, "import time; time.sleep(600)")
    mold.kill()
    pid = table.pid("one")
    warden = psutil.Process(pid).parent()
    assert wait_until(lambda: {child.pid for child in warden.children()} == {pid, table.pid("asleep")})


def test_the_template_forks_for_the_next_program_as_well(table) -> None:
    mold = template(table)
    table.clear()
    assert mold.parent().children() == [mold]
    run(table, "import time; time.sleep(600)", "next")
    assert psutil.Process(table.pid("next")) in mold.parent().children()
    assert mold.parent().children()[0] == mold


def test_the_template_ends_with_the_table() -> None:
    made = Processes()
    mold = template(made)
    made.close()
    assert not mold.is_running()


SLOW = "tests.processes.slow_import"


@pytest.fixture
def import_ends(monkeypatch, tmp_path):
    """A file: once it exists, the import of ``SLOW`` ends."""
    path = tmp_path / "import ends"
    monkeypatch.setenv("IMPORT_ENDS", str(path))
    return path


def test_what_a_process_names_is_imported_by_a_template_of_its_own(table, tmp_path, import_ends) -> None:
    import_ends.touch()
    what = f"{SLOW!r} in __import__('sys').modules"
    assert said(table, tmp_path / "one", what, "one", imports=[SLOW])
    assert not said(table, tmp_path / "two", what, "two")


def test_nobody_waits_for_what_another_imports(table, import_ends) -> None:
    run(table, "pass", "slow", imports=[SLOW])
    run(table, "pass", "quick")
    assert exits(table)[0].group == "quick"
    import_ends.touch()
    assert exits(table)[0].group == "slow"


def test_who_is_killed_while_its_template_imports_never_is(table, tmp_path, import_ends) -> None:
    stray, wanted = tmp_path / "stray", tmp_path / "wanted"
    run(table, f"open({str(stray)!r}, 'w')", "slow", imports=[SLOW])
    table.kill("slow")
    assert table.running() == ()
    # It would be forked after the stray process, if that still existed.
    run(table, f"open({str(wanted)!r}, 'w'); import time; time.sleep(0.5)", "slow", imports=[SLOW])
    import_ends.touch()
    assert exits(table) == [Exit("slow", 0, "")]
    assert wanted.exists()
    assert not stray.exists()


def test_no_start_is_left_over_for_the_next_program(table, tmp_path, import_ends) -> None:
    stray = tmp_path / "stray"
    run(table, f"open({str(stray)!r}, 'w')", "slow", imports=[SLOW])
    table.clear()
    assert table.running() == ()
    import_ends.touch()
    run(table, "import time; time.sleep(0.5)", "slow", imports=[SLOW])
    assert exits(table) == [Exit("slow", 0, "")]
    assert not stray.exists()


def test_who_asks_waits_for_no_import_however_many_ask(table, import_ends) -> None:
    names = [f"slow.{number}" for number in range(60)]
    for name in names:
        run(table, "pass", name, imports=[SLOW])
    run(table, "pass", "quick")
    assert exits(table)[0].group == "quick"
    import_ends.touch()
    ended: set[str] = set()
    assert wait_until(lambda: ended.update(one.group for one in table.exits()) or len(ended) == len(names))


def test_large_environments_come_whole(table, tmp_path, monkeypatch, import_ends) -> None:
    monkeypatch.setenv("LARGE", 60_000 * "x")
    import_ends.touch()
    for name in ("one", "two", "three"):
        run(table, SAY.format(str(tmp_path / name), "len(os.environ['LARGE'])"), name, imports=[SLOW])
    ended: list[Exit] = []
    assert wait_until(lambda: ended.extend(table.exits()) or len(ended) == 3)
    assert {one.status for one in ended} == {0}
    assert [(tmp_path / name).read_text() for name in ("one", "two", "three")] == ["60000"] * 3


def test_nobody_runs_before_it_is_known(table, tmp_path, import_ends) -> None:
    mold = template(table)
    warden, ran = mold.parent(), tmp_path / "ran"
    mold.suspend()
    run(table, f"open({str(ran)!r}, 'w'); import time; time.sleep(600)")
    # The warden works in order: when this process ends, it has already asked for the other one.
    import_ends.touch()
    run(table, "pass", "another", imports=[SLOW])
    assert exits(table)[0].group == "another"
    known = {child.pid for child in warden.children()}
    warden.suspend()
    mold.resume()
    assert wait_until(lambda: any(child.pid not in known for child in warden.children()))
    (forked,) = (child for child in warden.children() if child.pid not in known)
    # The forked process may run by now, or wait as it should.
    wait_until(ran.exists, 0.1)
    forked.kill()
    warden.resume()
    assert exits(table) == [Exit("one", -9, "")]
    assert not ran.exists()


def test_without_its_own_template_a_process_starts_by_itself(table, tmp_path, import_ends) -> None:
    run(table, "import time; time.sleep(600)", "asleep")
    warden = psutil.Process(table.pid("asleep")).parent()
    known = {child.pid for child in warden.children()}
    run(table, SAY.format(str(tmp_path / "alone"), "os.environ['PENSTOCK_GROUP']"), imports=[SLOW])
    assert wait_until(lambda: len(warden.children()) > len(known))
    (mold,) = (child for child in warden.children() if child.pid not in known)
    mold.kill()
    assert exits(table)[0].status == 0
    assert (tmp_path / "alone").read_text() == '"one"'
    # The other template is as it was.
    assert {child.pid for child in warden.children()} == known


@pytest.mark.nightly  # Eight seconds. Shorter: without a template of its own, above.
def test_more_than_may_wait_for_a_template_start_by_themselves(table, import_ends) -> None:
    warden = template(table).parent()
    resource.prlimit(warden.pid, resource.RLIMIT_NOFILE, (128, 128))
    names = [f"slow.{number}" for number in range(24)]
    for name in names:
        run(table, "pass", name, imports=[SLOW])
    ended: list[Exit] = []
    # Of 128 descriptors, an eighth of as many starts wait.
    assert wait_until(lambda: ended.extend(table.exits()) or len(ended) == len(names) - 16)
    import_ends.touch()
    assert wait_until(lambda: ended.extend(table.exits()) or len(ended) == len(names))
    assert {one.status for one in ended} == {0}


@pytest.mark.parametrize("come", [0, 3])
def test_what_the_system_keeps_back_is_said(table, come: int) -> None:
    """A process is given four descriptors, and fewer come."""
    warden = template(table).parent()
    # When this process has ended, the warden has closed all descriptors that it handed over.
    run(table, "pass", "another")
    exits(table)
    taken = {int(path.name) for path in Path(f"/proc/{warden.pid}/fd").iterdir()}
    limit = [number for number in range(1000) if number not in taken][come]
    resource.prlimit(warden.pid, resource.RLIMIT_NOFILE, (limit, limit))
    run(table, "pass")
    why = f"process one cannot be started: {os.strerror(errno.EMFILE)}"
    assert exits(table) == [Exit("one", 1, why, Cause.REFUSED)]
    assert table.running() == ("asleep",)
    assert warden.num_fds() == len(taken)


def test_templates_need_no_standard_output() -> None:
    script = """
from penstock.processes.starts import Processes
from tests.processes.test_template import template
made = Processes()
template(made)
made.close()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, preexec_fn=lambda: os.close(1), cwd=HERE.parents[2], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("on_the_path", [False, True])
def test_a_file_of_the_users_stands_in_the_place_of_no_library(tmp_path, monkeypatch, on_the_path: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("here = True")
    if on_the_path:
        monkeypatch.syspath_prepend("")
    made = Processes()
    what = "hasattr(__import__('colorsys'), 'here')"
    assert said(made, tmp_path / "said", what, imports=["colorsys"]) == on_the_path
    made.close()
