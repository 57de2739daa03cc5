"""One seed and one backend give one answer: twice, on either runtime, with any number of workers. Bit for bit."""

import hashlib
from pathlib import Path

import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 32, "epochs": 2, "mini_batch_size": 32, "timesteps": 512, "eval_episodes": 4, "seed": 3}


def train(log_dir: Path, **settings: object) -> Result:
    return penstock.train(penstock.from_mapping({**SMALL, "log_dir": str(log_dir), **settings}), quiet=True)


def fingerprint(result: Result) -> dict[str, str]:
    """A hash of every learned array of the run's last checkpoint."""
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    # The slot of a rollout and the time of the run are no part of the answer.
    learned = {name: values for name, values in arrays.items() if not name.startswith(("consumed", "elapsed"))}
    return {name: hashlib.sha256(values.tobytes()).hexdigest() for name, values in learned.items()}


NORMALISED = {"normalize_obs": True, "normalize_value": True}
TASKS = [
    ("fused", "CartPole-v1", NORMALISED),
    ("eager", "Pendulum-v1", NORMALISED),
    ("eager", "benchmarks.learning.tasks:MaskedAimEnv", {}),
]


@pytest.fixture(scope="module", params=TASKS, ids=str)
def task(request: pytest.FixtureRequest) -> dict[str, object]:
    """A backend, an environment, and whether running statistics normalise.

    Discrete with episodes that end at any time, continuous with time limits, a masked choice with its numbers.
    """
    backend, env, normalised = request.param
    return {"backend": backend, "env": env, **normalised}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, task: dict[str, object]) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    return fingerprint(train(folder, **task, runtime="inline", num_workers=1))


@pytest.mark.parametrize(
    ("runtime", "workers"),
    [
        ("inline", 1),
        ("inline", 4),
        ("local", 2),
        # Shorter: two processes step environments as well.
        *(pytest.param("local", workers, marks=pytest.mark.nightly) for workers in (1, 4, 8)),
    ],
)
def test_runtime_and_workers_do_not_change_a_bit(tmp_path, reference, task, runtime: str, workers: int) -> None:
    result = train(tmp_path, **task, runtime=runtime, num_workers=workers)
    assert result.steps == 512
    assert fingerprint(result) == reference


def test_threads_of_the_fused_update_do_not_change_a_bit(tmp_path) -> None:
    runs = [
        train(tmp_path / str(threads), env="Pendulum-v1", backend="fused", runtime="inline", threads=threads)
        for threads in (1, 2)
    ]
    assert fingerprint(runs[0]) == fingerprint(runs[1])


def test_another_seed_gives_another_answer(tmp_path, reference, task) -> None:
    other = fingerprint(train(tmp_path, **task, runtime="inline", seed=4))
    assert other["actor"] != reference["actor"]


def test_evaluation_is_repeatable(tmp_path) -> None:
    result = train(tmp_path, env="CartPole-v1", runtime="inline")
    assert result.evaluation is not None
    again = penstock.evaluate(result.run_folder, episodes=4)
    assert again == result.evaluation
