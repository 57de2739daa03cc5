"""ParallelPPO and DistributedPPO as users write them: their arguments become settings of a run."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.parallel_ppo import DistributedPPO, ParallelPPO


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[penstock.Config]:
    """The configs of the runs that are begun; none is run."""
    configs: list[penstock.Config] = []

    class Nothing:
        policy = None

    def train(settings):
        configs.append(penstock.from_mapping(settings))
        return Nothing()

    monkeypatch.setattr("penstock.parallel_ppo.train", train)
    return configs


NOT_ON_CLUSTER = "does not go with DistributedPPO, which trains on a Ray cluster; "
ONE_MACHINE = "or use ParallelPPO for one machine"
PUBLISHED = {
    "num_envs": 8,
    "num_steps": 2048,
    "epochs": 10,
    "mini_batch_size": 64,
    "lr": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_param": 0.2,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "max_grad_norm": 0.5,
    "seed": 0,
    "device": "cpu",
    "log_dir": "./logs",
}


def test_the_signature_of_parallel_ppo_shows_the_published_names_and_defaults() -> None:
    env_name, *others, rest = inspect.signature(ParallelPPO).parameters.values()
    assert (env_name.name, env_name.default) == ("env_name", inspect.Parameter.empty)
    assert [(one.name, one.default) for one in others] == list(PUBLISHED.items())
    assert {one.kind for one in others} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert rest.kind is inspect.Parameter.VAR_KEYWORD


def test_the_published_call_of_parallel_ppo(trained: list[penstock.Config]) -> None:
    ParallelPPO(env_name="Pendulum-v1", **PUBLISHED).train(total_timesteps=1_000, log_interval=5, save_interval=20)
    values = trained[0].values()
    assert {name: values[name] for name in PUBLISHED} == PUBLISHED
    run = trained[0].run
    assert (run.env, run.algo) == ("Pendulum-v1", "ppo")
    assert (run.timesteps, run.log_interval, run.save_interval) == (1_000, 5, 20)


def test_each_argument_of_parallel_ppo_is_the_setting_of_its_name(trained: list[penstock.Config]) -> None:
    others = {
        "num_envs": 4,
        "num_steps": 128,
        "epochs": 5,
        "mini_batch_size": 32,
        "lr": 1e-3,
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip_param": 0.1,
        "value_coef": 0.25,
        "entropy_coef": 0.0,
        "max_grad_norm": 1.0,
        "seed": 3,
        "device": "cuda:1",
        "log_dir": "elsewhere",
    }
    ParallelPPO("CartPole-v1", **others).train(1_000)
    ParallelPPO("CartPole-v1", *others.values()).train(1_000)
    assert trained[0] == trained[1]
    values = trained[0].values()
    assert {name: values[name] for name in PUBLISHED} == others


def test_what_is_left_out_of_parallel_ppo_follows_from_other_settings(trained: list[penstock.Config]) -> None:
    remembers = {"model": "lstm", "num_steps": 16}
    ParallelPPO("Pendulum-v1", num_workers=3).train(1_000)
    ParallelPPO("Pendulum-v1", **remembers).train(1_000)
    ParallelPPO("Pendulum-v1", **remembers, mini_batch_size=64).train(1_000)
    # The least multiple of 3 from 8 on; a quarter of 8 lanes of 16 steps.
    assert [config.run.num_envs for config in trained] == [9, 8, 8]
    assert [config.algorithm.mini_batch_size for config in trained] == [64, 32, 64]
    with pytest.raises(ConfigError, match="--num_workers 3 does not divide --num_envs 8"):
        ParallelPPO("Pendulum-v1", num_workers=3, num_envs=8)


def test_the_published_call_of_distributed_ppo(trained: list[penstock.Config]) -> None:
    DistributedPPO(
        env_name="Pendulum-v1",
        num_workers=4,
        steps_per_worker=512,
        epochs=10,
        mini_batch_size=64,
        lr=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_param=0.2,
        value_coef=0.5,
        entropy_coef=0.01,
        max_grad_norm=0.5,
        sync_mode="blocking",
        buffer_size=None,
        device="cpu",
    ).train(total_timesteps=1_000_000, log_interval=10, save_interval=50)
    run, ppo = trained[0].run, trained[0].algorithm
    assert (run.env, run.runtime, run.num_workers, run.num_envs) == ("Pendulum-v1", "ray", 4, 4)
    assert (run.timesteps, run.log_interval, run.save_interval, run.sync_mode) == (1_000_000, 10, 50, "blocking")
    assert (ppo.num_steps, ppo.epochs, ppo.mini_batch_size, ppo.lr) == (512, 10, 64, 3e-4)


# Ten seconds. Shorter: the calls above and below, without a run.
@pytest.mark.nightly
def test_the_published_call_trains_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    own = {"address": "local", "log_dir": str(tmp_path), "eval_episodes": 1}
    ppo = DistributedPPO("Pendulum-v1", num_workers=2, steps_per_worker=64, epochs=2, **own)
    result = ppo.train(total_timesteps=512, log_interval=1, save_interval=2)
    assert (result.steps, result.updates) == (512, 4)
    assert result.evaluation is not None
    (run,) = tmp_path.glob("Pendulum-v1-ppo-*")
    assert len((run / "metrics.jsonl").read_text().splitlines()) >= 4
    assert ppo.policy(np.zeros(3, np.float32)).shape == (1,)


def test_a_buffer_of_another_size_changes_the_steps_of_each_environment(trained: list[penstock.Config]) -> None:
    DistributedPPO("Pendulum-v1", num_workers=4, buffer_size=1024).train(10_000)
    with pytest.raises(TypeError, match=r"^DistributedPPO\.train\(\) missing 1 required positional argument"):
        DistributedPPO("Pendulum-v1").train()  # type: ignore[call-arg]
    # Both may be given, if they fit.
    DistributedPPO("Pendulum-v1", num_workers=2, steps_per_worker=512, buffer_size=1024).train(10_000)
    assert [config.algorithm.num_steps for config in trained] == [256, 512]
    with pytest.raises(ConfigError, match="buffer_size 1023 cannot be shared out evenly among 4 environments"):
        DistributedPPO("Pendulum-v1", num_workers=4, buffer_size=1023)


def test_collecting_may_overlap_and_a_cluster_be_named(trained: list[penstock.Config]) -> None:
    DistributedPPO("Pendulum-v1", sync_mode="non_blocking", address="auto", num_envs=8).train(10_000)
    run = trained[0].run
    assert (run.sync_mode, run.address, run.num_workers, run.num_envs) == ("non_blocking", "auto", 4, 8)


def test_the_environments_of_a_worker_share_its_steps(trained: list[penstock.Config]) -> None:
    DistributedPPO("Pendulum-v1", num_workers=4, num_envs=8, steps_per_worker=512).train(10_000)
    # So an update has num_workers * steps_per_worker rows, and the two arguments agree.
    DistributedPPO("Pendulum-v1", num_workers=4, num_envs=8, steps_per_worker=512, buffer_size=2048).train(10_000)
    DistributedPPO("Pendulum-v1", num_workers=4, num_envs=8, buffer_size=1024).train(10_000)
    assert [config.run.num_envs * config.algorithm.num_steps for config in trained] == [2048, 2048, 1024]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_steps": 3}, "num_steps follows from steps_per_worker or buffer_size; give DistributedPPO.* leave num"),
        ({"num_workers": 0}, "num_workers takes a whole number of at least 1, not 0$"),
        ({"num_workers": "4"}, "num_workers takes a whole number of at least 1, not '4'$"),
        ({"num_workers": 0, "num_envs": 4}, "num_workers takes a whole number of at least 1, not 0$"),
        ({"num_workers": 3, "num_envs": 8}, "--num_workers 3 does not divide --num_envs 8"),
        ({"num_envs": 0}, "num_envs takes a whole number of at least 1, not 0$"),
        ({"buffer_size": 0}, "buffer_size takes a whole number of at least 1, not 0$"),
        (
            {"buffer_size": 2048, "steps_per_worker": 100},
            "buffer_size 2048 does not go with steps_per_worker 100: 4 workers give 400 rows to an update; leave",
        ),
        ({"steps_per_workers": 100}, "unknown setting steps_per_workers; did you mean steps_per_worker, "),
        ({"bufer_size": 100}, "unknown setting bufer_size; did you mean buffer_size, "),
        (
            {"num_envs": 8, "steps_per_worker": 511},
            "steps_per_worker 511 cannot be shared out evenly among 2 environments; give a multiple of 2$",
        ),
        ({"distributed": False}, f"distributed False {NOT_ON_CLUSTER}leave distributed out, {ONE_MACHINE}$"),
        ({"runtime": "local"}, f"runtime local {NOT_ON_CLUSTER}leave runtime out, {ONE_MACHINE}$"),
        ({"steps_per_worker": 1.5}, "steps_per_worker takes a whole number of at least 1, not 1.5$"),
    ],
)
def test_what_does_not_fit_is_said_in_the_words_of_the_call(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        DistributedPPO("Pendulum-v1", **arguments)


def test_the_arguments_of_distributed_ppo_are_declared_with_their_defaults() -> None:
    _, *others, _ = inspect.signature(DistributedPPO).parameters.values()
    declared = {"num_workers": 4, "steps_per_worker": 512, "sync_mode": "blocking", "buffer_size": None}
    assert {one.name: one.default for one in others} == declared


def test_an_unknown_argument_of_parallel_ppo_names_those_like_it() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting num_evns; did you mean num_envs, num_workers, "):
        ParallelPPO("Pendulum-v1", num_evns=4)
    with pytest.raises(ConfigError, match=r"^unknown setting env_nam; did you mean env_name, "):
        ParallelPPO("Pendulum-v1", env_nam="CartPole-v1")


@pytest.mark.parametrize("ppo", [ParallelPPO, DistributedPPO])
def test_an_environment_by_another_name_is_told_its_name(ppo: type[ParallelPPO]) -> None:
    says = rf"^the environment is called env_name here, not env; write {ppo.__name__}\(env_name=\.\.\.\)$"
    with pytest.raises(ConfigError, match=says):
        ppo(env="Pendulum-v1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing a required argument: 'env_name'"):
        ppo(num_workers=2)  # type: ignore[call-arg]


def test_what_would_take_the_place_of_an_argument_is_refused(trained: list[penstock.Config]) -> None:
    with pytest.raises(ConfigError, match=r"^the environment is given as env_name; leave env out$"):
        ParallelPPO("Pendulum-v1", env="CartPole-v1")
    with pytest.raises(ConfigError, match=r"^algo sac is not PPO; leave algo out, or call penstock.train"):
        ParallelPPO("Pendulum-v1", algo="sac")
    ppo = ParallelPPO("Pendulum-v1", algo="ppo")
    for settings, says in (
        ({"env": "CartPole-v1"}, "given as env_name"),
        ({"algo": "sac"}, "not PPO"),
        ({"timesteps": 5}, "train takes timesteps as total_timesteps; leave timesteps out"),
    ):
        with pytest.raises(ConfigError, match=says):
            ppo.train(1000, **settings)
    assert trained == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps_per_worker": 32}, "steps_per_worker is an argument of the constructor, not of train; give it to Dist"),
        ({"buffer_size": 1024}, r"buffer_size is an .*; give it to DistributedPPO\(\.\.\.\)$"),
        ({"num_workers": 2}, "num_workers is an argument of the constructor"),
        ({"num_envs": 8}, "num_envs is an argument of the constructor"),
        ({"env_name": "CartPole-v1"}, "env_name is an argument of the constructor"),
        ({"num_steps": 32}, "num_steps follows from steps_per_worker or buffer_size; give DistributedPPO"),
        ({"distributed": False}, f"distributed False {NOT_ON_CLUSTER}leave distributed out, {ONE_MACHINE}$"),
        ({"runtime": "inline"}, f"runtime inline {NOT_ON_CLUSTER}leave runtime out, {ONE_MACHINE}$"),
        ({"timesteps": 32}, "train takes timesteps as total_timesteps"),
    ],
)
def test_train_refuses_what_only_the_constructor_takes(
    settings: dict[str, object], says: str, trained: list[penstock.Config]
) -> None:
    ppo = DistributedPPO("Pendulum-v1")
    with pytest.raises(ConfigError, match=f"^{says}"):
        ppo.train(total_timesteps=1000, **settings)
    assert trained == []
    ppo.train(total_timesteps=1000, distributed=True, runtime="ray", sync_mode="non_blocking")
    assert [config.run.sync_mode for config in trained] == ["non_blocking"]


def test_train_names_its_arguments_as_they_were_written(trained: list[penstock.Config]) -> None:
    for ppo in (ParallelPPO("Pendulum-v1"), DistributedPPO("Pendulum-v1")):
        with pytest.raises(ConfigError, match=r'^total_timesteps takes .*, not the text "1e6"$'):
            ppo.train(total_timesteps="1e6")
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'total_timesteps'"):
            ppo.train(log_interval=1)
    assert trained == []
