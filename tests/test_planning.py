"""Settings that are decided, and errors that are found, before any process starts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.config.resolve import lacks_bfloat16
from penstock.errors import CheckpointError, ConfigError, DeviceError, EnvError
from penstock.planning import check_fits, check_sequences, plan
from penstock.registry import INFERENCE
from penstock.saved_runs.checkpoints import Checkpoint
from tests.planned import prepared


def test_nothing_is_auto_afterwards() -> None:
    run = prepared(num_envs=6).config.run
    assert isinstance(run.num_workers, int)
    assert 6 % run.num_workers == 0
    assert run.backend != "auto"
    assert isinstance(run.threads, int)
    assert run.inference == "native"


def test_a_policy_of_linear_layers_runs_natively() -> None:
    assert prepared().inference.build == INFERENCE["native"].build
    assert prepared(inference="onnx").inference.build == INFERENCE["onnx"].build
    assert prepared(inference="torch").inference.build == INFERENCE["torch"].build


def test_what_the_native_update_serves_trains_on_it() -> None:
    for algo in ("ppo", "a2c"):
        found = prepared(algo=algo)
        assert found.config.run.backend == "fused"
        assert found.functions() == found.algorithm.fused
    assert prepared(backend="eager").functions() == prepared().algorithm.learn


def test_what_it_does_not_serve_keeps_the_general_path() -> None:
    name = f"{__name__}:ImageEnv"
    found = prepared(env=name, timesteps=1000)
    assert found.config.run.backend == "eager"
    assert found.functions() == found.algorithm.learn
    assert prepared(precision="bfloat16", timesteps=1000).config.run.backend == "eager"
    with pytest.raises(ConfigError, match="--algo ppo with --precision bfloat16; try --backend auto"):
        prepared(precision="bfloat16", backend="fused")
    with pytest.raises(ConfigError, match=r"--backend fused does not run .*; try --backend auto"):
        prepared(env=name, backend="fused")


def test_an_environment_or_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(EnvError, match="did you mean Pendulum-v1"):
        prepared(env="Pendulum-v11")
    with pytest.raises(DeviceError, match="try --device cpu"):
        prepared(device="cuda:7")


def test_a_tilde_before_demonstrations_stands_for_the_home_of_the_user(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = prepared(algo="sac", env="Pendulum-v1", demonstrations="~/expert").config.run
    assert run.demonstrations == (str(tmp_path.resolve() / "expert"),)


def test_a_checkpoint_of_other_shapes_is_refused() -> None:
    small = prepared(hidden_sizes=(8,))
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in small.spec.state}
    checkpoint = Checkpoint(Path("update-00000001"), {}, arrays)
    check_fits(small, checkpoint)
    with pytest.raises(CheckpointError, match=r"its actor is float32 \[\d+\], they need float32 \[\d+\]"):
        check_fits(prepared(hidden_sizes=(16,)), checkpoint)
    with pytest.raises(CheckpointError, match="its actor is missing"):
        check_fits(small, checkpoint._replace(arrays={}))


def test_more_steps_than_a_lane_has_when_the_first_row_is_sampled_are_refused() -> None:
    many = {"algo": "dqn", "env": "CartPole-v1", "num_envs": 100, "num_steps": 8, "n_step": 20}
    with pytest.raises(
        ConfigError, match=r"--min_rows 1000 is too few: by then none of 100 lanes .* give at least 2000"
    ):
        prepared(**many)
    prepared(**many, min_rows=2000)
    with pytest.raises(
        ConfigError, match=r"20 steps of 100 lanes are 2,000 rows, and 800 more come at a time; .* 2,800"
    ):
        prepared(**many, min_rows=2000, capacity=2700)


def test_a_table_that_keeps_less_than_is_sampled_from_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--capacity 100 keeps too few rows: learning begins at 1,000 rows, .*at least 1,000$"
    ):
        prepared(algo="dqn", capacity=100, min_rows=1000)
    with pytest.raises(ConfigError, match=r"and rows come 512 at a time; there must be room for at least 1,024"):
        prepared(algo="dqn", capacity=1000, min_rows=10, num_envs=8, num_steps=64)


def test_a_table_of_too_few_bytes_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"--table_bytes 20000 keeps too few rows: learning begins at 1,000 rows, .*at least 1,000$",
    ):
        prepared(algo="dqn", table_bytes=20_000, min_rows=1000)
    with pytest.raises(ConfigError, match=r"--mini_batch_size 6000 is more than the .* rows that --table_bytes keeps"):
        prepared(algo="dqn", mini_batch_size=6000, table_bytes=300_000)
    with pytest.raises(ConfigError, match="--table_bytes is for algorithms that learn from a table"):
        prepared(table_bytes=10**9)


def test_a_table_that_cannot_lie_with_its_learners_is_refused(monkeypatch) -> None:
    there = {"runtime": "ray", "table_on": "learners", "learners": 2, "num_workers": 2}
    with pytest.raises(ConfigError, match="--table_on is for algorithms that learn from a table"):
        prepared(**there)
    there |= {"algo": "sac", "env": "Pendulum-v1"}
    with pytest.raises(ConfigError, match=r"--table_on learners does not go with --demonstrations: .* leave out one"):
        prepared(**there, demonstrations="expert")
    with pytest.raises(ConfigError, match=r"--table_on learners .* give --exchange allreduce"):
        prepared(**there, sync_mode="non_blocking", exchange="parameter_server")
    assert prepared(**there).config.run.exchange == "allreduce"
    monkeypatch.setattr("penstock.planning.prepared.sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(ConfigError, match="--table_on learners needs Linux on the launcher's machine"):
        prepared(**there)


def test_several_learners_need_processes_and_even_shares() -> None:
    for learners, lanes, nearest in ((2, 5, 6), (4, 9, 8), (4, 1, 4), (3, 8, 9)):
        says = rf"--num_envs {lanes} cannot be split evenly .*; give --num_envs {nearest}$"
        with pytest.raises(ConfigError, match=says):
            prepared(learners=learners, num_envs=lanes)
    assert prepared(learners=4, num_envs=8).config.run.num_workers == 4
    with pytest.raises(ConfigError, match="--learners 2 needs --runtime local"):
        prepared(algo="dqn", learners=2, runtime="inline")


def test_the_config_holds_the_rule_and_the_pace_of_several_learners() -> None:
    run = prepared(algo="dqn", learners=2, sync_mode="non_blocking").config.run
    assert (run.exchange, run.pace) == ("parameter_server", "async")
    assert (prepared(learners=2).config.run.exchange, prepared(learners=2).config.run.pace) == ("allreduce", "sync")
    assert prepared().config.run.exchange == "auto"


def test_an_algorithm_with_a_learner_in_each_process_takes_no_rule() -> None:
    for flag, value in (("compress", "int8"), ("exchange", "hogwild"), ("pace", "async")):
        with pytest.raises(ConfigError, match=rf"^--{flag} {value} is for --learners, and .*; leave it out$"):
            prepared(algo="a3c", env="CartPole-v1", **{flag: value})


@pytest.mark.parametrize(("name", "value"), [("layer_norm", True), ("critic_dropout", 0.01)])
def test_the_setting_that_the_native_update_cannot_run_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"--algo sac with --{name} {value}; try --backend auto"):
        prepared(algo="sac", env="Pendulum-v1", backend="fused", **{name: value})


@pytest.mark.parametrize("name", ["adam_eps", "rmsprop_eps"])
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_an_epsilon_of_zero_is_refused(algo: str, name: str) -> None:
    """A parameter whose gradient has always been 0 would become 0 / 0."""
    with pytest.raises(ConfigError, match=f"{name} takes a number of at least 1e-30, not 0$"):
        prepared(algo=algo, env="Pendulum-v1", **{name: 0.0})


def test_importance_weights_and_returns_that_cannot_be_are_refused() -> None:
    for algo in ("impala", "appo"):
        with pytest.raises(ConfigError, match=r"--c_bar 2 is above --rho_bar 0\.5: .*; give --c_bar 0\.5 or less"):
            prepared(algo=algo, rho_bar=0.5, c_bar=2.0)
    with pytest.raises(ConfigError, match="--n_step 100 is more than the --learned_steps 32"):
        prepared(algo="r2d2", env="CartPole-v1", n_step=100)
    # An older run may have these settings. It still plays, and goes on.
    found = prepared(algo="r2d2", env="CartPole-v1", num_steps=40)
    config, spec = found.config, found.spec
    with pytest.raises(ConfigError, match=r"--num_steps 40 is more than --learned_steps 32: .* never be learned from"):
        check_sequences(config, spec)


def test_the_first_line_says_what_is_trained_and_where() -> None:
    found = prepared(num_envs=1, timesteps=5000, seed=7)
    what = "ppo on tests.environments:ClockEnv: 1 lane in 1 process, 5,000 steps, seed 7; run folder run"
    assert plan(found, Path("run"), quiet=True).first_lines[0] == what
    several = prepared(learners=2, num_workers=2, timesteps=5000)
    what = "ppo on tests.environments:ClockEnv: 8 lanes in 2 processes; 2 learners, allreduce, sync; 5,000 steps, seed"
    assert plan(several, Path("run"), quiet=True).first_lines[0].startswith(what)
    node = prepared(num_workers=2, timesteps=5000, policy_placement="node", max_batch=64)
    what = "ppo on tests.environments:ClockEnv: 8 lanes in 2 processes; policy node, max_batch 64; 5,000 steps, seed"
    assert plan(node, Path("run"), quiet=True).first_lines[0].startswith(what)
    # One process has all nodes there.
    inline = prepared(num_envs=4, num_workers=2, timesteps=5000, runtime="inline")
    assert (
        plan(inline, Path("run"), quiet=True)
        .first_lines[0]
        .startswith("ppo on tests.environments:ClockEnv: 4 lanes, 5,000")
    )


def test_threads_that_a_learner_has_no_use_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.resolve.available_cores", lambda: 4)
    monkeypatch.setattr("penstock.planning.remarks.available_cores", lambda: 4)
    for backend, threads in (("eager", 4), ("fused", 2)):
        found = prepared(backend=backend, threads=99)
        said = f"--threads 99: each learner gets {threads}, because the {backend} update cannot use more on 4 cores"
        assert plan(found, Path("run"), quiet=True).first_lines[1:] == (said,)
    assert prepared(threads=2).remarks == prepared().remarks == ()


def test_fewer_timesteps_than_a_batch_are_told() -> None:
    batch = "16,384 steps, --num_envs 8 times --num_steps 2,048"
    said = f"--timesteps 10 is less than one batch ({batch}): the run plays one batch"
    assert prepared(timesteps=10).remarks == (said,)
    assert prepared(timesteps=16_384, num_steps=2047).remarks == ()
    assert prepared(timesteps=10, learners=2).remarks == (said,)
    # Learners that do not wait for each other learn from the rollouts of their own lanes.
    apart = {"learners": 2, "sync_mode": "non_blocking", "exchange": "parameter_server"}
    own = "8,192 steps, 8 lanes over 2 learners times --num_steps 2,048"
    own = said.replace("one batch (", "one batch of a learner (").replace(batch, own)
    assert prepared(timesteps=10, **apart).remarks == (own,)
    assert prepared(timesteps=8_192, **apart).remarks == ()
    # A table is learned from as its rows come; with A3C each process learns from its own rollout.
    assert prepared(algo="dqn", env="CartPole-v1", timesteps=10).remarks == ()
    assert prepared(algo="a3c", env="CartPole-v1", timesteps=10, num_workers=2).remarks == ()


def test_a_run_of_few_batches_is_told_of_smaller_ones() -> None:
    # 200,000 / 16,384 = 12.2
    said = "--timesteps 200,000 are 13 batches of 16,384 steps; with so few, smaller batches often learn more: try "
    assert prepared(timesteps=200_000).remarks == (f"{said}--num_steps 256 in a new run",)
    many = "--timesteps 200,000 are 2 batches of 131,072 steps"
    (line,) = prepared(timesteps=200_000, num_envs=64).remarks
    assert line.startswith(many)
    assert line.endswith("--num_steps 32 in a new run")
    for enough in ({"timesteps": 16 * 16_384}, {"timesteps": 200_000, "num_steps": 1024}):
        assert prepared(**enough).remarks == ()
    # Without lock step a newer policy takes over within a batch. The other algorithms have short batches.
    assert prepared(timesteps=200_000, sync_mode="non_blocking").remarks == ()
    assert prepared(timesteps=1000, algo="a2c").remarks == prepared(timesteps=1000, **DQN).remarks == ()


DQN = {"algo": "dqn", "env": "CartPole-v1"}
ATOMS = {"atoms": 51, "value_min": 0.0, "value_max": 200.0}
SAC = {"algo": "sac", "env": "Pendulum-v1", "temperature": 0.1}
TD3 = {"algo": "td3", "env": "Pendulum-v1"}
FREE = {"sync_mode": "non_blocking"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_policy_lag": 4}, "--max_policy_lag 4 changes nothing: in lock step no experience is old"),
        ({"renew_every": 8}, "--renew_every 8 changes nothing: in lock step no newer policy comes within a rollout"),
        (
            {**FREE, "num_steps": 32, "renew_every": 32},
            "--renew_every 32 changes nothing: a rollout has --num_steps 32, and begins with the latest policy",
        ),
        ({"pad_batches": (8, 64)}, "--pad_batches changes nothing with --device cpu: only batches of CUDA graphs are"),
        ({"env": "CartPole-v1", "log_std_init": -1.0}, "--log_std_init -1 changes nothing: the actions are choices"),
        ({"mini_batch_size": 20_000}, "--mini_batch_size 20,000 is more than a batch, which has 16,384 rows: an epoch"),
        ({**DQN, "priority_alpha": 0.9}, "--priority_alpha changes nothing without --prioritised True"),
        ({**DQN, "priority_beta": 0.9}, "--priority_beta changes nothing without --prioritised True"),
        ({**DQN, **ATOMS, "error_clip": 2.0}, "--error_clip 2 changes nothing: with atoms the loss is a cross-entropy"),
        ({**SAC, "temperature_lr": 1e-2}, "--temperature_lr changes nothing: --temperature 0.1 is not learned"),
        ({**SAC, "target_entropy": -2.0}, "--target_entropy changes nothing: --temperature 0.1 is not learned"),
        ({**DQN, "algo": "r2d2", "priority_eta": 0.5, "prioritised": False}, "--priority_eta changes nothing without"),
        ({**TD3, "smoothing": 0.0, "smoothing_clip": 0.2}, "--smoothing_clip 0.2 changes nothing without --smoothing"),
        ({**TD3, **FREE, "max_policy_lag": 4}, "--max_policy_lag 4 changes nothing: a table keeps rows of any age"),
    ],
)
def test_settings_that_change_nothing_are_told(settings: dict[str, object], text: str) -> None:
    (said,) = prepared(**settings).remarks
    assert said.startswith(text)


def test_the_default_range_of_returns_is_told() -> None:
    (said,) = prepared(**DQN, atoms=51).remarks
    assert said.startswith("--atoms 51 cover returns from 0 to 100: others count as the nearer end")
    assert prepared(**DQN, **ATOMS).remarks == ()


def test_bfloat16_is_told_of_where_the_processor_has_no_instructions_for_it(tmp_path: Path, monkeypatch) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr("penstock.config.resolve.CPU_INFO", info)
    assert not lacks_bfloat16()
    info.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n")
    (said,) = prepared(precision="bfloat16").remarks
    assert said.startswith(
        "--precision bfloat16: this processor has no instructions for bfloat16, so learning is slower"
    )
    assert said.endswith("; give --precision float32, or --device cuda")
    assert prepared().remarks == ()
    info.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n")
    assert prepared(precision="bfloat16").remarks == ()


def test_settings_that_change_something_are_not_told() -> None:
    assert prepared(**DQN, prioritised=True, priority_alpha=0.9, error_clip=2.0).remarks == ()
    assert prepared(algo="sac", env="Pendulum-v1", temperature_lr=1e-2, target_entropy=-2.0).remarks == ()
    assert prepared(max_policy_lag=4, renew_every=8, sync_mode="non_blocking").remarks == ()
    assert prepared(env="Pendulum-v1", log_std_init=-1.0, mini_batch_size=16_384).remarks == ()
    assert prepared(num_envs=1, num_steps=8, timesteps=8, mini_batch_size=64).remarks == ()


def test_images_are_not_for_the_native_kernel() -> None:
    name = f"{__name__}:ImageEnv"
    assert prepared(env=name).inference.build == INFERENCE["onnx"].build
    with pytest.raises(ConfigError, match="try --inference onnx"):
        prepared(env=name, inference="native")


def test_a_fresh_plan_starts_every_lane_at_its_first_episode() -> None:
    starts = plan(prepared(num_envs=3), Path("run"), quiet=True).starts
    assert [(start.episode, start.step, start.rollout) for start in starts] == [(0, 0, 0)] * 3


@pytest.mark.parametrize(
    ("env", "vector_env", "cores", "own"),
    [
        ("CartPole-v1", True, 2, True),
        ("CartPole-v1", True, 3, False),  # a core is free for a pool's own thread
        ("CartPole-v1", False, 2, False),  # no thread of its own
    ],
)
def test_batches_that_are_stepped_by_one_call_keep_to_a_core_where_there_is_none_to_spare(
    monkeypatch, env: str, vector_env: bool, cores: int, own: bool
) -> None:
    monkeypatch.setattr("penstock.planning.plans.available_cores", lambda: cores)
    run = prepared(env=env, vector_env=vector_env, num_envs=4, num_workers=2)
    assert plan(run, Path("run"), quiet=True).own_cores is own


class ImageEnv:
    """Looks at 64 x 64 pixels."""

    def __init__(self) -> None:
        import gymnasium
        import numpy as np

        self.observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

    def close(self): ...


def test_a_minibatch_of_more_rows_than_a_table_keeps_is_refused() -> None:
    with pytest.raises(ConfigError, match="--mini_batch_size 6000 is more than the 5,000 rows that --capacity keeps"):
        prepared(algo="dqn", mini_batch_size=6000, capacity=5000)
