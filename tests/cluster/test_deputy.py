"""A run whose launcher's machine is lost goes on on another machine, from its copy there."""

import signal
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray

import penstock
from penstock.cluster import deputy, safekeeping
from penstock.cluster.connection import joined
from penstock.cluster.door import Door
from penstock.cluster.questions import Asker, Stand
from penstock.errors import NodeError
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.run_folder import RunFolder
from tests.children import of_group
from tests.cluster.conftest import HOST, MACHINE
from tests.cluster.test_hosts import PPO, Launcher, train
from tests.end_to_end.test_same_answer import fingerprint
from tests.runtime.nodes import wait_until


def deputies() -> list[psutil.Process]:
    """The processes of deputies, of the machines that this process has started."""
    return [child for child in psutil.Process().children(recursive=True) if "ray::Deputy" in " ".join(cmdline(child))]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def nothing_left() -> bool:
    return not deputies() and not any(of_group(group) for group in ("learner", *(f"env.{n}" for n in range(4))))


def copies(log_dir: Path) -> list[Path]:
    return list((log_dir / ".copies").glob("*"))


def copied(log_dir: Path, at_least: str = "") -> bool:
    """Whether a copy has a checkpoint, and none of its checkpoints is older than that."""
    return any(paths[-1].name >= at_least for copy in copies(log_dir) if (paths := list_checkpoints(copy)))


# A minute. Shorter: a launcher is cut off below, and ``test_copies.py`` shows that a copy is whole.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_launcher_whose_machine_is_lost_is_replaced_and_no_bit_changes(cluster, machine, tmp_path: Path) -> None:
    # No checkpoint is due before the end: the deputy gets those that it asks for.
    launcher = Launcher(tmp_path, cluster.address, 40, MACHINE, save_interval=1000, **PPO)
    try:
        assert wait_until(lambda: copied(launcher.log_dir, "update-00000001"), 150)
    finally:
        launcher.process.kill()
        cluster.remove_node(machine, allow_graceful=False)
        launcher.process.wait()
    lost = launcher.run_folder()
    taken_over = lost.with_name(f"{lost.name}-2")
    assert wait_until(taken_over.is_dir, 150)
    (tmp_path / "gate").touch()
    assert wait_until(lambda: nothing_left() and (taken_over / "policy.onnx").exists(), 300)
    assert "was lost" in (taken_over / "deaths.log").read_text()
    assert (lost / "goes_on_in").read_text().startswith(f"{taken_over}\n")
    assert not copies(launcher.log_dir)
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=taken_over)) == fingerprint(alone)


# A minute. Shorter: below and in ``test_relaunch.py`` both sides are asked without Ray.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_command_that_goes_on_with_a_lost_run_has_it_and_no_second_one_begins(
    cluster, machine, tmp_path: Path
) -> None:
    launcher = Launcher(tmp_path, cluster.address, 40, MACHINE, save_interval=1000, **PPO)
    try:
        assert wait_until(lambda: copied(launcher.log_dir, "update-00000001"), 150)
    finally:
        launcher.process.kill()
        cluster.remove_node(machine, allow_graceful=False)
        launcher.process.wait()
    lost = launcher.run_folder()
    (tmp_path / "gate").touch()
    # Nobody knows yet that the machine is lost.
    resumed = penstock.resume(lost, quiet=True)
    assert wait_until(nothing_left, 60)
    assert list(launcher.log_dir.iterdir()) == [lost]
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(resumed) == fingerprint(alone)


@pytest.mark.nightly  # Thirteen seconds. Shorter: the launcher of ``test_hosts.py`` that is killed on the head.
@pytest.mark.timeout(400)
def test_a_launcher_that_is_killed_on_a_machine_that_is_there_leaves_nothing(cluster, machine, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, 1000, MACHINE, **PPO)
    try:
        assert wait_until(lambda: copied(launcher.log_dir), 150)
    finally:
        launcher.process.kill()
        launcher.process.wait()
    assert wait_until(nothing_left, 60)
    (left,) = launcher.log_dir.iterdir()
    assert list_checkpoints(left)


