"""Nodes of whole runs die, or are stopped, at exact places. In lock step the result does not change."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import penstock
from penstock.metrics.report import EVAL_RETURN, STEPS_PER_SECOND
from penstock.program.graph import Program
from penstock.run import Result
from penstock.run.launching import launch
from penstock.run.program import program_of
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.supervision.outcome import Outcome
from penstock.topologies import training
from tests.chaos import oracle
from tests.chaos.test_kills import find, fingerprint, lines, train
from tests.lasting import LastingProcesses, lasting

pytestmark = pytest.mark.usefixtures("shared_templates")

SETTINGS = {"env": "tests.environments:TargetEnv", "num_steps": 16, "mini_batch_size": 32, "save_interval": 5}
UPDATES = 10
SETTINGS |= {"timesteps": UPDATES * 16 * 4, "eval_interval": 3}
KINDS = {"env.0": "FatedEnv", "learner": "FatedLearner", "monitor": "FatedMonitor", "evaluator": "FatedEvaluator"}
KINDS |= {"checkpointer": "FatedCheckpointer", "policy.0": "FatedPolicy"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("whole"), 0, **SETTINGS))


@pytest.fixture(scope="module")
def mortal_processes() -> Iterator[Callable[[], LastingProcesses]]:
    """Processes whose templates have imported the build with fault points."""
    with lasting() as current:
        yield current


@pytest.fixture
def doom(monkeypatch: pytest.MonkeyPatch, fault_points: str, mortal_processes: Callable[[], LastingProcesses]):
    """Lets a node of the next run die in its first life, at a place."""

    def choose(node: str, fate: str, number: signal.Signals = signal.SIGKILL) -> None:
        def with_fate(*arguments) -> Program:
            program: Program = program_of(*arguments)
            nodes = (
                replace(spec, kind=f"tests.chaos.fated:{KINDS[node]}") if spec.name == node else spec
                for spec in program.nodes
            )
            return replace(program, nodes=tuple(nodes))

        monkeypatch.setattr("penstock.run.training.program_of", with_fate)
        monkeypatch.setattr("penstock.run.launching.Processes", mortal_processes)
        monkeypatch.setenv("PYTHONPATH", fault_points)
        monkeypatch.setenv("FATE", fate)
        monkeypatch.setenv("PENSTOCK_FAULT_SIGNAL", str(number.value))

    return choose


def ends_right(result: Result, undisturbed: dict[str, str], node: str) -> None:
    told = [line["note"] for line in lines(result) if "note" in line]
    assert len(told) >= 1
    # A process that was stopped for good has hung; any other was killed.
    assert all("was ended by SIGKILL" in note or " hung (" in note for note in told)
    assert all("(restart 1)" in note for note in told)
    assert any(note.startswith(node) for note in told)
    # What an evaluation found may be entered an update later.
    apart = {"best_evaluation", "since_best"}
    found = fingerprint(result)
    assert {k: v for k, v in found.items() if k not in apart} == {
        k: v for k, v in undisturbed.items() if k not in apart
    }
    oracle.balanced(result)
    assert [line["update"] for line in lines(result) if STEPS_PER_SECOND in line] == list(range(1, UPDATES + 1))
    judged(result)
    for path in list_checkpoints(result.run_folder):
        load_checkpoint(path)


def judged(result: Result, dropped: int = 0) -> None:
    """Each evaluation is in the log once. The checkpoint has the best of the first n of them, for some n."""
    found = [(line["update"], line[EVAL_RETURN]) for line in lines(result) if EVAL_RETURN in line]
    assert len({update for update, _ in found[:-1]}) == len(found[:-1])
    verdicts = [(-np.inf, 0)]
    # The last line is the final evaluation.
    for _, score in found:
        best, since = verdicts[-1]
        verdicts.append((score, 0) if score > best else (best, since + 1))
    arrays = load_checkpoint(list_checkpoints(result.run_folder)[-1]).arrays
    best, since = float(arrays["best_evaluation"]), int(arrays["since_best"])
    # If a slow monitor has dropped lines, the best evaluation may be missing in the log, so it is not compared.
    assert dropped or (best, since) in verdicts


@pytest.mark.parametrize(
    "fate",
    [
        "slots.claim.before:4",
        "slots.claim.after:4",
        "action_log.append.begun:99",
        "action_log.append.stored:99",
        "action_log.append.whole:99",
        "action_log.append.after:99",
        "slots.push.before:4",
        "slots.push.after:4",
    ],
)
def test_an_environment_node_dies_inside_the_writing_of_a_rollout(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("env.0", fate)
    ends_right(train(tmp_path, 0, **SETTINGS), undisturbed, "env.0")


# Each of the node's two lanes writes one: the third is the second one of the first lane.
@pytest.mark.parametrize(
    "fate",
    [
        # Three seconds each. Shorter: one of the four points.
        *(
            pytest.param(f"table.{point}:3", marks=pytest.mark.nightly)
            for point in ("claim.before", "claim.after", "push.after")
        ),
        "table.push.before:3",
    ],
)
def test_an_environment_node_dies_inside_the_writing_of_a_snapshot(tmp_path, doom, monkeypatch, fate: str) -> None:
    monkeypatch.setattr(training, "ACTION_LOG_CAPACITY", 40)
    settings = {**SETTINGS, "env": "tests.environments:PlantEnv", "eval_interval": 0, "eval_episodes": 0}
    whole = fingerprint(train(tmp_path / "whole", 0, **settings, runtime="inline"))
    assert "snapshots" in whole
    doom("env.0", fate)
    result = train(tmp_path / "killed", 0, **settings)
    ends_right(result, whole, "env.0")
    assert result.not_restored == 0


@pytest.mark.parametrize(
    "fate",
    [
        "slots.take.before:7",
        "slots.take.after:7",
        "slots.take.after:8",
        "record.begin.before:5",
        "record.begin.after:5",
        "record.commit.before:5",
        "record.commit.after:5",
        "board.begin.after:5",
        "board.store.after:5",
        "board.finish.version:5",
        "board.finish.stamp:5",
        "board.finish.latest:5",
        "slots.release.before:9",
        "slots.release.after:9",
        "slots.release.after:10",
    ],
)
def test_a_learner_dies_around_its_commit(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("learner", fate)
    ends_right(train(tmp_path, 0, **SETTINGS), undisturbed, "learner")


@pytest.mark.parametrize(
    "fate", ["fsync:before:1", "fsync:after:2", "fsync:after:3", "fsync:before:4", "rename:after:1"]
)
def test_a_checkpointer_dies_in_the_middle_of_a_checkpoint(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("checkpointer", fate)
    result = train(tmp_path, 0, **SETTINGS)
    ends_right(result, undisturbed, "checkpointer")
    found = {path.name for path in list_checkpoints(result.run_folder)}
    assert found >= {"update-00000005", "update-00000010"}
    # Every third update is evaluated. The best of these stays.
    assert found - {"update-00000005", "update-00000010"} <= {f"update-{update:08d}" for update in (3, 6, 9)}
    assert not list(result.run_folder.rglob("*.partial"))


# Ten seconds each. Shorter: an evaluator that dies at the end, below.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "fate",
    [
        "board.begin.after:2",
        "board.finish.latest:2",
        "board.finish.stamp:2",
        "slots.claim.after:2",
        "slots.push.after:2",
        "slots.push.before:2",
        "slots.release.after:2",
        "slots.release.before:2",
        "slots.take.after:2",
    ],
)
def test_an_evaluator_that_dies_forgets_nothing_and_says_nothing_twice(tmp_path, doom, monkeypatch, fate: str) -> None:
    doom("evaluator", fate)
    # Long enough for it to have begun while the others still learn.
    longer = {"timesteps": 1500 * 16 * 4, "eval_interval": 100, "save_interval": 1250}
    outcomes: list[Outcome] = []

    def noted(*arguments) -> Outcome:
        outcomes.append(launch(*arguments))
        return outcomes[0]

    monkeypatch.setattr("penstock.run.training.launch", noted)
    result = train(tmp_path, 0, **{**SETTINGS, **longer})
    judged(result, outcomes[0].counters["evaluator"]["reports_dropped"])
    assert [line["note"].split()[0] for line in lines(result) if "note" in line] == ["evaluator"]


@pytest.mark.parametrize("fate", ["slots.claim.after:1", "slots.push.after:1", "slots.take.after:1"])
def test_an_evaluator_that_dies_while_the_run_ends_does_not_keep_it(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("evaluator", fate)
    result = train(tmp_path, 0, **{**SETTINGS, "eval_interval": UPDATES})
    assert fingerprint(result)["actor"] == undisturbed["actor"]


@pytest.mark.parametrize("fate", ["slots.take.after:3", "slots.release.before:3", "slots.release.after:3"])
def test_a_monitor_that_dies_writes_nothing_twice(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("monitor", fate)
    ends_right(train(tmp_path, 0, **SETTINGS), undisturbed, "monitor")


@pytest.mark.parametrize(
    "fate",
    [
        "slots.take.after:9",  # a question is taken; it waits, or is the last of its batch
        "slots.take.after:10",
        "doorbell.wait.before:12",
        "slots.release.before:9",  # in the middle of a batch: one asker has its answer, the other has not
        "slots.release.before:10",
        "slots.release.after:10",
    ],
)
def test_a_policy_node_dies_in_the_middle_of_a_batch(tmp_path, doom, undisturbed, fate: str) -> None:
    doom("policy.0", fate)
    waiting = {"policy_placement": "node", "max_batch": 4, "max_wait": 0.05}
    ends_right(train(tmp_path, 0, **SETTINGS, **waiting), undisturbed, "policy.0")


def test_one_of_two_policy_nodes_dies(tmp_path, doom, undisturbed) -> None:
    doom("policy.0", "slots.release.before:9")
    placed = {"policy_placement": "node", "policy_nodes": 2}
    ends_right(train(tmp_path, 0, **SETTINGS, **placed), undisturbed, "policy.0")


@pytest.mark.parametrize("fate", ["slots.take.after:10", "slots.release.before:9", "slots.release.after:10"])
def test_without_lock_step_a_policy_node_dies_in_the_middle_of_a_batch(tmp_path, doom, log, fate: str) -> None:
    """No transition is learned from twice, and none is missing that was not dropped for its age."""
    doom("policy.0", fate)
    numbered = {"algo": "impala", "env": "tests.chaos.oracle:Numbered", "backend": "fused", "seed": oracle.SEED}
    lanes = {"num_envs": oracle.LANES, "num_workers": 2, "log_dir": str(tmp_path)}
    waiting = {"policy_placement": "node", "max_batch": oracle.LANES, "max_wait": 0.05, "max_policy_lag": 3}
    result = penstock.train({**SETTINGS, **numbered, **lanes, **waiting}, quiet=True)
    oracle.judge(result, log)
    (told,) = [line["note"] for line in lines(result) if "note" in line]
    assert told.startswith("policy.0 was ended by SIGKILL")
    assert all(line["policy/lag_max"] <= 3 for line in lines(result) if "policy/lag_max" in line)


@pytest.mark.parametrize("wakes", [True, False])
def test_a_process_that_is_stopped_in_the_middle_of_a_row(tmp_path, doom, undisturbed, wakes: bool) -> None:
    """It wakes before its time-out and goes on; or it never wakes, and is ended before its slots are recovered."""
    doom("env.0", "action_log.append.stored:99", signal.SIGSTOP)

    def wake() -> None:
        process = find("env.0")
        assert process is not None
        while process.status() != "stopped":
            time.sleep(0.01)
        time.sleep(0.3)
        process.resume()

    waking = threading.Thread(target=wake if wakes else lambda: None)
    waking.start()
    result = train(tmp_path, 0, **SETTINGS, env_timeout=60.0 if wakes else 2.0)
    waking.join()
    if wakes:
        assert fingerprint(result)["actor"] == undisturbed["actor"]
        assert not [line for line in lines(result) if "note" in line]
    else:
        ends_right(result, undisturbed, "env.0")
