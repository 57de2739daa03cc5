"""Experience from parallel environments without a learner."""

import signal
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock import ParallelEnvironmentCollector
from penstock.errors import ConfigError, NodeError, PenstockError, ResourceError
from penstock.processes.starts import Processes
from penstock.supervision.contract import Silence
from penstock.types import Cause
from tests.environments import ClockEnv


def test_it_collects_as_many_steps_as_asked_for(started) -> None:
    with ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=4, rollout_steps=8) as it:
        first, second = it.collect(20), it.collect(5)
    assert first["obs"].shape == (20, 4, 1)
    assert second["obs"].shape == (5, 4, 1)
    # The clock goes on from one call to the next: it is cut at step 20, where the next episode begins.
    clock = np.concatenate([first["obs"], second["obs"]])[:, 0, 0] * 20
    np.testing.assert_allclose(clock, [*range(20), *range(5)])
    assert first["truncated"][19].all()
    np.testing.assert_allclose(first["next_obs"][:, 0, 0] * 20, range(1, 21))
    assert (first["reward"] == 1).all()
    assert started() == []


def test_an_interrupt_while_it_collects_loses_no_step(monkeypatch) -> None:
    """As when a cell of a notebook is interrupted: one of two rollouts was taken."""
    with ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=2, rollout_steps=8) as it:
        take = it._rollouts.take

        def interrupted() -> int | None:
            if it._under_way:
                monkeypatch.undo()
                raise KeyboardInterrupt
            return take()

        monkeypatch.setattr(it._rollouts, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            it.collect(8)
        both = [it.collect(8), it.collect(8)]
    np.testing.assert_allclose(np.concatenate([part["obs"][:, 0, 0] for part in both]) * 20, range(16))
    assert [part["policy_version"].max() for part in both] == [0, 1]


def test_a_process_that_does_not_start_in_time_is_told_with_these_words(monkeypatch) -> None:
    silence = Silence("env.1", "env.1", 121.0, Cause.SLOW_START)
    with ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=2, rollout_steps=8) as it:
        monkeypatch.setattr(it._signs, "silent", lambda running: silence)
        with pytest.raises(NodeError, match=r"env\.1 did not start within 121 s"):
            it.collect(8)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("call", ["take", "release"])