# Fourteen seconds. Shorter: the silent deputies below are replaced, and ``test_copies.py`` shows that a copy is whole.
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_deputy_whose_machine_is_lost_is_replaced_with_a_whole_copy(cluster, tmp_path: Path) -> None:
    # Of several machines, the deputy takes the one with the most cores.
    machine = cluster.add_node(**{**HOST, "num_cpus": 6})
    launcher = Launcher(tmp_path, cluster.address, 60, keep_checkpoints=1000, **PPO)
    try:
        assert wait_until(lambda: copied(launcher.log_dir), 150)
        (first,) = copies(launcher.log_dir)
        cluster.remove_node(machine, allow_graceful=False)
        # Here all machines have one disk, so the second copy replaces the first.
        assert wait_until(lambda: not first.exists() and copied(launcher.log_dir), 150)
        (second,) = copies(launcher.log_dir)
        run = launcher.run_folder()
        there = {path.name for path in list_checkpoints(run)}
        assert wait_until(lambda: there <= {path.name for path in list_checkpoints(second)}, 150)
        for name in there:
            for path in (run / "checkpoints" / name).iterdir():
                assert (second / "checkpoints" / name / path.name).read_bytes() == path.read_bytes()
        assert (second / "config.toml").read_bytes() == (run / "config.toml").read_bytes()
        assert (run / "metrics.jsonl").read_bytes().startswith((second / "metrics.jsonl").read_bytes())
        assert len(deputies()) == 1
        with joined(cluster.address):
            (name,) = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
        assert name.startswith(f"{run.name}, kept on machine ")
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    assert not copies(launcher.log_dir)
    assert nothing_left()


@pytest.mark.nightly  # Forty seconds. Shorter: the launcher of ``test_hosts.py`` that is killed on the head.
@pytest.mark.timeout(400)
def test_hosts_end_their_processes_while_home_is_silent_and_no_bit_changes(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, 40, **PPO)
    envs = [f"env.{number}" for number in range(4)]
    try:
        assert launcher.next_checkpoint()
        assert all(of_group(group) for group in envs)
        launcher.process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: sum(of_group(group) is not None for group in envs) < 4, 60)
    finally:
        launcher.process.send_signal(signal.SIGCONT)
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    assert launcher.has(1, "was ended by SIGKILL")
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


@pytest.mark.parametrize(
    ("head", "launcher", "handed_over", "resumed"),
    [
        pytest.param(True, False, False, 1, id="its machine is lost"),
        pytest.param(True, True, False, 0, id="the deputy was cut off"),
        pytest.param(True, True, True, 1, id="the launcher was cut off, and is there again"),
        pytest.param(False, False, False, 0, id="the head is out of reach"),
        pytest.param(False, True, True, 0, id="the head is out of reach of both"),
    ],
)
def test_a_run_is_resumed_only_where_the_head_answers_and_nobody_goes_on_on_the_launchers_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, head: bool, launcher: bool, handed_over: bool, resumed: int
) -> None:
    tries: list[bool] = []
    code = 0

    def told() -> bool:
        return (old.path / "goes_on_in").exists()

    monkeypatch.setattr(deputy, "PAUSE_S", 0.0)
    monkeypatch.setattr(deputy, "WORD_S", 0.0)
    monkeypatch.setattr(deputy, "release_claims", lambda run: None)
    monkeypatch.setattr(deputy, "_resume", lambda charge, folder: tries.append(told()) or code)
    monkeypatch.setattr(Door, "opens", lambda door: head if door.address == "head" else launcher)
    charge = SimpleNamespace(
        name="run", home="machine 1", here="machine 2", cluster="head:1", door=Door("home", 2), claims="run"
    )
    old, folder = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run-2")
    for run in (old, folder):
        run.path.mkdir()
        run.launches_path.write_text("first\n")
    (folder.checkpoints / "update-00000007").mkdir(parents=True)
    word = threading.Event()
    if handed_over:
        word.set()
    one = SimpleNamespace(_charge=charge, _handed_over=word)
    deputy.Deputy._go_on(one, folder)
    # A launch by the run's name is to find that it goes on elsewhere.
    assert tries == [True] * resumed
    assert told() == bool(resumed)
    code = deputy.REFUSED
    deputy.Deputy._go_on(one, folder)
    assert not told(), "nobody goes on"
    said = folder.deaths.read_text()
    assert ("machine 2 was cut off" in said) == (launcher and not handed_over)
    assert ("from update-00000007" in said) == bool(resumed)


def test_a_deputy_that_is_told_to_go_on_does_so_at_once_although_the_launchers_machine_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launcher gives a deputy up after 8 s. A link that is back before 12 s would leave nobody who goes on."""
    did: list[str] = []
    copy = SimpleNamespace(
        checkpoints=lambda: ["update-1"], settle=lambda: "folder", remove=lambda: did.append("removed")
    )
    monkeypatch.setattr(deputy, "_copy", lambda charge: copy)
    monkeypatch.setattr(deputy, "LOOK_S", 0.01)
    monkeypatch.setattr(deputy.Deputy, "_go_on", lambda self, folder: did.append(f"goes on in {folder}"))
    monkeypatch.setattr(deputy.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(deputy, "_leave", sys.exit)
    one = deputy.Deputy(SimpleNamespace(door=SimpleNamespace(opens=lambda: True)))
    one.go_on()
    with pytest.raises(SystemExit):
        one._watch()
    assert did == ["goes on in folder"]


class Kept:
    """A copy of a run folder with one checkpoint."""

    def __init__(self, did: list[str]) -> None:
        self._did = did
        self._held = ("update-1",)

    def checkpoints(self) -> tuple[str, ...]:
        return self._held

    def settle(self) -> str:
        return "folder"

    def remove(self) -> None:
        self._held = ()
        self._did.append("removed")


class Clock:
    """A clock that only ``sleep`` moves. ``woken`` is called each time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.woken = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.woken()


