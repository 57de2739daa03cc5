"""A run on the fused update: without torch in any process, and exchangeable with the other backends' runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 32, "epochs": 2, "mini_batch_size": 32, "eval_episodes": 4, "num_workers": 2, "timesteps": 512}

REFUSES = """
import os, sys, traceback

with open(os.environ["TORCH_WAS_IMPORTED"], "a") as file:
    file.write("".join([*sys.argv, "\\n", *traceback.format_stack()]))
raise ImportError("torch is not for this run")
"""


def train(log_dir: Path, env: str = "CartPole-v1", **settings: object) -> Result:
    return penstock.train({**SMALL, "env": env, "log_dir": str(log_dir), **settings}, quiet=True)


def reports(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def switch(run: Path, before: str, after: str) -> None:
    """Let the run go on with another backend."""
    config = run / "config.toml"
    text = config.read_text()
    assert f'backend = "{before}"' in text
    config.write_text(text.replace(f'backend = "{before}"', f'backend = "{after}"'))


@pytest.mark.nightly  # Ten seconds. Shorter: two other algorithms, below.
def test_no_process_imports_torch(tmp_path) -> None:
    """A fake torch comes before the real one, in the launcher and all its children. It writes down who imports it."""
    package = tmp_path / "first" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REFUSES)
    asked = tmp_path / "asked"
    path = os.pathsep.join([str(package.parent), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_WAS_IMPORTED": str(asked)}
    flags = [f"--{name}={value}" for name, value in {**SMALL, "eval_interval": 2, "save_interval": 2}.items()]

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "penstock", *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)

    run("train", "--env=CartPole-v1", f"--log_dir={tmp_path / 'logs'}", *flags)
    (folder,) = (tmp_path / "logs").iterdir()
    run("resume", str(folder), "--timesteps=768")
    run("eval", str(folder), "--episodes=2")
    assert not asked.exists(), asked.read_text()
    saved = load_checkpoint(find_checkpoint(folder))
    assert saved.manifest["backend"] == "fused"
    assert saved.arrays["update"] == 3
    assert (folder / "policy.onnx").exists()
    # The fake torch works: the general path imports it.
    with pytest.raises(subprocess.CalledProcessError):
        run("train", "--env=CartPole-v1", f"--log_dir={tmp_path / 'logs'}", "--backend=eager", *flags)
    assert asked.exists()


REPLAY = {"num_envs": 2, "num_steps": 16, "min_rows": 100, "hidden_sizes": "16,16", "mini_batch_size": 16}
LAGGING = {
    "impala": ("CartPole-v1", {"num_envs": 4, "mini_batch_size": 32}),
    "appo": ("Pendulum-v1", {"num_envs": 4, "epochs": 2}),
}
FROM_TABLES = {
    "sac": ("Pendulum-v1", {}),
    "dsac": ("Pendulum-v1", {}),
    "dsact": ("Pendulum-v1", {}),
    "td3": ("Pendulum-v1", {}),
    "ddpg": ("Pendulum-v1", {}),
    "dqn": ("CartPole-v1", {"prioritised": "True"}),
    "apex": ("CartPole-v1", {"sync_mode": "non_blocking", "learners": 2}),
}


QUICK = {"sac", "impala"}
"""One that learns from a table, and one that learns from rollouts. The others, three seconds each, run at night."""


@pytest.mark.parametrize(
    "algo",
    [algo if algo in QUICK else pytest.param(algo, marks=pytest.mark.nightly) for algo in (*FROM_TABLES, *LAGGING)],
)
def test_no_process_of_another_algorithm_imports_torch(tmp_path, algo: str) -> None:
    name, settings = {**FROM_TABLES, **LAGGING}[algo]
    package = tmp_path / "first" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REFUSES)
    asked = tmp_path / "asked"
    path = os.pathsep.join([str(package.parent), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_WAS_IMPORTED": str(asked)}
    small = REPLAY if algo in FROM_TABLES else {"num_steps": 16, "hidden_sizes": "16,16"}
    values = {**small, "timesteps": 512, "eval_episodes": 1, "num_workers": 2, **settings}
    flags = [f"--{name}={value}" for name, value in values.items()]
    command = [sys.executable, "-m", "penstock", "train", f"--algo={algo}", f"--env={name}", f"--log_dir={tmp_path}"]
    subprocess.run([*command, *flags], env=environment, check=True, capture_output=True, timeout=120)
    assert not asked.exists(), asked.read_text()
    (folder,) = (path for path in tmp_path.iterdir() if (path / "config.toml").exists())
    saved = load_checkpoint(find_checkpoint(folder))
    assert saved.manifest["backend"] == "fused"
    assert saved.arrays["gradient_steps" if algo in FROM_TABLES else "adam_step"] > 0


@pytest.mark.parametrize(
    ("algo", "optimizer"), [("sac", "adam"), ("dsact", "adam"), ("td3", "rmsprop"), ("dqn", "muon")]
)
def test_checkpoints_of_tables_pass_from_eager_to_fused_and_back(tmp_path, algo: str, optimizer: str) -> None:
    name, settings = FROM_TABLES[algo]
    values = {**REPLAY, **settings, "hidden_sizes": (16, 16), "runtime": "inline", "log_dir": str(tmp_path)}
    values |= {"prioritised": True} if algo == "dqn" else {}
    rest = {"eval_episodes": 1, "updates_per_step": 0.5, "lr_schedule": "constant", "optimizer": optimizer}
    run = penstock.train({**values, **rest, "env": name, "algo": algo, "timesteps": 512}, quiet=True).run_folder
    switch(run, "fused", "eager")
    assert penstock.resume(run, timesteps=768, quiet=True).steps == 768
    switch(run, "eager", "fused")
    assert penstock.resume(run, timesteps=1024, quiet=True).steps == 1024
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    assert arrays["gradient_steps"] > 300
    learned = "actor" if algo == "dqn" else "critic"
    if optimizer == "rmsprop":
        assert arrays[f"rmsprop_v.{learned}"].any()
        assert "adam_step.critic" not in arrays
    else:
        assert arrays[f"adam_step.{learned}"] == arrays["gradient_steps"]
    assert [load_checkpoint(path).manifest["backend"] for path in list_checkpoints(run)] == ["fused", "eager", "fused"]


def test_what_was_chosen_stands_in_config_and_checkpoints(tmp_path) -> None:
    result = train(tmp_path, threads=2)
    config = (result.run_folder / "config.toml").read_text()
    assert 'backend = "fused"' in config
    assert "threads = 2" in config
    manifest = load_checkpoint(find_checkpoint(result.run_folder)).manifest
    assert (manifest["backend"], manifest["threads"]) == ("fused", 2)
    assert manifest["instruction_set"]


@pytest.mark.parametrize(
    "settings", [{}, {"normalize_obs": True, "normalize_value": True}], ids=["plain", "normalised"]
)
def test_checkpoints_pass_from_eager_to_fused_and_back(tmp_path, settings) -> None:
    run = train(tmp_path, backend="eager", runtime="inline", **settings).run_folder
    switch(run, "eager", "fused")
    assert penstock.resume(run, timesteps=1024, quiet=True).steps == 1024
    switch(run, "fused", "eager")
    assert penstock.resume(run, timesteps=1536, quiet=True).steps == 1536
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    assert arrays["adam_step"] == 6 * 2 * 8  # updates x epochs x minibatches
    if settings:
        assert arrays["obs_count"] == arrays["value_count"] == 1536
    backends = [load_checkpoint(path).manifest["backend"] for path in list_checkpoints(run)]
    assert backends == ["eager", "fused", "eager"]


@pytest.mark.parametrize("algo", LAGGING)
def test_checkpoints_of_older_policies_pass_from_eager_to_fused_and_back(tmp_path, algo: str) -> None:
    name, settings = LAGGING[algo]
    values = {**settings, "env": name, "algo": algo, "num_steps": 16, "lr_schedule": "constant", "runtime": "inline"}
    rest = {"normalize_obs": True, "normalize_value": True, "sync_mode": "blocking", "eval_episodes": 1}
    rest |= {"timesteps": 512, "backend": "eager", "log_dir": str(tmp_path)}
    run = penstock.train({**values, **rest}, quiet=True).run_folder
    switch(run, "eager", "fused")
    assert penstock.resume(run, timesteps=1024, quiet=True).steps == 1024
    switch(run, "fused", "eager")
    assert penstock.resume(run, timesteps=1536, quiet=True).steps == 1536
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    assert arrays["obs_count"] == arrays["value_count"] == 1536
    assert [load_checkpoint(path).manifest["backend"] for path in list_checkpoints(run)] == ["eager", "fused", "eager"]


def test_the_kl_stop_ends_a_batchs_epochs(tmp_path) -> None:
    settings = {"epochs": 20, "lr": 0.01, "runtime": "inline", "backend": "fused"}
    stopped = train(tmp_path, target_kl=0.01, **settings).run_folder
    whole = train(tmp_path, **settings).run_folder
    steps = [int(load_checkpoint(find_checkpoint(run)).arrays["adam_step"]) for run in (stopped, whole)]
    assert steps[1] == 2 * 20 * 8  # updates x epochs x minibatches
    assert 0 < steps[0] < steps[1]
    assert steps[0] % 8 == 0  # never within an epoch
    assert set(reports(stopped)[0]) >= {"loss/policy", "loss/value", "loss/approx_kl", "loss/grad_norm", "loss/lr"}


@pytest.mark.nightly  # Seven seconds. Shorter: ``tests/updates/test_agreement.py`` follows both along a run.
def test_the_learning_curve_is_that_of_the_general_path(tmp_path) -> None:
    """The bits of both paths differ after an update or so. Their learning curves must not."""
    settings = {"num_steps": 128, "epochs": 10, "mini_batch_size": 64, "lr": 1e-3, "entropy_coef": 0.0}
    best = {}
    for backend in ("fused", "eager"):
        run = train(tmp_path, backend=backend, **{**settings, "timesteps": 16_384, "eval_episodes": 20}).run_folder
        curve = [line["rollout/return_mean"] for line in reports(run) if "rollout/return_mean" in line]
        assert curve[0] < 40.0
        best[backend] = max(curve)
    assert min(best.values()) > 80.0, best
