"""Policies with memory: they learn what only memory can, and keep every promise that policies without memory keep."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.children import killing
from tests.end_to_end.test_resume_is_exact import fingerprint
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")

MASKED = "benchmarks.learning.tasks:RecalledRanksEnv"
COMPOSED = "benchmarks.learning.tasks:MaskedAimEnv"
"""Masked, with a choice and a box."""
BLINK = "tests.environments:BlinkEnv"
CUT = "tests.environments:BlinkForeverEnv"
SMALL = {
    "env": BLINK,
    "model": "lstm",
    "memory_size": 8,
    "hidden_sizes": (8,),
    "num_envs": 4,
    "num_steps": 30,  # no multiple of an episode's length, so that rollouts begin in the middle of episodes
    "mini_batch_size": 60,
    "epochs": 2,
    "eval_episodes": 4,
    "backend": "eager",
}
BATCH = 4 * 30


def train(log_dir: Path, updates: int = 4, **settings: object) -> Result:
    values = {**SMALL, "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


@pytest.fixture(
    scope="module",
    # Shorter: ``test_lagging.py`` has a memory in episodes that are truncated.
    params=[("lstm", BLINK), pytest.param(("gru", CUT), marks=pytest.mark.nightly), ("gru", MASKED)],
    ids=["lstm", "gru, truncated", "gru, masked"],
)
def task(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(zip(("model", "env"), request.param, strict=True))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, task: dict[str, str]) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("reference"), **task, runtime="inline", num_workers=1))


@pytest.mark.parametrize(
    ("runtime", "workers", "placement"),
    [("inline", 2, "env"), ("inline", 4, "env"), ("local", 2, "env"), ("inline", 2, "node"), ("local", 2, "node")],
)
def test_runtime_workers_and_placement_do_not_change_a_bit(
    tmp_path, reference, task, runtime: str, workers: int, placement: str
) -> None:
    result = train(tmp_path, **task, runtime=runtime, num_workers=workers, policy_placement=placement)
    assert fingerprint(result) == reference


@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_resumed_equals_uninterrupted(tmp_path, reference, task, runtime: str) -> None:
    first = train(tmp_path, 2, **task, runtime=runtime, num_workers=2)
    second = penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == reference


@pytest.mark.parametrize(
    ("placement", "env", "updates"),
    # Eight seconds of kills beside those of the memory in policy nodes.
    [pytest.param("env", COMPOSED, 18, marks=pytest.mark.nightly), ("node", BLINK, 36)],
    ids=["env, composed", "node"],
)
def test_no_kill_changes_the_answer(tmp_path, placement: str, env: str, updates: int) -> None:
    settings = {"env": env, "num_workers": 2, "policy_placement": placement, "save_interval": updates // 6}
    undisturbed = train(tmp_path / "whole", updates, **settings, runtime="inline")
    groups = ["env.0", "learner", "env.1", *(["policy.0"] if placement == "node" else [])]
    with killing(groups, tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", updates, **settings)
    assert len(killed) >= 2
    assert result.not_restored == 0
    assert fingerprint(result) == fingerprint(undisturbed)


def test_the_carry_goes_on_over_rollouts_and_begins_anew_with_an_episode(tmp_path) -> None:
    """The record's carry is what a session has behind the same observations."""
    result = train(tmp_path, 1, lr=0.0, num_workers=1, runtime="inline")
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    # 30 steps of episodes of 4: the lanes are 2 steps into an episode, behind observations of step 0 and step 1.
    carry = {name.removeprefix("lane_"): values for name, values in arrays.items() if name.startswith("lane_carry.")}
    assert {values.shape for values in carry.values()} == {(4, 8)}
    policy, signs = result.policy, []
    for lane in range(4):
        for sign in (-1.0, 1.0):
            session = policy.session(1)
            session.act(np.array([[sign, 0.0]], np.float32), first=True)
            session.act(np.array([[0.0, 0.25]], np.float32))
            if all(np.allclose(session.carry[name][0], values[lane], atol=1e-6) for name, values in carry.items()):
                signs.append(sign)
    assert len(signs) == 4


# Twenty seconds each. Shorter: APPO with a memory learns it in ``test_lagging.py``.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("algo", "model"),
    [
        ("ppo", "lstm"),
        ("ppo", "gru"),
        ("a2c", "lstm"),
    ],
)
def test_a_memory_learns_what_only_memory_can(tmp_path, algo: str, model: str) -> None:
    rates = {"ppo": {"epochs": 4, "lr": 3e-3}, "a2c": {"lr": 5e-3}}[algo]
    settings = {key: value for key, value in SMALL.items() if key != "epochs"}
    sizes = {"num_envs": 16, "num_steps": 32, "mini_batch_size": 256 if algo == "ppo" else 512, "timesteps": 40_000}
    values = {**settings, **sizes, **rates, "algo": algo, "model": model, "log_dir": str(tmp_path), "eval_episodes": 40}
    result = penstock.train(values, quiet=True)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == 1.0


