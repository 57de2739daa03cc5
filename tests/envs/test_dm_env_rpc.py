"""Environments behind dm_env_rpc. The double passes the protocol's compliance tests; penstock trains with it."""

import time
from typing import ClassVar

import numpy as np
import pytest
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2, tensor_utils
from dm_env_rpc.v1.compliance import create_destroy_world, join_leave_world, reset, reset_world, step

import penstock
from penstock.envs.dm_env_rpc import world_at
from tests.envs import dm_env_rpc_double as double

pytestmark = pytest.mark.usefixtures("shared_templates")


class _Connected:
    """A server of its own and a connection for each test."""

    required_world_settings: ClassVar = {}
    invalid_world_settings: ClassVar = {"nonsense": tensor_utils.pack_tensor(1)}
    invalid_join_settings: ClassVar = {"nonsense": tensor_utils.pack_tensor(1)}
    has_multiple_world_support = True
    connection = None
    world_name = None

    def setUp(self):
        super().setUp()
        serving = double.serving()
        address, _ = serving.__enter__()
        self.addCleanup(serving.__exit__, None, None, None)
        type(self).connection = connection.create_secure_channel_and_connect(address)
        self.addCleanup(self.connection.close)
        type(self).world_name = self.connection.send(dm_env_rpc_pb2.CreateWorldRequest()).world_name

    def join_world(self, **kwargs):
        kwargs.setdefault("world_name", self.world_name)
        return self.connection.send(dm_env_rpc_pb2.JoinWorldRequest(**kwargs)).specs


class TestCreateDestroyWorld(_Connected, create_destroy_world.CreateDestroyWorld):
    pass


class TestJoinLeaveWorld(_Connected, join_leave_world.JoinLeaveWorld):
    pass


class TestReset(_Connected, reset.Reset):
    pass


class TestResetWorld(_Connected, reset_world.ResetWorld):
    pass


class TestStep(_Connected, step.Step):
    specs = double.SPECS

    def setUp(self):
        super().setUp()
        self.join_world()


del step, reset, reset_world, join_leave_world, create_destroy_world


def test_spaces_steps_and_ends():
    with double.serving() as (address, servicer):
        env = world_at(address)(world={"endless": True})
        assert str(env.observation_space) == "Dict('shown': Box(0.0, 1.0, (3,), float32), 'step': Discrete(5))"
        assert str(env.action_space) == "Discrete(3)"
        obs, _ = env.reset()
        found = []
        for _ in range(double.LENGTH):
            obs, reward, terminated, truncated, _ = env.step(np.int64(obs["shown"].argmax()))
            found.append((reward, terminated, truncated))
        assert found == [(1.0, False, False)] * 3 + [(1.0, False, True)]
        env.reset()
        assert env.step(0)[0]["step"] == 1
        assert list(servicer.worlds.values()) == [True]
        env.close()
        assert not servicer.worlds
        ends = world_at(address)()
        ends.reset()
        assert [ends.step(0)[2:4] for _ in range(double.LENGTH)][-1] == (True, False)
        ends.close()


def test_penstock_learns_behind_it(tmp_path):
    """Whoever says what is shown gets 1 a step, 4 an episode; who guesses gets 4 / 3."""
    with double.serving() as (address, servicer):
        config = {
            "env": f"dm_env_rpc://{address}",
            "num_envs": 4,
            "num_workers": 2,
            "num_steps": 32,
            "mini_batch_size": 32,
            "timesteps": 4000,
            "lr": 0.01,
            "eval_episodes": 20,
            "log_dir": str(tmp_path),
        }
        result = penstock.train(config, quiet=True)
        assert result.evaluation.mean_return > 3.9
        end = time.monotonic() + 60
        while servicer.worlds and time.monotonic() < end:
            time.sleep(0.05)
        assert not servicer.worlds


@pytest.mark.parametrize(
    ("env", "more", "text"),
    [
        ("dm_env_rpc://nowhere", {}, "is no address of a server; write dm_env_rpc://localhost:9000"),
        ("dm_env_rpc://{}", {"env_args": {"world": {"nonsense": 1}}}, "there is no setting"),
        ("dm_env_rpc://{}", {"env_args": {"world_name": "nonsense"}}, "there is no world nonsense"),
        ("dm_env_rpc://{}", {"env_args": {"wrld": 1}}, "wrld"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, env, more, text):
    with double.serving() as (address, _), pytest.raises(penstock.UsageError, match=text):
        penstock.train({"env": env.format(address), "runtime": "inline", "log_dir": str(tmp_path), **more}, quiet=True)
