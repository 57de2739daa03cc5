"""Gradient steps that the learners of a run cannot take are refused while its config is settled."""

import pytest

from penstock.errors import ConfigError
from penstock.planning import Prepared
from tests.planned import prepared

DQN = {"algo": "dqn", "env": "CartPole-v1"}
APART = {"learners": 2, "sync_mode": "non_blocking", "exchange": "parameter_server"}


def size(found: Prepared) -> int:
    return found.spec.schedule.mini_batch_size


def test_parts_of_a_minibatch_are_even() -> None:
    with pytest.raises(ConfigError, match="64 cannot be split evenly over 3 parts; give a multiple of 3"):
        prepared(mini_batch_size=64, accumulate=3)
    with pytest.raises(ConfigError, match="64 cannot be split evenly over 2 learners of 3 parts; give a multiple of 6"):
        prepared(**DQN, accumulate=3, learners=2, mini_batch_size=64)
    assert size(prepared(**DQN, accumulate=3, learners=2, mini_batch_size=66)) == 66


@pytest.mark.parametrize("settings", [{}, DQN])
def test_learners_that_step_together_take_equal_parts_of_a_minibatch(settings: dict[str, object]) -> None:
    three = {**settings, "learners": 3, "num_envs": 9}
    with pytest.raises(
        ConfigError, match=r"^--mini_batch_size 64 cannot be split evenly over 3 learners; give a multiple of 3$"
    ):
        prepared(**three, mini_batch_size=64)
    assert size(prepared(**three, mini_batch_size=66)) == 66
    # Learners that do not wait for each other have minibatches of their own.
    assert size(prepared(**{**three, **APART, "learners": 3}, mini_batch_size=64)) == 64


def test_a_learner_in_each_environment_process_takes_its_own_rollout_in_parts_of_any_size() -> None:
    own = {"algo": "a3c", "env": "CartPole-v1", "num_workers": 2}
    assert size(prepared(**own, mini_batch_size=64, accumulate=3)) == 64


def test_lanes_that_cannot_be_shared_are_told_before_their_minibatch() -> None:
    with pytest.raises(ConfigError, match=r"^--num_envs 8 cannot be split evenly over --learners 3"):
        prepared(learners=3, num_envs=8, mini_batch_size=64)


def test_more_steps_where_rows_are_slow_are_refused_where_nobody_waits_for_rows() -> None:
    with pytest.raises(ConfigError, match=r"^--reuse 2 needs --sync_mode non_blocking"):
        prepared(**DQN, reuse=2.0)
    assert prepared(**DQN, sync_mode="non_blocking", reuse=2.0).spec.replay()[0].reuse == 2.0


@pytest.mark.parametrize(("name", "value"), [("reset_every", 9), ("normalize_obs", True)])
def test_learners_that_hand_gradients_on_do_not_begin_anew_and_normalise_nothing(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"--{name} {value} needs .* with --learners 2 give --exchange allreduce$"):
        prepared(**DQN, **APART, **{name: value})
    together = prepared(**DQN, learners=2, exchange="allreduce", sync_mode="non_blocking", **{name: value})
    assert getattr(together.config.algorithm, name) == value
    # That is of tables alone.
    assert prepared(**APART, normalize_obs=True).spec.policy.normalize_obs


def test_a_sync_mode_that_the_algorithm_has_no_topology_for_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^--algo a3c does not run with --sync_mode blocking; give --sync_mode non_blocking$"
    ):
        prepared(algo="a3c", env="CartPole-v1", sync_mode="blocking")
