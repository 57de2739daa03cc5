"""Runs in real processes: interrupted, resumed, evaluated, and with environments that have no name."""

import json
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.errors import EnvError, NodeError
from penstock.processes.interrupts import Interrupts
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from tests.children import interrupt_twice, of_group
from tests.environments import IdentityEnv

pytestmark = pytest.mark.usefixtures("interruptible")

SMALL = {"num_steps": 32, "epochs": 2, "mini_batch_size": 32, "eval_episodes": 4, "num_workers": 2}
COMMAND = [sys.executable, "-m", "penstock"]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def endless(log_dir: Path, **settings: object) -> subprocess.Popen[str]:
    """A run that goes on until it is ended."""
    flags = [f"--{name}={value}" for name, value in {**SMALL, **settings}.items()]
    return start("train", "--env=CartPole-v1", f"--log_dir={log_dir}", *flags, "--log_interval=1")


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def wait_for_update(process: subprocess.Popen[str], update: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if (found := re.match(r"update (\d+) ", line)) and int(found[1]) >= update:
            return
    raise AssertionError(f"the run ended early: {process.stderr.read() if process.stderr else ''}")


@pytest.mark.parametrize(
    ("number", "backend"),
    [
        (signal.SIGINT, "fused"),
        # Nine seconds. Shorter: the same signal, where no process imports torch.
        pytest.param(signal.SIGINT, "eager", marks=pytest.mark.nightly),
        (signal.SIGTERM, "fused"),
        # Shorter: the other signals.
        pytest.param(signal.SIGHUP, "fused", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_writes_a_checkpoint_and_leaves_nothing_running(
    tmp_path, number: signal.Signals, backend: str
) -> None:
    run = endless(tmp_path, backend=backend)
    wait_for_update(run, 3)
    workers = descendants(run)
    assert len(workers) >= 4
    run.send_signal(number)
    assert run.wait(120) == 130
    assert not any(worker.is_running() for worker in workers)
    (folder,) = tmp_path.iterdir()
    saved = load_checkpoint(find_checkpoint(folder))
    assert saved.manifest["update"] >= 3
    assert (folder / "README.md").exists()


def test_signals_that_are_ignored_at_the_start_change_nothing_and_sigterm_ends_the_run_in_order(tmp_path) -> None:
    """As a shell starts its background jobs, and nohup a command."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run = endless(tmp_path)
    for update, number in ((2, signal.SIGINT), (20, signal.SIGHUP)):
        wait_for_update(run, update)
        run.send_signal(number)
    wait_for_update(run, 40)
    run.send_signal(signal.SIGTERM)
    assert run.wait(120) == 130
    (folder,) = tmp_path.iterdir()
    assert load_checkpoint(find_checkpoint(folder)).manifest["update"] >= 40


# Shorter: between the other two moments.
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("*", marks=pytest.mark.nightly),
        "*/config.toml",
        pytest.param("*/metrics.jsonl", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_at_the_beginning_leaves_a_run_that_can_go_on_or_nothing(tmp_path, moment: str) -> None:
    run = endless(tmp_path)
    while not list(tmp_path.glob(moment)):
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    said, complaint = run.communicate(timeout=120)
    assert (run.returncode, complaint) == (130, "")
    folders = list(tmp_path.iterdir())
    assert all(list_checkpoints(folder) for folder in folders)
    assert ("penstock resume" in said) == bool(folders)


def test_an_interrupt_while_the_folder_is_made_leaves_none(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path.mkdir

    def interrupted(path: Path, *arguments: object, **others: object) -> None:
        made(path, *arguments, **others)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt):
        penstock.train({**SMALL, "env": "CartPole-v1", "log_dir": str(tmp_path)}, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_right_behind_the_folder_leaves_none(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = Interrupts.__exit__

    def interrupted(interrupts: Interrupts, *error: object) -> None:
        left(interrupts, *error)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Interrupts, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        penstock.train({**SMALL, "env": "CartPole-v1", "log_dir": str(tmp_path)}, quiet=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reached", ["claim", "write_config"])
def test_an_interrupt_before_anything_starts_leaves_no_folder(tmp_path, monkeypatch, reached: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, reached, interrupted)
    with pytest.raises(KeyboardInterrupt):
        penstock.train({**SMALL, "env": "CartPole-v1", "log_dir": str(tmp_path)}, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_ends_the_run_at_once(tmp_path) -> None:
    run = endless(tmp_path)
    wait_for_update(run, 2)
    workers = descendants(run)
    for worker in workers:
        worker.suspend()  # no worker can finish in order
    interrupt_twice(run)
    assert run.wait(60) == 130
    assert not any(worker.is_running() for worker in workers)
    said, _ = run.communicate()
    (folder,) = tmp_path.iterdir()
    # It has learned something, and no checkpoint holds it.
    assert not list_checkpoints(folder)
    assert f"steps, before the first checkpoint; its policy is in {folder}\n" in said
    assert "penstock resume" not in said


def test_an_interrupt_is_told_of_and_a_second_one_says_how_to_go_on(tmp_path) -> None:
    run = endless(tmp_path, save_interval=2)
    wait_for_update(run, 5)
    run.send_signal(signal.SIGINT)
    while not list(tmp_path.glob("*/policy.onnx")):
        assert run.poll() is None
    # What comes after the last update is interrupted, too.
    run.send_signal(signal.SIGINT)
    said, complaint = run.communicate(timeout=120)
    assert (run.returncode, complaint) == (130, "")
    (folder,) = tmp_path.iterdir()
    assert said.endswith(f"continue with: penstock resume {folder}\n")


def test_a_second_interrupt_says_how_many_updates_no_checkpoint_holds(tmp_path) -> None:
    run = endless(tmp_path, save_interval=4)
    wait_for_update(run, 6)
    for worker in descendants(run):
        worker.suspend()
    interrupt_twice(run)
    said, _ = run.communicate(timeout=60)
    (folder,) = tmp_path.iterdir()
    saved = int(list_checkpoints(folder)[-1].name.rpartition("-")[2])
    assert f"penstock resume {folder}\n" in said
    lost = re.search(r"the last checkpoint has (\d+) updates; what the run learned after them, up to \d+, is", said)
    # It may have been interrupted right behind a checkpoint.
    assert lost is None or int(lost[1]) == saved


@pytest.mark.parametrize("command", ["train", "resume"])
def test_an_interrupt_without_a_word_gets_the_command_that_continues_the_run(tmp_path, monkeypatch, command) -> None:
    settings = {**SMALL, "env": "CartPole-v1", "timesteps": 512, "runtime": "inline", "log_dir": str(tmp_path)}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    if command == "resume":
        folder = penstock.train(settings, quiet=True).run_folder
        monkeypatch.setattr("penstock.run.resuming.prepare", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"^interrupted; continue with: penstock resume {folder}$"):
            penstock.resume(folder, quiet=True)
        return
    monkeypatch.setattr("penstock.run.result.export", interrupted)
    with pytest.raises(KeyboardInterrupt, match=f"^interrupted; continue with: penstock resume {tmp_path}/CartPole-v1"):
        penstock.train(settings, quiet=True)


def updates_of(folder: Path) -> list[dict]:
    """The lines of the log that tell of an update; the other one is the final evaluation."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "policy/lag" in line]


def test_resume_continues_counters_curves_and_schedules(tmp_path) -> None:
    settings = {**SMALL, "env": "CartPole-v1", "timesteps": 1024, "save_interval": 2, "log_dir": str(tmp_path)}
    first = penstock.train(settings, quiet=True)
    assert (first.steps, first.updates) == (1024, 4)
    second = penstock.resume(first.run_folder, timesteps=2048, quiet=True)
    assert second.run_folder == first.run_folder
    assert (second.steps, second.updates) == (2048, 8)
    arrays = load_checkpoint(find_checkpoint(second.run_folder)).arrays
    assert arrays["adam_step"] == 8 * 2 * 8  # updates x epochs x minibatches
    reports = updates_of(second.run_folder)
    assert [report["update"] for report in reports] == list(range(1, 9))
    assert [report["steps"] for report in reports] == list(range(256, 2049, 256))


def test_resume_from_an_earlier_checkpoint_abandons_what_came_after(tmp_path) -> None:
    settings = {**SMALL, "env": "CartPole-v1", "timesteps": 1024, "save_interval": 1, "log_dir": str(tmp_path)}
    first = penstock.train(settings, quiet=True)
    second = penstock.resume(first.run_folder, checkpoint="update-00000002", timesteps=768, quiet=True)
    assert (second.steps, second.updates) == (768, 3)
    assert [path.name for path in list_checkpoints(second.run_folder)] == [f"update-0000000{n}" for n in (1, 2, 3)]
    reports = updates_of(second.run_folder)
    assert [report["update"] for report in reports] == [1, 2, 3]


@pytest.mark.nightly  # Eight seconds. Shorter: a script with a class of its own, below.
def test_an_environment_without_a_name_trains_and_is_asked_for_again(tmp_path) -> None:
    class Local(IdentityEnv):
        pass

    result = penstock.train({**SMALL, "env": Local, "timesteps": 256, "log_dir": str(tmp_path)}, quiet=True)
    with pytest.raises(EnvError, match=r"pass it again: penstock\.resume\("):
        penstock.resume(result.run_folder, timesteps=512)
    with pytest.raises(EnvError, match=r"pass it again: penstock\.evaluate\("):
        penstock.evaluate(result.run_folder, episodes=1)
    assert penstock.resume(result.run_folder, timesteps=512, env=Local, quiet=True).steps == 512


def test_a_script_without_a_main_guard_and_with_its_own_class_trains(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import penstock
            from tests.environments import IdentityEnv

            class Mine(IdentityEnv):
                pass

            settings = {SMALL!r}
            agent = penstock.ParallelPPO(Mine, log_dir={str(tmp_path)!r}, **settings)
            result = agent.train(total_timesteps=256, log_interval=1)
            print("actions", agent.policy([1, 0, 0, 0]), agent.policy([[1, 0, 0, 0], [0, 1, 0, 0]]).shape)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.count("actions") == 1
    assert "(2,)" in done.stdout


def test_an_environment_that_fails_ends_the_run_with_its_own_traceback(tmp_path, started) -> None:
    with pytest.raises(NodeError, match="the bridge is out") as caught:
        penstock.train({**SMALL, "env": f"{__name__}:Failing", "log_dir": str(tmp_path)}, quiet=True)
    assert caught.value.node.startswith("env.")
    assert started() == []
    (folder,) = tmp_path.iterdir()
    lives = (folder / "deaths.log").read_text().split("restart ")[1:]
    assert lives
    assert all("the bridge is out" in life for life in lives)
    notes = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if "started again" in line]
    assert all("(restart " in line and "; its traceback stands in deaths.log" in line for line in notes)


class Failing(IdentityEnv):
    """Fails at its 40th step."""

    total = 0

    def step(self, action):
        self.total += 1
        if self.total == 40:
            raise RuntimeError("the bridge is out")
        return super().step(action)


def test_a_process_of_the_run_that_is_killed_is_named_and_started_again(tmp_path) -> None:
    run = endless(tmp_path)
    wait_for_update(run, 2)
    victim = of_group("env.1", run.pid)
    assert victim is not None
    victim.kill()
    assert run.stdout is not None
    told = next(line for line in run.stdout if "SIGKILL" in line)
    assert "was started again (restart 1)" in told
    wait_for_update(run, 20)
    run.send_signal(signal.SIGINT)
    assert run.wait(120) == 130


def test_collection_overlaps_learning(tmp_path) -> None:
    settings = {
        **SMALL,
        "env": "CartPole-v1",
        "sync_mode": "non_blocking",
        "timesteps": 16_384,
        "log_dir": str(tmp_path),
    }
    result = penstock.train(settings, quiet=True)
    assert result.steps >= 16_384
    reports = updates_of(result.run_folder)
    assert max(report["policy/lag"] for report in reports) > 0
    last = reports[-1]
    assert last["rows/collected"] >= last["rows/learned"] == result.steps