CHARGE = SimpleNamespace(
    name="pole",
    begun="first",
    log_dir="/runs",
    home="machine 1",
    here="machine 2",
    claims="penstock-1",
    door=SimpleNamespace(opens=lambda: False),
)
"""Of a run whose launcher's machine is lost."""
ASKER = Asker("first", "/runs/pole", "machine 3")


def watching(monkeypatch: pytest.MonkeyPatch, did: list[str], clock: Clock) -> deputy.Deputy:
    """A deputy without its thread."""
    monkeypatch.setattr(deputy, "_copy", lambda charge: Kept(did))
    monkeypatch.setattr(deputy, "LOOK_S", 0.5)
    monkeypatch.setattr(deputy, "time", clock)
    monkeypatch.setattr(deputy.Deputy, "_go_on", lambda self, folder: did.append(f"goes on in {folder}"))
    monkeypatch.setattr(deputy, "_leave", sys.exit)
    monkeypatch.setattr(deputy.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    return deputy.Deputy(CHARGE)


@pytest.mark.parametrize(
    ("asker", "silent_s", "handed_over", "stand"),
    [
        pytest.param(ASKER, 11.0, False, Stand.OPEN, id="the launcher may be there"),
        pytest.param(ASKER, 13.0, False, Stand.LEFT, id="the launcher is silent"),
        pytest.param(ASKER._replace(machine="machine 1"), 1.0, False, Stand.LEFT, id="the launcher was killed there"),
        pytest.param(ASKER, 13.0, True, Stand.OPEN, id="the deputy is told to go on"),
        pytest.param(ASKER._replace(machine="machine 1"), 1.0, True, Stand.OPEN, id="the same, on that machine"),
        pytest.param(ASKER._replace(begun="another"), 13.0, False, Stand.OTHER, id="another run of its name"),
        pytest.param(ASKER._replace(folder="/copies/pole"), 13.0, False, Stand.OTHER, id="a copied folder"),
    ],
)
def test_a_run_is_left_to_a_command_that_asks_once_its_launcher_is_lost(
    monkeypatch: pytest.MonkeyPatch, asker: Asker, silent_s: float, handed_over: bool, stand: Stand
) -> None:
    did: list[str] = []
    clock = Clock()
    one = watching(monkeypatch, did, clock)
    clock.now += silent_s
    if handed_over:
        one.go_on()
    answer = one.ask(asker)
    assert answer.stand is stand
    assert did == (["removed"] if stand is Stand.LEFT else [])
    if stand is not Stand.OTHER:
        assert (answer.silent_s, answer.home, answer.claims) == (silent_s, "machine 1", "penstock-1")


def test_a_run_is_not_left_to_a_command_while_a_takeover_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    clock = Clock()
    one = watching(monkeypatch, did, clock)
    monkeypatch.setattr(deputy, "LOOK_S", 0.01)
    clock.now += 13.0
    with one._lock:
        assert one.ask(ASKER).stand is Stand.OPEN
    assert not did
    assert one.ask(ASKER).stand is Stand.LEFT


def test_a_deputy_that_goes_on_says_where_but_not_to_the_command_that_it_has_given_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    did: list[str] = []
    one = watching(monkeypatch, did, Clock())
    one._goes_on = Path("/runs/pole-2")
    answer = one.ask(ASKER)
    assert (answer.stand, answer.folder, answer.here) == (Stand.ELSEWHERE, "/runs/pole-2", "machine 2")
    # Where machines share no disk, the folder has the same path.
    one._goes_on = Path("/runs/pole")
    assert one.ask(ASKER).stand is Stand.ELSEWHERE
    assert one.ask(ASKER._replace(machine="machine 2")).stand is Stand.OTHER
    assert not did


@pytest.mark.parametrize("asks", [True, False])
def test_a_command_that_asks_has_the_run_before_its_deputy(monkeypatch: pytest.MonkeyPatch, asks: bool) -> None:
    did: list[str] = []
    stands: list[Stand] = []
    clock = Clock()
    one = watching(monkeypatch, did, clock)

    def ask() -> None:
        if asks and Stand.LEFT not in stands:
            stands.append(one.ask(ASKER).stand)

    clock.woken = ask
    with pytest.raises(SystemExit):
        one._watch()
    if asks:
        assert stands == [Stand.OPEN] * 24 + [Stand.LEFT]
        # Removed for the command, and once more by the deputy, which finds that nothing is left.
        assert did == ["removed", "removed"]
    else:
        assert did == ["goes on in folder"]


def test_a_deputy_goes_on_if_the_command_that_asked_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    clock = Clock()
    one = watching(monkeypatch, did, clock)
    clock.woken = lambda: one.ask(ASKER) if clock.now < 111.9 else None
    with pytest.raises(SystemExit):
        one._watch()
    assert did == ["goes on in folder"]
    assert clock.now == pytest.approx(114.5, abs=0.6)


def test_a_door_opens_where_something_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        door = Door.at(f"127.0.0.1:{server.getsockname()[1]}")
        assert door.opens()
    assert not door.opens()


@pytest.mark.parametrize("head_opens", [True, False])
def test_a_launcher_is_cut_off_if_neither_its_deputy_nor_the_head_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_opens: bool
) -> None:
    killed, said, heirs, heard = [], [], [], []

    class Silent:
        def __init__(self, folder: RunFolder, machine: SimpleNamespace, claims: str) -> None:
            self.machine = machine

        def hear(self, over: object) -> bool:
            heard.append(self.machine.id)
            return False

        def kill(self) -> None:
            killed.append(self.machine.id)

        def go_on(self) -> None:
            heirs.append(self.machine.id)

        def end(self) -> None:
            heirs.append("nobody")

    monkeypatch.setattr(safekeeping, "_Appointed", Silent)
    monkeypatch.setattr(safekeeping, "PAUSE_S", 0.01)
    monkeypatch.setattr(safekeeping, "WORD_S", 0.01)
    there = [
        SimpleNamespace(id=number, name=f"machine {number}", door=SimpleNamespace(opens=lambda: True), offer=offer)
        for number, offer in enumerate(SimpleNamespace(resources={"cpu": cores}) for cores in (4.0, 8.0))
    ]
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:6379"))
    monkeypatch.setattr(safekeeping.Door, "opens", lambda door: head_opens)

    def lead(end: Exception | None) -> None:
        with safekeeping.Safekeeping(
            RunFolder(tmp_path), lambda: there, lambda: None, lambda: 0, said.append, claims="run"
        ):
            assert wait_until(lambda: bool(said) or len(killed) >= 2, 30)
            # Until the run has ended, its heir is told that it is not to end yet.
            assert head_opens or wait_until(lambda: len(heard) > 2, 30)
            if end is not None:
                raise end

    with pytest.raises(NodeError):
        lead(NodeError("relay", "this machine is cut off"))
    if head_opens:
        # Each machine in turn, the one with the most cores first.
        assert killed[:2] == [1, 0]
        assert not said
        assert not set(heirs) - {"nobody"}
    else:
        assert not killed
        assert "machine 1 goes on" in said[0]
        assert heirs == [1]
        # A run that was at its end needs nobody.
        lead(None)
        assert heirs == [1, "nobody"]