@pytest.mark.nightly  # Twenty seconds of compiling. Shorter: ``tests/torch_networks/test_recurrent.py``.
def test_compiled_learning_follows_eager_learning(tmp_path) -> None:
    """With a mask, and two updates: the second one acts with what the first one learned."""
    kept = []
    for backend in ("eager", "compiled"):
        env = "benchmarks.learning.tasks:RecalledRanksEnv"
        done = train(tmp_path / backend, 2, env=env, backend=backend, epochs=1, runtime="inline")
        kept.append(load_checkpoint(find_checkpoint(done.run_folder)).arrays)
    for network in ("actor", "critic"):
        np.testing.assert_allclose(kept[0][network], kept[1][network], atol=2e-5)


def test_a_session_is_the_policy_of_the_evaluation_and_may_move(tmp_path) -> None:
    policy = train(tmp_path, runtime="inline").policy
    observations = np.random.default_rng(0).normal(size=(9, 3, 2)).astype(np.float32)
    first = np.random.default_rng(1).random((9, 3)) < 0.3
    whole, moved = policy.session(3), policy.session(3)
    for t, obs in enumerate(observations):
        if t == 5:
            left, moved = moved, policy.session(3)
            for name, values in left.carry.items():
                moved.carry[name][...] = values
        assert np.array_equal(whole.act(obs, first=first[t]), moved.act(obs, first=first[t]))
    assert all(np.array_equal(moved.carry[name], values) for name, values in whole.carry.items())


def test_a_session_refuses_what_it_cannot_mean(tmp_path) -> None:
    policy = train(tmp_path, runtime="inline").policy
    session, obs = policy.session(2), np.zeros((2, 2), np.float32)
    for first in ([True], [True, False, True], "yes", [0.5, 0.5]):
        with pytest.raises(penstock.BadDataError, match=r"first is .*one for each of 2 lanes"):
            session.act(obs, first=first)
    with pytest.raises(penstock.BadDataError, match="trained without action masks"):
        session.act(obs, action_mask=[[1, 0], [1, 0]])
    with pytest.raises(penstock.BadDataError, match="the carry has the arrays"):
        session.carry = {}
    with pytest.raises(penstock.BadDataError, match="the carry is None, this acting session needs the arrays"):
        session.carry = None
    with pytest.raises(penstock.BadDataError, match=r"the carry .* holds NaN or infinity"):
        session.carry = {name: np.full_like(values, np.nan) for name, values in session.carry.items()}
    with pytest.raises(penstock.UsageError, match="an acting session has 1 lane or more, not True"):
        policy.session(True)
    for lanes in (0, -1, 2.5):
        with pytest.raises(penstock.UsageError, match="1 lane or more"):
            policy.session(lanes)


def test_a_session_goes_on_with_the_carry_of_another(tmp_path) -> None:
    policy = train(tmp_path, runtime="inline").policy
    one, other, obs = policy.session(2), policy.session(2), np.ones((2, 2), np.float32)
    one.act(obs)
    other.carry = one.carry
    one.act(obs)
    assert not all(np.array_equal(other.carry[name], values) for name, values in one.carry.items())
    other.act(obs)
    assert all(np.array_equal(other.carry[name], values) for name, values in one.carry.items())


def test_a_minibatch_has_no_more_lanes_than_a_batch(tmp_path) -> None:
    found = prepared(**{**SMALL, "mini_batch_size": 100_000, "timesteps": BATCH})
    assert (found.spec.unit, found.spec.schedule.mini_batch_size) == ("lane", 4)
    # At the default size each lane is a minibatch of its own, so there are at least 4 in a batch of 8 lanes.
    assert prepared(env=BLINK, model="lstm").spec.schedule.mini_batch_size == 1


def test_lanes_that_cannot_be_split_are_named_as_lanes(tmp_path) -> None:
    with pytest.raises(penstock.ConfigError, match="a minibatch of 2 whole lanes cannot be split evenly over 3 parts"):
        train(tmp_path, accumulate=3)


def test_a_policy_with_memory_is_not_asked_outside_of_a_session(tmp_path) -> None:
    policy = train(tmp_path, runtime="inline").policy
    with pytest.raises(penstock.UsageError, match="session"):
        policy(np.zeros(2, np.float32))
