"""Behaviour cloning against arithmetic by hand, and against demonstrators whose return is known."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
import torch
from torch import Tensor

import penstock
from penstock.algorithms.bc import learn, spec
from penstock.algorithms.ppo.spec import PPOConfig
from penstock.algorithms.ppo.spec import policy_graph as ppo_graph
from penstock.errors import ConfigError
from penstock.metrics.jsonl import read_reports
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.episodes import KeptEpisode, write_episode
from penstock.torch_networks.policy import Policy
from penstock.types import Array, Box, Discrete, Spaces
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, constant, minibatch_of, slope, state_of
from tests.environments import CorridorEnv, IdentityEnv, TargetEnv

pytestmark = pytest.mark.usefixtures("shared_templates")


def config_of(**settings: object) -> spec.BCConfig:
    return replace(spec.BCConfig(hidden_sizes=(5, 4)), **settings)  # type: ignore[arg-type]


def rows_of(spaces: Spaces, config: spec.BCConfig, held_out: list[float]) -> dict[str, Tensor]:
    rows = minibatch_of(spaces, spec.spec(spaces, config), len(held_out))
    rows["held_out"] = torch.tensor(held_out, dtype=torch.float64)
    return rows


def test_a_cross_entropy_by_hand_and_what_is_held_out_of_it() -> None:
    config = config_of(mini_batch_size=4, held_out=0.25)
    policy, built = Policy(spec.policy_graph(DISCRETE, config)), learn.build(DISCRETE, config)
    state = state_of(spec.init_state(DISCRETE, config, 1))
    # Probabilities 1/8, 2/8 and 5/8.
    state["actor"] = constant(policy.graph.actor, math.log(1.0), math.log(2.0), math.log(5.0))
    rows = rows_of(DISCRETE, config, [0.0, 0.0, 0.0, 1.0])
    rows["action"] = torch.tensor([2, 1, 0, 2])
    found = built.phases[0].gradients(state, rows, {})
    assert float(found.metrics["imitation_loss"]) == pytest.approx((math.log(8 / 5) + math.log(4) + math.log(8)) / 3)
    assert float(found.metrics["held_out_loss"]) == pytest.approx(math.log(8 / 5))
    # The greedy action is 2.
    assert float(found.metrics["agreement"]) == pytest.approx(1 / 3)
    assert float(found.metrics["held_out_agreement"]) == pytest.approx(1.0)
    assert found.gradients.keys() == {"actor"}
    # Of each bias: the probability, less the share of the three rows that are learned from with this action.
    assert found.gradients["actor"][-3:].tolist() == pytest.approx([1 / 8 - 1 / 3, 2 / 8 - 1 / 3, 5 / 8 - 1 / 3])


def test_smoothed_labels_by_hand() -> None:
    config = config_of(mini_batch_size=2, held_out=0.0, label_smoothing=0.3)
    policy, state = Policy(spec.policy_graph(DISCRETE, config)), state_of(spec.init_state(DISCRETE, config, 1))
    state["actor"] = constant(policy.graph.actor, math.log(1.0), math.log(2.0), math.log(5.0))
    rows = minibatch_of(DISCRETE, spec.spec(DISCRETE, config), 2) | {"action": torch.tensor([2, 2])}
    found = learn.build(DISCRETE, config).phases[0].gradients(state, rows, {})
    p = [1 / 8, 2 / 8, 5 / 8]
    # The label is 0.1, 0.1 and 0.8.
    of_labels = -(0.1 * math.log(p[0]) + 0.1 * math.log(p[1]) + 0.8 * math.log(p[2]))
    assert float(learn.loss(policy, config, state, rows)[0]) == pytest.approx(of_labels)
    assert float(found.metrics["imitation_loss"]) == pytest.approx(-math.log(p[2]))
    assert float(found.metrics["entropy"]) == pytest.approx(-sum(one * math.log(one) for one in p))
    assert found.gradients["actor"][-3:].tolist() == pytest.approx([p[0] - 0.1, p[1] - 0.1, p[2] - 0.8])
    with pytest.raises(ConfigError, match="--label_smoothing is for Discrete actions, and these are a Box"):
        spec.spec(CONTINUOUS, config)


def test_the_density_of_a_gaussian_by_hand() -> None:
    config = config_of(mini_batch_size=2, held_out=0.0)
    policy, built = Policy(spec.policy_graph(CONTINUOUS, config)), learn.build(CONTINUOUS, config)
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    # Means 1/2 and -1/4, deviations 1 and 2.
    state["actor"] = constant(policy.graph.actor, 0.5, -0.25, 0.0, math.log(2.0))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    assert "held_out" not in rows
    rows["action"] = torch.tensor([[1.5, -0.25], [0.5, 1.75]], dtype=torch.float64)
    found = built.phases[0].gradients(state, rows, {})
    # Each row is one deviation off in one of two elements.
    assert float(found.metrics["imitation_loss"]) == pytest.approx(0.5 + math.log(2.0) + math.log(2.0 * math.pi))
    # Distances 1, 0 and 0, 2.
    assert float(found.metrics["action_error"]) == pytest.approx(0.75)
    assert "held_out_loss" not in found.metrics
    # Of a mean: (mu - a) / sigma^2, which is -1 in the first row and -2 / 4 in the second. Of the logarithm of a
    # deviation: 1 - ((a - mu) / sigma)^2, which is 0, 1 and 1, 0.
    assert found.gradients["actor"][-4:].tolist() == pytest.approx([-0.5, -0.25, 0.5, 0.5])


@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_the_gradient_is_that_of_the_loss(spaces: Spaces) -> None:
    config = config_of(mini_batch_size=8, held_out=0.25)
    policy, state = Policy(spec.policy_graph(spaces, config)), state_of(spec.init_state(spaces, config, 1))
    rows = rows_of(spaces, config, [0.0] * 6 + [1.0] * 2)
    found = learn.build(spaces, config).phases[0].gradients(state, rows, {})
    by_differences, by_gradient = slope(
        lambda changed: float(learn.loss(policy, config, changed, rows)[0]), state, "actor", found.gradients["actor"]
    )
    assert by_gradient == pytest.approx(by_differences, rel=1e-5)


def test_nothing_is_learned_from_what_is_held_out_and_parts_of_a_minibatch_give_the_whole() -> None:
    config = config_of(mini_batch_size=8, held_out=0.25)
    phase, state = learn.build(DISCRETE, config).phases[0], state_of(spec.init_state(DISCRETE, config, 1))
    rows = rows_of(DISCRETE, config, [0.0] * 6 + [1.0] * 2)
    whole = phase.gradients(state, rows, {})
    # The last part has all rows that are held out.
    parts = [phase.gradients(state, {name: values[at] for name, values in rows.items()}, {}) for at in _halves(8)]
    torch.testing.assert_close(
        (parts[0].gradients["actor"] + parts[1].gradients["actor"]) / 2.0, whole.gradients["actor"]
    )
    for name in ("imitation_loss", "held_out_loss", "agreement", "held_out_agreement"):
        mean = (float(parts[0].metrics[name]) + float(parts[1].metrics[name])) / 2.0
        assert mean == pytest.approx(float(whole.metrics[name]))
    others = {**rows, "obs": rows["obs"].clone()}
    others["obs"][6:] += 1.0
    changed = phase.gradients(state, others, {})
    torch.testing.assert_close(changed.gradients["actor"], whole.gradients["actor"], rtol=0.0, atol=0.0)
    assert float(changed.metrics["held_out_loss"]) != float(whole.metrics["held_out_loss"])


def _halves(size: int) -> tuple[slice, slice]:
    return slice(0, size // 2), slice(size // 2, size)


def test_only_the_actor_takes_a_step() -> None:
    config = config_of(mini_batch_size=4, max_grad_norm=1e-3)
    phase, state = learn.build(DISCRETE, config).phases[0], state_of(spec.init_state(DISCRETE, config, 1))
    found = phase.gradients(state, rows_of(DISCRETE, config, [0.0, 0.0, 0.0, 1.0]), {})
    changed = phase.apply(state, found.gradients)
    assert changed.keys() == {"actor", "adam_m.actor", "adam_v.actor", "adam_step"}
    norm = float(found.metrics["grad_norm"])
    torch.testing.assert_close(
        changed["adam_m.actor"], 0.1 * found.gradients["actor"] * (1e-3 / norm), rtol=1e-3, atol=0.0
    )


@pytest.mark.parametrize(("size", "share", "rows"), [(128, 0.1, 13), (4, 0.1, 1), (2, 0.5, 1), (10, 0.2, 2), (8, 0, 0)])
def test_a_minibatch_has_a_whole_number_of_held_out_rows(size: int, share: float, rows: int) -> None:
    assert config_of(mini_batch_size=size, held_out=share).judging == rows / size


@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_its_networks_are_those_of_ppo(spaces: Spaces) -> None:
    assert spec.policy_graph(spaces, spec.BCConfig()) == ppo_graph(spaces, PPOConfig())


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_memory_is_refused_with_the_reason(model: str) -> None:
    with pytest.raises(ConfigError, match=f"--model {model} has a memory, and bc learns from single rows; give"):
        spec.spec(DISCRETE, spec.BCConfig(model=model))


Observation = npt.NDArray[np.float32] | int
Expert = Callable[[Observation], npt.NDArray[np.float32] | int]
SMALL = {"algo": "bc", "num_envs": 4, "num_workers": 1, "runtime": "inline", "backend": "eager", "hidden_sizes": (32,)}


def recorded(folder: Path, env: gymnasium.Env, expert: Expert, episodes: int = 20) -> Path:
    """Episodes in which ``expert`` acts."""
    box = isinstance(env.observation_space, gymnasium.spaces.Box)
    for number in range(1, episodes + 1):
        seen, actions, rewards, terminated, truncated = [env.reset(seed=number)[0]], [], [], False, False
        while not (terminated or truncated):
            actions.append(expert(seen[-1]))
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            seen.append(obs)
            rewards.append(reward)
        obs = np.array(seen, np.float32 if box else np.int64)
        action: Array = np.array(actions, env.action_space.dtype)
        write_episode(
            folder,
            number,
            KeptEpisode("expert", {"obs": obs}, action, np.array(rewards, np.float32), terminated, vanished=False),
        )
    return folder


@pytest.mark.parametrize(
    ("env", "expert", "best", "metric", "at_best"),
    [
        (IdentityEnv, lambda seen: int(np.argmax(seen)), 10.0, "held_out_agreement", 1.0),
        (CorridorEnv, lambda seen: 1, -7.0, "held_out_agreement", 1.0),
        (TargetEnv, lambda seen: 2.0 * seen, 0.0, "held_out_action_error", 0.0),
    ],
)
def test_a_clone_reaches_the_return_of_its_demonstrator(
    tmp_path: Path, env: type[gymnasium.Env], expert: Expert, best: float, metric: str, at_best: float
) -> None:
    folder = recorded(tmp_path / "kept", env(), expert)
    told = {"env": f"tests.environments:{env.__name__}", "demonstrations": str(folder), "eval_episodes": 10}
    result = penstock.train(
        {**SMALL, **told, "timesteps": 800, "lr": 3e-3, "log_dir": str(tmp_path / "runs")}, quiet=True
    )
    assert result.evaluation is not None
    assert result.evaluation.mean_return == pytest.approx(best, abs=0.1)
    last = [report.values for report in read_reports(result.run_folder) if "loss/imitation" in report.values][-1]
    assert last[f"loss/{metric}"] == pytest.approx(at_best, abs=0.1)
    assert last["loss/imitation"] < 0.5
    # Environments are played greedily: they show the same return.
    assert last["rollout/return_mean"] == pytest.approx(best, abs=2.0)
    assert (result.run_folder / "policy.onnx").is_file()


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "kept", IdentityEnv(), lambda seen: int(np.argmax(seen)))
    told = {**SMALL, "env": "tests.environments:IdentityEnv", "demonstrations": str(folder), "eval_episodes": 0}

    def actor(run: Path) -> bytes:
        arrays = safetensors.numpy.load_file(find_checkpoint(run) / "state.safetensors")
        return bytes(arrays["actor"].tobytes())

    whole = penstock.train({**told, "timesteps": 320, "log_dir": str(tmp_path / "whole")}, quiet=True)
    half = penstock.train({**told, "timesteps": 160, "log_dir": str(tmp_path / "half")}, quiet=True)
    assert actor(half.run_folder) != actor(whole.run_folder)
    penstock.resume(half.run_folder, timesteps=320, quiet=True)
    assert actor(half.run_folder) == actor(whole.run_folder)


@pytest.mark.parametrize(
    "more",
    [
        {"accumulate": 2},
        # Six seconds. Shorter: the other one.
        pytest.param({"learners": 2, "runtime": "local", "num_workers": 2}, marks=pytest.mark.nightly),
    ],
)
def test_minibatches_in_parts_and_of_several_learners_and_sources(tmp_path: Path, more: dict[str, object]) -> None:
    folders = [
        str(recorded(tmp_path / name, IdentityEnv(), lambda seen: int(np.argmax(seen)), 10)) for name in ("a", "b")
    ]
    told = {"env": "tests.environments:IdentityEnv", "demonstrations": folders, "timesteps": 640, "eval_episodes": 5}
    result = penstock.train({**SMALL, **told, **more, "lr": 3e-3, "log_dir": str(tmp_path / "runs")}, quiet=True)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == pytest.approx(10.0, abs=0.1)


def test_what_cannot_be_cloned_is_said_before_anything_starts(tmp_path: Path) -> None:
    def refused(match: str, **more: object) -> None:
        told = {**SMALL, "env": "tests.environments:IdentityEnv", "log_dir": str(tmp_path / "runs"), **more}
        with pytest.raises(penstock.UsageError, match=match):
            penstock.train(told, quiet=True)

    few = recorded(tmp_path / "few", IdentityEnv(), lambda seen: 0, 4)
    refused("bc learns from demonstrations alone, and there are none; give --demonstrations")
    refused("of its 4 episodes --held_out 0.1 holds out none; record more of them, or", demonstrations=str(few))
    refused(
        "bc learns from demonstrations alone, and these shares of a minibatch are 0.5 together",
        demonstrations=str(few),
        demonstration_share=0.5,
    )
    refused(
        "bc needs Discrete actions or .*; the environment has MultiDiscrete", env="benchmarks.learning.tasks:BitsEnv"
    )
    of_dqn = {"algo": "dqn", "timesteps": 200, "min_rows": 50, "mini_batch_size": 8, "eval_episodes": 0}
    dqn = penstock.train(
        {**SMALL, "env": "tests.environments:IdentityEnv", **of_dqn, "log_dir": str(tmp_path / "dqn")}, quiet=True
    )
    refused("a replay table holds what a policy tried while it learned, and bc", demonstrations=str(dqn.run_folder))
    assert not list((tmp_path / "runs").glob("*"))


def test_its_runs_are_not_learned_on_from_what_they_served(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "kept", IdentityEnv(), lambda seen: int(np.argmax(seen)), 10)
    told = {"env": "tests.environments:IdentityEnv", "demonstrations": str(folder), "timesteps": 64, "eval_episodes": 0}
    run = penstock.train({**SMALL, **told, "log_dir": str(tmp_path / "runs")}, quiet=True).run_folder
    with pytest.raises(ConfigError, match="bc would imitate what it has done itself; at their defaults dqn"):
        penstock.retrain(run, experience=folder)


def test_actions_that_a_mask_forbids_have_no_part_in_the_likelihood() -> None:
    mask = ("action_mask", Box((3,), "uint8", (0.0,), (1.0,)))
    spaces = Spaces((mask, *DISCRETE.obs), Discrete(3), "action_mask")
    config = config_of(mini_batch_size=2, held_out=0.0)
    policy, state = Policy(spec.policy_graph(spaces, config)), state_of(spec.init_state(spaces, config, 1))
    state["actor"] = constant(policy.graph.actor, 0.0, 0.0, 5.0)
    rows = minibatch_of(spaces, spec.spec(spaces, config), 2)
    rows |= {"action": torch.tensor([0, 1]), "action_mask": torch.tensor([[1, 1, 0]] * 2, dtype=torch.uint8)}
    # Two actions are possible, and equally likely.
    found, metrics = learn.loss(policy, config, state, rows)
    assert float(found) == pytest.approx(math.log(2.0))
    assert float(metrics["agreement"]) == pytest.approx(0.5)
    smoothed = replace(config, label_smoothing=0.3)
    # Of the possible ones all are as likely, so it changes nothing.
    assert float(learn.loss(policy, smoothed, state, rows)[0]) == pytest.approx(math.log(2.0))
