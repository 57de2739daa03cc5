"""An evaluation on several machines: the episodes of one machine, whichever machines play them."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import ray

import penstock
from penstock.cluster import evaluations, launch
from penstock.cluster.evaluations import Played, Share, shares_of
from penstock.cluster.messages import facts
from penstock.errors import ConfigError, LostError, NodeError, RunFolderError
from penstock.evaluation import Evaluation
from penstock.metrics.run_log import RUN_LOG
from penstock.saved_runs.run_folder import RunFolder
from tests.end_to_end.test_final_evaluation import train
from tests.gated import GatedCartPole
from tests.runtime.nodes import wait_until

NUMBERED = "NumberedEnv"
"""Of ``test_final_evaluation``: an episode is worth its number."""
IDS = [56 * digit for digit in "123"]
"""Of machines, in the form of Ray."""


class Tasks:
    """Stands for Ray: each task runs at once, in this process.

    Attributes:
        played: the share that each machine was given.
        failing: machine -> what its answer raises.
        refused: ids of machines that do not take part.
        begun: the name of the function of each task, and its machine.
        cancelled: each answer that is no longer wanted, and whether its process was ended at once.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self.nodes = [
            {
                "NodeID": name,
                "NodeManagerAddress": f"10.0.0.{index}",
                "NodeManagerPort": 1,
                "Resources": {"CPU": float(count)},
            }
            for index, (name, count) in enumerate(zip(IDS, cores, strict=True))
        ]
        self.played: dict[str, Share] = {}
        self.failing: dict[str, Exception] = {}
        self.refused: set[str] = set()
        self.begun: list[tuple[str, str]] = []
        self.cancelled: list[object] = []
        self._answers: dict[str, Any] = {}

    def remote(self, function: Callable[..., Any]) -> Any:
        def placed(**options: Any) -> Any:
            machine = options["scheduling_strategy"].node_id

            def begin(*arguments: Any) -> str:
                self.begun.append((function.__name__, machine))
                if function is evaluations.play_share:
                    assert options["scheduling_strategy"].soft
                    self.played[machine] = arguments[1]
                self._answers[machine] = self.failing.get(machine) or function(*arguments)
                return machine

            return SimpleNamespace(remote=begin)

        return SimpleNamespace(options=placed)

    def put(self, value: object) -> object:
        return value

    def wait(self, asked: list[str], **_: object) -> tuple[list[str], list[str]]:
        return asked, []

    def get(self, answer: str, **_: object) -> Any:
        if isinstance(found := self._answers[answer], Exception):
            raise found
        return found

    def cancel(self, answer: str, *, force: bool = False) -> None:
        self.cancelled.append((answer, force))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Three machines with one, two and three cores."""
    found = Tasks([1, 2, 3])
    for name in ("remote", "put", "wait", "get", "cancel"):
        monkeypatch.setattr(ray, name, getattr(found, name))
    monkeypatch.setattr(evaluations, "with_cores", lambda: found.nodes)
    monkeypatch.setattr(evaluations, "cluster_address", lambda: "10.0.0.0:6379")
    monkeypatch.setattr(evaluations, "HeadWatch", lambda *given: nullcontext())
    monkeypatch.setattr(evaluations, "takes_part", lambda machine, bits: machine.id not in found.refused)
    monkeypatch.setattr(launch, "counted", lambda address, modules: nullcontext(6))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return train(folder, NUMBERED, num_workers=2, runtime="inline", eval_episodes=0).run_folder


def test_machines_play_episodes_by_their_cores_and_none_twice() -> None:
    plan: Any = SimpleNamespace(players=5, episodes=11)
    assert shares_of(plan, [2.0, 0.0, 4.0]) == [Share(0, 4, 0, 2), Share(4, 0, 2, 0), Share(4, 7, 2, 3)]
    # No more play than there are episodes.
    assert shares_of(SimpleNamespace(players=5, episodes=2), [2.0, 4.0]) == [Share(0, 1, 0, 1), Share(1, 1, 1, 1)]


def test_the_episodes_of_all_machines_are_those_of_one_in_the_same_order(run: Path, tmp_path: Path, tasks) -> None:
    asked = {"episodes": 7, "num_workers": 6, "runtime": "ray"}
    found = penstock.evaluate(run, **asked, keep=tmp_path / "many")
    assert [share.first for share in tasks.played.values()] == [0, 1, 3]
    assert found.returns == tuple(map(float, range(7)))
    assert found == penstock.evaluate(run, episodes=7, num_workers=1, keep=tmp_path / "one")
    assert content(tmp_path / "many") == content(tmp_path / "one")
    assert len(content(tmp_path / "many")) == 7


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_as_many_play_as_the_run_has_processes_if_the_cluster_has_so_many_cores(run: Path, tasks, monkeypatch) -> None:
    penstock.evaluate(run, episodes=7, distributed=True)
    assert sum(share.players for share in tasks.played.values()) == 2
    tasks.played.clear()
    monkeypatch.setattr(launch, "counted", lambda address, modules: nullcontext(1))
    penstock.evaluate(run, episodes=7, distributed=True)
    assert sum(share.players for share in tasks.played.values()) == 1


def test_a_machine_that_is_lost_when_the_evaluation_begins_plays_nothing(run: Path, tasks) -> None:
    tasks.refused = {IDS[0]}
    assert penstock.evaluate(run, episodes=5, num_workers=4, runtime="ray").returns == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert tasks.played.keys() == {*IDS[1:]}


def test_all_machines_are_asked_for_their_facts_before_the_first_answer(run: Path, tasks, monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(evaluations, "takes_part", lambda machine, bits: not asked.append(len(tasks.begun)))
    penstock.evaluate(run, episodes=5, num_workers=4, runtime="ray")
    assert asked == [3, 3, 3]
    assert tasks.begun[:3] == [("facts", machine) for machine in IDS]


def test_a_cluster_of_which_no_machine_answers_is_one_line(run: Path, tasks) -> None:
    tasks.refused = {*IDS}
    with pytest.raises(LostError, match=r"^no machine of the cluster answers; type the command again$"):
        penstock.evaluate(run, episodes=5, num_workers=4, runtime="ray")


def test_a_cluster_that_was_given_no_cores_plays_in_one_process(run: Path, tasks, monkeypatch) -> None:
    monkeypatch.setattr(launch, "counted", lambda address, modules: nullcontext(0))
    assert penstock.evaluate(run, episodes=3, distributed=True).returns == (0.0, 1.0, 2.0)
    assert sum(share.players for share in tasks.played.values()) == 1


def test_a_share_that_comes_to_a_machine_of_another_kind_is_not_played_there(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = facts()
    plan: Any = SimpleNamespace()
    for other in (
        wanted._replace(penstock="0.0.1"),
        wanted._replace(code="other"),
        wanted._replace(instruction_set="other"),
    ):
        monkeypatch.setattr(evaluations, "facts", lambda other=other: other)
        with pytest.raises(LostError, match=r"^Ray went on with it on a machine with another version, other code"):
            evaluations.play_share(plan, Share(0, 1, 0, 1), lambda plan: pytest.fail("it is played"), [], wanted)


def test_a_head_that_is_lost_ends_the_evaluation_with_what_to_type(run: Path, tasks, monkeypatch, tmp_path) -> None:
    def watch(address: str, want_checkpoint: object, lost: Callable[[str], None], advice: str) -> Any:
        lost(f"the head at {address} is lost; {advice}")
        return nullcontext()

    monkeypatch.setattr(evaluations, "HeadWatch", watch)
    monkeypatch.setattr(ray, "wait", lambda asked, **_: ([], asked))
    asked = {"episodes": 5, "num_workers": 4, "runtime": "ray"}
    with pytest.raises(LostError, match=r"^the head at 10\.0\.0\.0:6379 is lost; type the command again$"):
        penstock.evaluate(run, **asked)
    assert [force for _, force in tasks.cancelled] == [False] * 3 + [True] * 3
    with pytest.raises(LostError, match=r"; type the command again, with another folder for --keep$"):
        penstock.evaluate(run, **asked, keep=tmp_path / "kept")


def test_a_machine_that_is_lost_too_often_ends_the_evaluation_with_what_to_type(
    run: Path, tasks, tmp_path: Path
) -> None:
    tasks.failing[IDS[1]] = ray.exceptions.NodeDiedError("the node died")
    asked = {"episodes": 5, "num_workers": 4, "runtime": "ray"}
    with pytest.raises(LostError, match=r"^machine 10\.0\.0\.1 .* was lost, .*the node died; type the command again$"):
        penstock.evaluate(run, **asked)
    # The first machine's episodes have been kept, and a folder that holds some is refused.
    with pytest.raises(LostError, match=r"; type the command again, with another folder for --keep$"):
        penstock.evaluate(run, **asked, keep=tmp_path / "kept")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_tasks_of_all_machines(run: Path, tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(asked: list[str], **_: object) -> tuple[list[str], list[str]]:
        os.kill(os.getpid(), signal.SIGINT)
        return [], asked

    monkeypatch.setattr(ray, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        penstock.evaluate(run, episodes=5, num_workers=4, runtime="ray")
    assert [force for _, force in tasks.cancelled] == [False] * 3 + [True] * 3


def test_a_failure_is_told_with_its_machine_and_logs_come_to_those_of_the_run(run: Path, tasks) -> None:
    log = ["2026-01-01T12:00:00+00:00 WARNING player.0: it is late"]
    failed = Played({}, ("player.0", "Traceback\nRuntimeError: broken"), log, "player.0, restart 1:\nwhy\n", {})
    tasks._answers["a"] = failed
    plan: Any = SimpleNamespace(folder=RunFolder(run), keep=None)
    with pytest.raises(NodeError, match=r"^node player\.0 on machine a failed:\nTraceback\nRuntimeError: broken"):
        evaluations._received(plan, "machine a", "a")
    assert (run / RUN_LOG).read_text().endswith(" WARNING player.0 on machine a: it is late\n")
    assert (run / "deaths.log").read_text() == "machine a:\nplayer.0, restart 1:\nwhy\n"


def test_an_error_that_needs_no_traceback_is_told_with_its_machine(run: Path, tasks) -> None:
    detail = "Traceback\npenstock.errors.RunFolderError: /tmp/kept cannot be written: No space left on device\n"
    tasks._answers["a"] = Played({}, ("player.0", detail), [], "", {})
    plan: Any = SimpleNamespace(folder=RunFolder(run), keep=None)
    with pytest.raises(
        RunFolderError, match=r"^machine a: /tmp/kept cannot be written: No space left on device$"
    ) as told:
        evaluations._received(plan, "machine a", "a")
    assert isinstance(told.value.__cause__, NodeError)


def test_a_record_does_not_hold_the_answer_of_its_machine(run: Path, tasks) -> None:
    answer = np.arange(3.0)
    tasks._answers["a"] = Played({"episode_return": answer}, None, [], "", {})
    plan: Any = SimpleNamespace(folder=RunFolder(run), keep=None)
    found = evaluations._received(plan, "machine a", "a")["episode_return"]
    np.testing.assert_array_equal(found, answer)
    assert not np.shares_memory(found, answer)


@pytest.mark.parametrize(
    ("players", "said"),
    [
        ([1], "1 process plays on 1 of 1 machine"),
        ([1, 0], "1 process plays on 1 of 2 machines"),
        ([2, 3, 0], "5 processes play on 2 of 3 machines"),
    ],
)
def test_the_line_on_who_plays_counts_processes_and_machines(players: list[int], said: str) -> None:
    assert evaluations._spread_text([Share(0, own, 0, own) for own in players]) == said


def test_an_episode_that_cannot_be_written_here_is_one_line(tmp_path: Path, tasks) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunFolderError, match=f"^{tmp_path}/taken cannot be written: "):
        evaluations._keep(tmp_path / "taken", 1, np.zeros(3, np.uint8))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"runtime": "local", "distributed": True}, "^--distributed True is for --runtime ray, not local; leave out"),
        ({"address": "auto"}, "^--address names a Ray cluster; give --distributed True, and no other --runtime$"),
        ({"runtime": "rey"}, "^unknown runtime 'rey'; did you mean ray"),
    ],
)
def test_flags_of_a_cluster_are_checked_as_those_of_a_run(run: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        penstock.evaluate(run, **settings)


def make_watched(folder: str) -> object:
    """Gated CartPole that leaves a file with the number of each process that makes it, and warns."""
    place = Path(folder)
    (place / f"process-{os.getpid()}").touch()
    logging.getLogger(__name__).warning("made")
    return GatedCartPole(str(place / "gate"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Evaluation]:
    """A run on this machine, the folder of its environments with the gate open, and its evaluation by one process."""
    folder, places = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("places")
    (places / "gate").touch()
    settings = {"num_steps": 32, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 32, "timesteps": 512}
    own = {"env": f"{__name__}:make_watched", "env_args": {"folder": str(places)}, "seed": 3}
    found = penstock.train({**settings, **own, "log_dir": str(folder), "eval_episodes": 0}, quiet=True)
    one = penstock.evaluate(found.run_folder, episodes=12, num_workers=1, keep=folder / "kept-by-one")
    for process in places.glob("process-*"):
        process.unlink()
    return found.run_folder, places, one


# Fifteen seconds. Shorter: the tests above, without a cluster.
@pytest.mark.nightly
def test_machines_do_not_change_an_episode(cluster, trained, tmp_path: Path) -> None:
    run, _, one = trained
    found = penstock.evaluate(
        run, episodes=12, num_workers=5, runtime="ray", address=cluster.address, keep=tmp_path / "kept"
    )
    assert found == one
    assert found.returns == one.returns
    assert len(set(one.returns)) > 1
    assert content(tmp_path / "kept") == content(run.parent / "kept-by-one")
    # Each machine has played, and its warnings have come here.
    warned = [line.split(" on ")[1] for line in (run / RUN_LOG).read_text().splitlines() if " on machine " in line]
    assert len({line.partition(": ")[0] for line in warned}) == 3


# Twenty seconds. Shorter: the tests above, without a cluster.
@pytest.mark.nightly
def test_a_machine_that_is_lost_changes_no_episode(cluster, machine, trained) -> None:
    run, places, one = trained
    before = set(places.glob("process-*"))
    (places / "gate").unlink()
    found: list[Evaluation] = []
    asked = {"episodes": 12, "num_workers": 8, "runtime": "ray", "address": cluster.address}
    playing = threading.Thread(target=lambda: found.append(penstock.evaluate(run, **asked)))
    playing.start()
    try:
        # One process looks at the environment, and two play on each of four machines.
        assert wait_until(lambda: len(set(places.glob("process-*")) - before) >= 9, 120)
        cluster.remove_node(machine)
    finally:
        (places / "gate").touch()
    playing.join()
    assert [one.returns] == [evaluation.returns for evaluation in found]


# Twenty seconds. Shorter: the tests above, without a cluster.
@pytest.mark.nightly
def test_a_ctrl_c_leaves_no_process_on_any_machine(cluster, trained, interruptible) -> None:
    run, places, _ = trained
    before = set(places.glob("process-*"))
    (places / "gate").unlink()
    flags = ["--episodes", "500", "--num_workers", "6", "--distributed", "--address", cluster.address]
    begun = subprocess.Popen(
        [sys.executable, "-m", "penstock", "eval", str(run), *flags], stderr=subprocess.PIPE, text=True
    )
    try:
        assert wait_until(lambda: len(set(places.glob("process-*")) - before) >= 7, 120)
        begun.send_signal(signal.SIGINT)
        _, said = begun.communicate(timeout=60)
    finally:
        begun.kill()
        (places / "gate").touch()
    assert begun.returncode == 130
    assert "6 processes play on 3 of 3 machines" in said
    assert "Traceback" not in said
    left = [int(path.name.partition("-")[2]) for path in set(places.glob("process-*")) - before]
    assert wait_until(lambda: not any(map(psutil.pid_exists, left)), 30)