def test_an_interrupt_between_two_calls_loses_no_step(monkeypatch, call) -> None:
    """It comes right behind a call that has changed the stream: a slot was taken, or given back."""
    with ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=2, rollout_steps=8) as it:
        real = getattr(it._rollouts, call)

        def interrupted(*given: int) -> int | None:
            found = real(*given)
            if call == "release" or found is not None:
                monkeypatch.undo()
                signal.raise_signal(signal.SIGINT)
            return found

        monkeypatch.setattr(it._rollouts, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            it.collect(8)
        both = [it.collect(8), it.collect(8)]
    np.testing.assert_allclose(np.concatenate([part["obs"][:, 0, 0] for part in both]) * 20, range(16))
    assert [part["policy_version"].max() for part in both] == [0, 1]


@pytest.mark.usefixtures("interruptible")
def test_a_signal_that_is_held_back_reaches_the_programs_own_handler(monkeypatch) -> None:
    """As of a program that saves its work when it is told to end, and goes on until then."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        with ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=2) as it:
            release = it._rollouts.release

            def told_to_end(index: int) -> None:
                release(index)
                monkeypatch.undo()
                signal.raise_signal(signal.SIGTERM)

            monkeypatch.setattr(it._rollouts, "release", told_to_end)
            it.collect(8)
        assert told == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_start_that_fails_leaves_nothing(monkeypatch, started) -> None:
    collector = ParallelEnvironmentCollector("tests.environments:ClockEnv", num_workers=2, num_envs=2)
    start, begun = Processes.start, []

    def refused(self: Processes, *arguments: object) -> None:
        if begun:
            raise ResourceError("no more processes")
        begun.append(arguments)
        start(self, *arguments)

    monkeypatch.setattr(Processes, "start", refused)
    with pytest.raises(ResourceError), collector:
        pass
    assert started() == []
    assert collector._processes is None


def test_what_is_published_acts() -> None:
    with ParallelEnvironmentCollector(ClockEnv, num_workers=1, num_envs=4, rollout_steps=16, hidden_sizes=(8,)) as it:
        spec = it.collect(1)
        assert spec["policy_version"].max() == 0
        before = it.collect(15)
        sure = {"actor": np.zeros(8 * 1 + 8 + 8 * 2 + 2, np.float32), "critic": np.zeros(8 + 8 + 8 + 1, np.float32)}
        sure["actor"][-1] = 50.0  # the bias of action 1
        it.publish(sure)
        after = it.collect(16)
    assert 0 < before["action"].mean() < 1
    assert (after["action"] == 1).all()
    np.testing.assert_allclose(after["log_prob"], 0.0, atol=1e-6)


def test_published_shows_what_publish_takes_and_what_acts() -> None:
    collector = ParallelEnvironmentCollector(ClockEnv, num_workers=1, rollout_steps=4, hidden_sizes=(8,))
    initial = collector.published
    # 1 observation, 8 hidden, 2 actions or 1 value: weights and biases of two layers.
    shapes = {"actor": (1 * 8 + 8 + 8 * 2 + 2,), "critic": (1 * 8 + 8 + 8 * 1 + 1,)}
    assert {name: values.shape for name, values in initial.items()} == shapes
    with collector:
        given = {name: np.zeros(shape) for name, shape in shapes.items()}
        collector.publish(given)
        given["critic"][-1] = 7.0  # a copy was published
        assert not collector.published["critic"].any()
        assert (collector.collect(1)["value"] == 0).all()
    with collector:
        np.testing.assert_array_equal(collector.published["actor"], initial["actor"])


class Lazy:
    """As a tensor of torch that has a gradient."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("use detach first")


def test_what_cannot_act_is_not_published() -> None:
    collector = ParallelEnvironmentCollector(ClockEnv, num_workers=1, rollout_steps=4, hidden_sizes=(8,))
    good = collector.published
    with pytest.raises(PenstockError, match="call start first"):
        collector.publish(good)
    with collector:
        for bad, says in (
            ([good], "publish takes a mapping of names to arrays, not "),
            ({"actor": good["actor"]}, "publish takes actor, critic, and was given actor$"),
            ({}, "publish takes actor, critic, and was given nothing$"),
            ({**good, "crtic": good["critic"]}, "publish takes actor, critic, and was given actor, critic, crtic$"),
            ({**good, "actor": np.zeros(33)}, r"actor has shape \(33,\); give an array of shape \(34,\)$"),
            ({**good, "actor": np.full(34, np.nan)}, "actor holds infinity or NaN"),
            ({**good, "critic": np.full(25, 1e300)}, "critic holds infinity or NaN"),
            ({**good, "actor": [[1.0], [1.0, 2.0]]}, "actor is no array of numbers: "),
            ({**good, "actor": Lazy()}, "actor is no array of numbers: use detach first"),
        ):
            with pytest.raises(ConfigError, match=says):
                collector.publish(bad)
        np.testing.assert_array_equal(collector.published["actor"], good["actor"])


def test_without_a_start_there_is_nothing_to_collect() -> None:
    with pytest.raises(PenstockError, match="call start first"):
        ParallelEnvironmentCollector(ClockEnv, num_workers=1).collect(1)


def test_after_a_stop_there_is_nothing_to_collect() -> None:
    with ParallelEnvironmentCollector(ClockEnv, num_workers=1, rollout_steps=32) as collector:
        collector.collect(10)  # 22 steps of the rollout are left
    with pytest.raises(PenstockError, match="the collector is not running; call start first"):
        collector.collect(5)


def test_a_start_after_a_stop_begins_afresh() -> None:
    collector = ParallelEnvironmentCollector(ClockEnv, num_workers=1, rollout_steps=8)
    with collector:
        first = collector.collect(3)
    with collector:
        again = collector.collect(3)
    for name, values in first.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"policy_placement": "node"}, "policy_placement=node: its environment processes run the policy themselves"),
        ({"trace": True}, "trace=True: it has no run folder"),
        ({"distributed": True}, "distributed=True: its environment processes are on this machine; leave distributed"),
        ({"runtime": "ray"}, "runtime=ray: its environment processes are on this machine; leave runtime out"),
        ({"learners": 2}, "learners=2: it hands all rows to one learner, the caller; leave learners out"),
        ({"sync_mode": "non_blocking"}, "sync_mode=non_blocking: collecting and learning always take turns"),
        ({"algo": "dqn"}, "cannot take algo dqn, which learns from a table; give one that learns from a stream"),
        ({"env": "CartPole-v1"}, "takes env as env_fn; leave env out"),
        ({"num_steps": 4}, "takes num_steps as rollout_steps; leave num_steps out"),
    ],
)
def test_a_setting_that_it_does_not_have_is_refused(setting, says) -> None:
    with pytest.raises(ConfigError, match=says):
        ParallelEnvironmentCollector(ClockEnv, num_workers=2, **setting)


