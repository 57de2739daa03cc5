"""A command that goes on with a run asks the run's deputy first. Ray is imitated."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from penstock.cluster import relaunch
from penstock.cluster.questions import Answer, Asker, Stand
from penstock.cluster.relaunch import LIMIT_S, SPEAKS_S, ask_deputies
from penstock.errors import RunFolderError
from penstock.saved_runs.run_folder import RunFolder

HOME = {"home": "machine 1", "here": "machine 2", "claims": "penstock-1"}
LEFT = Answer(Stand.LEFT, 12.5, **HOME)
Say = Callable[[float], Answer]
"""Seconds since the first question -> the answer. An error is raised."""


class World:
    """A deputy that answers by a clock, and what was done to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.say: Say = lambda waited: LEFT
        self.asked: list[Asker] = []
        self.did: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get(self, asker: Asker, timeout: float) -> Answer:
        self.asked.append(asker)
        return self.say(self.now)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    deputy = SimpleNamespace(ask=SimpleNamespace(remote=lambda asker: asker))
    monkeypatch.setattr(relaunch, "time", found)
    monkeypatch.setattr(relaunch, "own_name", lambda: "machine 3")
    monkeypatch.setattr(relaunch, "release_claims", lambda run: found.did.append(f"released {run}"))
    monkeypatch.setattr(relaunch, "_deputies", lambda run: [deputy] if run == "pole" else [])
    monkeypatch.setattr(ray, "get", found.get)
    monkeypatch.setattr(ray, "kill", lambda actor: found.did.append("killed"))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "pole")
    run.path.mkdir()
    run.launches_path.write_text("first\nsecond\n")
    return run


def is_open(silent_s: float) -> Answer:
    return Answer(Stand.OPEN, silent_s, **HOME)


def test_a_new_run_asks_nobody(world: World, tmp_path: Path) -> None:
    ask_deputies(RunFolder(tmp_path / "pole"), quiet=False)
    assert not world.asked


def test_a_command_waits_until_the_launcher_is_lost_and_then_has_the_run(
    world: World, folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    world.say = lambda waited: is_open(9.0 + waited) if waited < 3.5 else LEFT
    ask_deputies(folder, quiet=False)
    assert world.now == 3.5
    assert set(world.asked) == {Asker("first\n", str(folder.path.resolve()), "machine 3")}
    assert world.did == ["released penstock-1", "killed"]
    said = "waiting about 20 s at most: another machine may be about to go on with run pole\n"
    assert capsys.readouterr().err == said, "once"


def test_a_quiet_command_says_nothing(world: World, folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    world.say = lambda waited: is_open(11.8 + waited) if waited < 1.0 else LEFT
    ask_deputies(folder, quiet=True)
    assert capsys.readouterr().err == ""


def test_a_run_whose_launcher_speaks_is_not_gone_on_with(world: World, folder: RunFolder) -> None:
    world.say = lambda waited: is_open(0.4)
    with pytest.raises(RunFolderError, match=r"^run pole trains on machine 1; wait for its end, or end it there$"):
        ask_deputies(folder, quiet=True)
    assert SPEAKS_S < world.now < SPEAKS_S + 1.0
    assert not world.did


def test_a_run_that_goes_on_elsewhere_is_refused_with_the_place(world: World, folder: RunFolder) -> None:
    world.say = lambda waited: Answer(Stand.ELSEWHERE, 20.0, "/runs/pole-2", **HOME)
    with pytest.raises(
        RunFolderError, match=r"^run pole goes on in /runs/pole-2, on machine 2, because its launcher's"
    ):
        ask_deputies(folder, quiet=True)
    assert not world.did


def test_a_takeover_that_is_not_decided_in_time_is_refused(world: World, folder: RunFolder) -> None:
    world.say = lambda waited: is_open(12.0 + waited)
    with pytest.raises(RunFolderError, match=r"^run pole: machine 2 is about to go on with it; type the command again"):
        ask_deputies(folder, quiet=True)
    assert LIMIT_S < world.now < LIMIT_S + 1.0


@pytest.mark.parametrize(
    "error", [ray.exceptions.ActorDiedError(), ray.exceptions.RayTaskError("ask", "a traceback", AttributeError("ask"))]
)
def test_a_deputy_that_has_ended_or_cannot_be_asked_holds_nobody_up(
    world: World, folder: RunFolder, error: Exception
) -> None:
    def fail(waited: float) -> Answer:
        raise error

    world.say = fail
    ask_deputies(folder, quiet=True)
    assert (world.now, world.did) == (0.0, [])


def test_a_deputy_of_a_version_that_cannot_be_asked_holds_nobody_up(
    world: World, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The handle of an actor has the methods of its own version alone.
    monkeypatch.setattr(relaunch, "_deputies", lambda run: [SimpleNamespace()])
    ask_deputies(folder, quiet=True)
    assert (world.now, world.asked, world.did) == (0.0, [], [])


def test_nothing_is_done_to_a_deputy_before_all_have_answered(
    world: World, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (deputy,) = relaunch._deputies("pole")
    monkeypatch.setattr(relaunch, "_deputies", lambda run: [deputy, deputy])
    world.say = lambda waited: LEFT if len(world.asked) == 1 else is_open(0.4)
    with pytest.raises(RunFolderError, match=r"^run pole trains on machine 1"):
        ask_deputies(folder, quiet=True)
    assert world.did == []
    world.say = lambda waited: LEFT
    ask_deputies(folder, quiet=True)
    assert world.did == ["released penstock-1", "killed"] * 2


def test_several_deputies_are_waited_for_no_longer_than_one(
    world: World, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(waited: float) -> Answer:
        raise ray.exceptions.GetTimeoutError

    (deputy,) = relaunch._deputies("pole")
    monkeypatch.setattr(relaunch, "_deputies", lambda run: [deputy] * 3)
    world.say = silent
    ask_deputies(folder, quiet=True)
    assert LIMIT_S < world.now < LIMIT_S + 1.0


def test_a_deputy_of_another_run_holds_nobody_up(world: World, folder: RunFolder) -> None:
    world.say = lambda waited: Answer(Stand.OTHER)
    ask_deputies(folder, quiet=True)
    assert (world.now, world.did) == (0.0, [])


def test_a_deputy_that_does_not_answer_is_waited_for_no_longer_than_a_takeover_takes(
    world: World, folder: RunFolder
) -> None:
    def silent(waited: float) -> Answer:
        raise ray.exceptions.GetTimeoutError

    world.say = silent
    ask_deputies(folder, quiet=True)
    assert LIMIT_S < world.now < LIMIT_S + 1.0


def test_only_deputies_of_the_run_on_machines_that_are_there_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["pole, kept on machine 1 (a)", "pole, kept on machine 2 (b)", "pole, kept on machine 2 (c)"]
    names += ["pole-2, kept on machine 2 (d)", "others"]
    listed = [{"namespace": "penstock", "name": name} for name in names]
    listed.append({"namespace": "another", "name": "pole, kept on machine 2 (e)"})

    def actor(name: str, namespace: str) -> str:
        if name.endswith("(c)"):
            raise ValueError("it has ended meanwhile")
        return name

    def doors() -> dict[str, object]:
        return {f"machine {number}": SimpleNamespace(opens=lambda there=there: there) for number, there in THERE}

    monkeypatch.setattr(ray.util, "list_named_actors", lambda all_namespaces: listed)
    monkeypatch.setattr(ray, "get_actor", actor)
    monkeypatch.setattr(relaunch, "doors", doors)
    assert relaunch._deputies("pole") == ["pole, kept on machine 2 (b)"]


THERE = ((1, False), (2, True), (3, True))
