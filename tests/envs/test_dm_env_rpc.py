"""Environments behind dm_env_rpc. The double passes the protocol's compliance tests; penstock trains with it."""

import time
import tracemalloc
from typing import ClassVar

import numpy as np
import pytest
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2, tensor_spec_utils, tensor_utils
from dm_env_rpc.v1.compliance import create_destroy_world, join_leave_world, reset, reset_world, step

import penstock
from penstock.envs.dm_env_rpc import world_at
from penstock.errors import EnvError, SpaceError
from tests.envs import dm_env_rpc_double as double
from tests.envs import fuzz_dm_env_rpc

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


@pytest.mark.nightly  # Eight seconds. Shorter: those above step an environment behind it.
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


def _specs(**observations):
    """Specs of a world with one action: name -> type and shape."""
    guess = dm_env_rpc_pb2.TensorSpec(name="guess", dtype=dm_env_rpc_pb2.INT32)
    tensor_spec_utils.set_bounds(guess, 0, 2)
    seen = {
        uid: dm_env_rpc_pb2.TensorSpec(name=name, dtype=dtype, shape=shape)
        for uid, (name, (dtype, shape)) in enumerate(observations.items(), 1)
    }
    return dm_env_rpc_pb2.ActionObservationSpecs(actions={1: guess}, observations=seen)


FLOAT, STRING = dm_env_rpc_pb2.FLOAT, dm_env_rpc_pb2.STRING


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        (
            _specs(far=(FLOAT, [2**20, 2**20])),
            "the observations of toy:1 have 4398046511104 bytes; the most is 67108864",
        ),
        (_specs(one=(FLOAT, [2**23]), other=(FLOAT, [2**23, 2])), "have 100663296 bytes; the most is 67108864"),
        (_specs(any=(FLOAT, [-1])), r"observation any is float32 \[-1\]: penstock needs numbers in a fixed shape"),
        (_specs(shown=(FLOAT, []), reward=(FLOAT, [-1])), "observation reward is float32"),
        (_specs(said=(STRING, [])), "the server at toy:1 observes nothing that is a number"),
        (
            dm_env_rpc_pb2.ActionObservationSpecs(observations=_specs(shown=(FLOAT, [])).observations),
            "takes no actions",
        ),
    ],
    ids=["large", "large together", "variable", "variable reward", "only texts", "no actions"],
)
def test_worlds_that_penstock_cannot_play(specs, text):
    with pytest.raises(SpaceError, match=text):
        fuzz_dm_env_rpc.play(fuzz_dm_env_rpc.joined(specs))


def test_what_nobody_looks_at_takes_no_memory():
    """The package makes an array as wide as the longest text, and one of any shape from one number."""
    texts = dm_env_rpc_pb2.Tensor(shape=[10_000])
    texts.strings.array.extend(["a" * 40_000, *[""] * 9_999])
    data = fuzz_dm_env_rpc.answers(_specs(shown=(FLOAT, []), said=(STRING, [-1])), said=texts)
    tracemalloc.start()
    try:
        assert fuzz_dm_env_rpc.play(data) == fuzz_dm_env_rpc.STEPS
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_number_of_another_shape_than_its_spec_is_refused_before_it_is_unpacked():
    many = dm_env_rpc_pb2.Tensor(shape=[2**20, 2**20])
    many.floats.array.append(1.0)
    data = fuzz_dm_env_rpc.answers(_specs(shown=(FLOAT, [2])), shown=many)
    with pytest.raises(
        EnvError, match=r"the server at toy:1 does not keep to dm_env_rpc: ValueError .* but spec has shape"
    ):
        fuzz_dm_env_rpc.play(data)


def test_a_server_that_ends_while_it_is_asked(monkeypatch):
    with double.serving() as (address, _):
        env = world_at(address)()
        env.reset()
        monkeypatch.setattr(double._Player, "step", lambda *_: 1 / 0)
        with pytest.raises(EnvError, match=f"the server at {address} has broken off"):
            env.step(0)
        env.close()


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
