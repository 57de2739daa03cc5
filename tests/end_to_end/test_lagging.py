"""IMPALA and APPO, which correct for older policies: they overlap by themselves and keep every promise in lock step."""

from pathlib import Path

import pytest

import penstock
from penstock.errors import ConfigError
from penstock.run import Result
from tests.children import killing
from tests.end_to_end.test_resume_is_exact import fingerprint
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")

BATCH = 4 * 15
SMALL = {
    "num_envs": 4,
    "num_steps": 15,
    "mini_batch_size": 30,
    "hidden_sizes": (8,),
    "eval_episodes": 2,
    "backend": "eager",
    "sync_mode": "blocking",
    # A learning rate that falls to 0 at the end of a run depends on where that end was.
    "lr_schedule": "constant",
}
CASES = {
    "impala": {"algo": "impala", "env": "CartPole-v1", "backend": "fused"},
    "impala, memory": {"algo": "impala", "env": "tests.environments:BlinkForeverEnv", "model": "lstm"},
    "impala, masks": {"algo": "impala", "env": "benchmarks.learning.tasks:MaskedAimEnv", "normalize_value": True},
    "appo": {"algo": "appo", "env": "Pendulum-v1", "epochs": 2, "backend": "fused"},
    "appo, memory": {"algo": "appo", "env": "tests.environments:BlinkEnv", "model": "gru", "epochs": 2},
}


def train(log_dir: Path, updates: int = 6, **settings: object) -> Result:
    values = {**SMALL, "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, object]:
    return CASES[request.param]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, case: dict[str, object]) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("reference"), **case, runtime="inline", num_workers=1))


@pytest.mark.parametrize(
    ("runtime", "workers"),
    # Shorter: two processes of workers do not change a bit.
    [("inline", 2), pytest.param("local", 1, marks=pytest.mark.nightly), ("local", 2)],
)
def test_in_lock_step_runtime_and_workers_do_not_change_a_bit(tmp_path, case, reference, runtime, workers) -> None:
    assert fingerprint(train(tmp_path, **case, runtime=runtime, num_workers=workers)) == reference


def test_in_lock_step_resumed_equals_uninterrupted(tmp_path, case, reference) -> None:
    first = train(tmp_path, 3, **case, runtime="inline", num_workers=2)
    second = penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == reference


# Six seconds with a memory. Shorter: no kill changes the answer of one in ``test_memory.py``.
@pytest.mark.parametrize("name", [pytest.param("impala, memory", marks=pytest.mark.nightly), "appo"])
def test_in_lock_step_no_kill_changes_the_answer(tmp_path, name: str) -> None:
    settings = {**CASES[name], "num_workers": 2, "save_interval": 5}
    undisturbed = train(tmp_path / "whole", 40, **settings, runtime="inline")
    with killing(["env.0", "learner", "env.1"], tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", 40, **settings)
    assert len(killed) >= 2
    assert fingerprint(result) == fingerprint(undisturbed)


@pytest.mark.parametrize("algo", ["impala", "appo"])
def test_an_overlapping_run_is_resumed(tmp_path, algo: str) -> None:
    settings = {"algo": algo, "env": "CartPole-v1", "sync_mode": "auto", "num_workers": 2, "backend": "fused"}
    first = train(tmp_path, 10, **settings)
    assert 'sync_mode = "non_blocking"' in (first.run_folder / "config.toml").read_text()
    assert penstock.resume(first.run_folder, timesteps=20 * BATCH, quiet=True).steps >= 20 * BATCH


@pytest.mark.parametrize("algo", ["impala", "appo"])
def test_mlps_are_learned_by_the_native_update(algo: str) -> None:
    env = {"env": "CartPole-v1", "algo": algo}
    for settings in ({}, {"learners": 2, "num_envs": 4}):
        assert prepared(**env, **settings).config.run.backend == "fused"
    for settings in ({"model": "lstm"}, {"env": CASES["impala, masks"]["env"]}):
        assert prepared(**{**env, **settings}).config.run.backend != "fused"
    with pytest.raises(ConfigError, match=f"--backend fused does not run --algo {algo} with --model gru"):
        prepared(**env, model="gru", backend="fused")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algo": "appo", "target_every": 20}, "--algo appo with --target_every 20"),
        ({"algo": "appo", "kl_coef": 0.5}, r"--algo appo with --kl_coef 0\.5"),
        ({"algo": "ppo", "kl_coef": 0.5}, r"--algo ppo with --kl_coef 0\.5"),
        ({"algo": "ppo", "kl_coef": 0.5, "kl_target": 0.01}, "--algo ppo with these settings"),
    ],
)
def test_a_target_network_and_a_penalty_are_not_learned_by_the_native_update(settings, says: str) -> None:
    few = {"env": "CartPole-v1", "timesteps": 1000, **settings}
    assert prepared(**few).config.run.backend == "eager"
    with pytest.raises(ConfigError, match=f"--backend fused does not run {says}; try --backend auto"):
        prepared(**few, backend="fused")