def test_an_error_while_a_copy_is_kept_is_logged_once_and_the_copy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bool] = []

    class Unread:
        up_to_date, checkpoint_bytes, transfer_s = True, 0, 0.0

        def __init__(self, folder: RunFolder, machine: SimpleNamespace, claims: str) -> None:
            self.machine = machine

        def hear(self, over: object) -> bool:
            heard.append(True)
            if len(heard) < 3:
                raise OSError("the disk does not answer")
            return True

        def end(self) -> None:
            """The run has ended."""

    monkeypatch.setattr(safekeeping, "_Appointed", Unread)
    monkeypatch.setattr(safekeeping, "PAUSE_S", 0.01)
    monkeypatch.setattr(safekeeping, "WORD_S", 0.01)
    offer = SimpleNamespace(resources={"cpu": 4.0})
    there = [SimpleNamespace(id=1, name="machine 1", door=SimpleNamespace(opens=lambda: True), offer=offer)]
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:6379"))
    folder = RunFolder(tmp_path)
    with safekeeping.Safekeeping(folder, lambda: there, lambda: None, lambda: 0, lambda why: None, claims="run"):
        assert wait_until(lambda: len(heard) > 4, 30)
    log = folder.deaths.read_text()
    assert log.startswith("keeping a copy of the run on another machine failed, and is tried again:\nTraceback")
    assert log.count("OSError: the disk does not answer") == 1