def test_games_that_drive_themselves_are_refused() -> None:
    with pytest.raises(ConfigError, match="is a game that connects to a run"):
        ParallelEnvironmentCollector("gamecore://tests.games.agents:Blind", algo="appo")


def test_settings_that_say_what_a_collector_does_anyway_are_taken() -> None:
    ParallelEnvironmentCollector(ClockEnv, num_workers=1, algo="impala", sync_mode="blocking", learners=1)


@pytest.mark.parametrize(
    ("sizes", "workers", "lanes"),
    [
        ({}, 8, 8),
        ({"num_envs": 2}, 2, 2),
        # The divisors of 12 are 1, 2, 3, 4, 6 and 12.
        ({"num_envs": 12}, 6, 12),
        ({"num_envs": 11}, 1, 11),
        ({"num_workers": 3}, 3, 3),
        ({"num_workers": 3, "num_envs": 6}, 3, 6),
    ],
)
def test_the_processes_split_the_lanes_evenly(sizes, workers, lanes) -> None:
    run = ParallelEnvironmentCollector(ClockEnv, **sizes)._prepared.config.run
    assert (run.num_workers, run.num_envs) == (workers, lanes)


def test_each_process_has_whole_environments() -> None:
    """6 lanes are 2 environments of 3 agents."""
    team = ParallelEnvironmentCollector("pettingzoo:tests.team_environments:Signals", num_envs=6, env_args={"size": 3})
    assert team._prepared.config.run.num_workers == 2
    with team:
        assert team.collect(4)["reward"].shape == (4, 6)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="--num_workers 8 does not divide --num_envs 2"):
        ParallelEnvironmentCollector(ClockEnv, num_workers=8, num_envs=2)
    with pytest.raises(ConfigError, match="num_workers takes auto or a whole number of at least 1, not 0"):
        ParallelEnvironmentCollector(ClockEnv, num_workers=0, num_envs=2)
    with pytest.raises(ConfigError, match="num_envs takes a whole number from 1 to 1,000,000, not 0"):
        ParallelEnvironmentCollector(ClockEnv, num_envs=0)


def test_it_collects_a_whole_number_of_steps() -> None:
    collector = ParallelEnvironmentCollector(ClockEnv, num_workers=1)
    for bad, shown in ((0, "0"), (1.5, "1.5"), ("5", "'5'")):
        with pytest.raises(ConfigError, match=f"num_steps of collect takes a whole number of at least 1, not {shown}$"):
            collector.collect(bad)


def test_a_failing_environment_is_reported_with_its_traceback(started) -> None:
    class Failing(ClockEnv):
        def step(self, action):
            raise RuntimeError("the tower is down")

    collector = ParallelEnvironmentCollector(Failing, num_workers=2)
    collector.start()
    with pytest.raises(NodeError, match="the tower is down"):
        collector.collect(1)
    assert started() == []


def test_the_example_of_the_docs_computes_the_policy_that_acts() -> None:
    text = (Path(__file__).parents[1] / "docs" / "collector.md").read_text()
    (example,) = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    found: dict = {}
    exec(example.replace("range(50)", "range(2)"), found)
    np.testing.assert_allclose(found["log_prob"].detach().numpy(), found["rows"]["log_prob"], atol=1e-5)
    assert (found["rows"]["policy_version"] == 1).all()


def test_it_is_a_public_name() -> None:
    assert "ParallelEnvironmentCollector" in penstock.__all__