@pytest.mark.parametrize(
    ("algo", "mode"), [("impala", "non_blocking"), ("appo", "non_blocking"), ("ppo", "blocking"), ("sac", "blocking")]
)
def test_auto_is_what_suits_the_algorithm(algo: str, mode: str) -> None:
    env = {"env": "Pendulum-v1", "algo": algo}
    assert prepared(**env).config.run.sync_mode == mode
    for other in ("blocking", "non_blocking"):
        assert prepared(**env, sync_mode=other).config.run.sync_mode == other


def test_what_needs_overlapping_is_refused_where_auto_is_lock_step() -> None:
    env = {"env": "Pendulum-v1", "bad_numbers": "skip"}
    assert prepared(**env, algo="impala").config.run.bad_numbers == "skip"
    with pytest.raises(ConfigError, match="--bad_numbers skip needs --sync_mode non_blocking"):
        prepared(**env, algo="ppo")


@pytest.mark.nightly  # Eight seconds each. Shorter: ``test_learning.py`` learns from the same pictures.
@pytest.mark.parametrize("algo", ["impala", "appo"])
def test_pictures_and_several_actions_are_learned_from(tmp_path, algo: str) -> None:
    """An image network, and a minibatch in two parts."""
    values = {"env": "tests.end_to_end.test_learning:PictureEnv", "algo": algo, "num_steps": 16, "timesteps": 6_000}
    rest = {"lr": 1e-3, "gamma": 0.0, "mini_batch_size": 64, "accumulate": 2, "log_dir": str(tmp_path)}
    rest |= {"impala": {}, "appo": {"epochs": 4, "adam_eps": 1e-3}}[algo]
    result = penstock.train({**values, **rest, "runtime": "inline", "backend": "eager", "eval_episodes": 5}, quiet=True)
    assert result.evaluation is not None
    assert result.evaluation.mean_return > 7.5  # 2.5 without looking


@pytest.mark.nightly  # Eight seconds each. Shorter: PPO remembers in ``test_memory.py``.
@pytest.mark.parametrize("algo", ["impala", "appo"])
def test_a_memory_learns_what_only_memory_can(tmp_path, algo: str) -> None:
    values = {"env": "tests.environments:BlinkEnv", "model": "lstm", "memory_size": 8, "hidden_sizes": (8,)}
    rates = {"impala": {"lr": 5e-3}, "appo": {"lr": 3e-3, "num_steps": 32, "mini_batch_size": 256, "epochs": 4}}[algo]
    rest = {"algo": algo, "num_envs": 16, "timesteps": 40_000, "log_dir": str(tmp_path), "backend": "eager"}
    result = penstock.train({**values, **rest, **rates, "eval_episodes": 40}, quiet=True)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == 1.0
