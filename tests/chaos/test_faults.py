"""Environments that hang, fail or leave children behind, and processes that are stopped and wake up later."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil
import pytest

from penstock.errors import NodeError
from tests.chaos import oracle
from tests.chaos.test_kills import BATCH, SETTINGS, find, fingerprint, lines, train
from tests.children import killing, newest_checkpoint
from tests.environments import TargetEnv
from tests.runtime.nodes import wait_until

pytestmark = pytest.mark.usefixtures("shared_templates")

HERE = __name__
IN_A_WORKER = os.environ.get("PENSTOCK_GROUP", "probe") != "probe"
FAST = {"num_steps": 16, "mini_batch_size": 32}


class Once(TargetEnv, ABC):
    """Does something bad at one step, the first time that any process reaches it."""

    total = 0

    def step(self, action):
        Once.total += 1
        if Once.total == 40 and first():
            self.misbehave()
        return super().step(action)

    @abstractmethod
    def misbehave(self) -> None: ...


def first() -> bool:
    """True for the first call."""
    try:
        os.close(os.open(os.environ["MARK"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Raises(Once):
    def misbehave(self) -> None:
        raise RuntimeError("the bridge is out")


class Crashes(Once):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class HangsInStep(Once):
    def misbehave(self) -> None:
        time.sleep(1000)


class HangsInReset(TargetEnv):
    total = 0

    def reset(self, *, seed=None, options=None):
        HangsInReset.total += 1
        if HangsInReset.total == 6 and first():
            time.sleep(1000)
        return super().reset(seed=seed)


class AlwaysHangsInReset(TargetEnv):
    def reset(self, *, seed=None, options=None):
        if IN_A_WORKER:
            time.sleep(1000)
        return super().reset(seed=seed)


class AlwaysRaises(TargetEnv):
    def step(self, action):
        raise RuntimeError("the bridge is out")


class RaisesLate(TargetEnv):
    """Raises in the first step that a run of three batches does not need."""

    def __init__(self) -> None:
        self.taken = 0

    def step(self, action):
        self.taken += 1
        if self.taken > 3 * BATCH // SETTINGS["num_envs"]:
            raise RuntimeError("the bridge is out")
        return super().step(action)


class HasChildren(TargetEnv):
    def __init__(self) -> None:
        for apart in (False, True):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=apart)
            if IN_A_WORKER:
                (Path(os.environ["MARK"]) / str(child.pid)).touch()
            else:
                child.kill()
                child.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("whole"), 30, env="tests.environments:TargetEnv", **FAST))


@pytest.mark.parametrize(
    ("env", "how", "env_timeout"),
    [
        # Four seconds and more. Shorter: a process that ends by a signal; one hangs in ``tests/runtime``.
        pytest.param(Raises, "ended with status 1", 60.0, marks=pytest.mark.nightly),
        (Crashes, "was ended by SIGSEGV", 60.0),
        pytest.param(
            HangsInStep,
            "hung (a step or reset took longer than --env_timeout allows), was ended",
            3.0,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            HangsInReset,
            "hung (a step or reset took longer than --env_timeout allows), was ended",
            3.0,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_fault_that_passes_is_told_of_and_changes_nothing(
    tmp_path, monkeypatch, undisturbed, env: type, how, env_timeout
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    result = train(tmp_path, 30, env=f"{HERE}:{env.__name__}", env_timeout=env_timeout, **FAST)
    assert fingerprint(result) == undisturbed
    (told,) = [line["note"] for line in lines(result) if "note" in line]
    assert how in told
    assert "was started again (restart 1)" in told


@pytest.mark.parametrize(
    ("env", "said"),
    # Six seconds until it has hung twice. Shorter: it has raised twice.
    [
        (AlwaysRaises, "the bridge is out"),
        pytest.param(AlwaysHangsInReset, "no sign of life", marks=pytest.mark.nightly),
    ],
)
def test_a_fault_that_stays_ends_the_run_with_its_own_words(tmp_path, env: type, said: str) -> None:
    with pytest.raises(NodeError, match=said) as caught:
        train(tmp_path, 30, env=f"{HERE}:{env.__name__}", max_restarts=1, env_timeout=1.0, **FAST)
    assert "was started 1 time more, without any progress" in caught.value.detail
    assert env.__name__ in caught.value.detail or "in reset" in caught.value.detail


def test_a_run_that_has_learned_all_does_not_fail_by_what_nobody_needs(tmp_path) -> None:
    """An environment raises in the rollout behind the last one. Whether it comes so far is a matter of time."""
    result = train(tmp_path, 3, env=f"{HERE}:RaisesLate", eval_episodes=0, **FAST)
    assert (result.steps, result.interrupted) == (3 * BATCH, False)
    assert all("which costs the run nothing: RuntimeError: the bridge is out" in note for note in result.notes)


def test_children_of_environments_end_with_their_process_and_with_the_run(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "children"
    folder.mkdir()
    monkeypatch.setenv("MARK", str(folder))

    with killing(["env.0"], tmp_path / "logs"):
        train(tmp_path / "logs", 60, env=f"{HERE}:HasChildren", save_interval=5, **FAST)
    children = [int(path.name) for path in folder.iterdir()]
    # Those of four lanes, of the two that were started again, and of the two players of the final evaluation.
    assert len(children) == 4 * 2 + 2 * 2 + 2 * 2
    assert not any(psutil.pid_exists(pid) and "sleep" in " ".join(psutil.Process(pid).cmdline()) for pid in children)


@pytest.fixture(scope="module")
def long_undisturbed(tmp_path_factory) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("long"), 80, env="tests.environments:TargetEnv", **FAST))


# Six seconds. Shorter: one that never wakes in ``test_exact_kills.py``.
@pytest.mark.parametrize("seconds", [0.3, pytest.param(3.0, marks=pytest.mark.nightly)])
def test_a_process_that_is_stopped_and_wakes_later_harms_nothing(tmp_path, long_undisturbed, seconds: float) -> None:
    stopped = threading.Event()

    def stop() -> None:
        # By a checkpoint, so that it lies within the run's turns however quick the machine is.
        assert wait_until(lambda: newest_checkpoint(tmp_path) != "")
        process = find("env.1")
        assert process is not None
        process.suspend()
        stopped.set()
        time.sleep(seconds)
        # By then it may be another life.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    stopping = threading.Thread(target=stop)
    stopping.start()
    result = train(tmp_path, 80, env="tests.environments:TargetEnv", save_interval=10, env_timeout=1.0, **FAST)
    stopping.join()
    assert stopped.is_set()
    assert fingerprint(result) == long_undisturbed


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({"sync_mode": "non_blocking"}, ["env.0", "learner", "env.1", "monitor"]),
        # Eight seconds. Shorter: a policy node and an environment node die in ``test_exact_kills.py``.
        pytest.param(
            {"policy_placement": "node"}, ["policy.0", "env.0", "policy.0", "learner"], marks=pytest.mark.nightly
        ),
        # Shorter: one of two policy nodes dies in ``test_exact_kills.py``.
        pytest.param(
            {"policy_placement": "node", "policy_nodes": 2, "max_wait": 0.01},
            ["policy.0", "env.0", "policy.1", "learner"],
            marks=pytest.mark.nightly,
        ),
        # Shorter: an evaluator dies while a run ends in ``test_exact_kills.py``.
        pytest.param(
            {"eval_interval": 5, "eval_episodes": 50}, ["evaluator", "monitor", "evaluator"], marks=pytest.mark.nightly
        ),
    ],
)
def test_every_kind_of_node_is_started_again(tmp_path, settings: dict[str, object], groups: list[str]) -> None:
    with killing(groups, tmp_path) as killed:
        result = train(tmp_path, 80, env="Pendulum-v1", save_interval=5, **settings)
    assert len(killed) >= 2
    assert result.steps >= 80 * 64 * 4
    assert result.not_restored == 0
    assert oracle.balanced(result)["rows/learned"] == result.steps
