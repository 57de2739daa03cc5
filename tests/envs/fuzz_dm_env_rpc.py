"""Feeds what reads the answers of a dm_env_rpc server, without a connection: a target of ``make fuzz-frames``.

An input is a list of answers, each behind its size. Imports penstock in functions only, see `fuzz_seeds.py`.
"""

from collections.abc import Callable
from struct import Struct

STEPS = 3
_SIZE = Struct("!I")


class Told:
    """A connection to a server that gives these answers, and then is gone."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def send(self, request: object) -> object:
        from dm_env_rpc.v1 import dm_env_rpc_pb2, message_utils
        from google.protobuf.message import DecodeError

        size = _SIZE.unpack_from(self._rest.ljust(_SIZE.size, b"\0"))[0]
        one, self._rest = self._rest[_SIZE.size : _SIZE.size + size], self._rest[_SIZE.size + size :]
        if not one:
            # What the package's stream raises.
            raise StopIteration
        try:
            answer = dm_env_rpc_pb2.EnvironmentResponse.FromString(one)
        except DecodeError:
            raise RuntimeError("gRPC has refused the answer") from None
        name = message_utils.pack_environment_request(request).field_name
        return message_utils.unpack_environment_response(answer, name)

    def close(self) -> None:
        """Nothing: nobody listens."""


def play(data: bytes) -> int:
    """Step the world of the server that answers so, and return how often it was stepped."""
    import numpy as np

    from penstock.envs.dm_env_rpc.world import World

    world = World(Told(data), "toy:1", {}, {}, None)
    world.action_space.seed(0)
    try:
        obs, _ = world.reset()
        for _ in range(STEPS):
            parts = obs.values() if isinstance(obs, dict) else [obs]
            spaces = world.observation_space
            wanted = spaces.spaces.values() if isinstance(obs, dict) else [spaces]
            # Values beyond their bounds, and NaN, are no mistake here: the run looks for them.
            assert [np.shape(part) for part in parts] == [space.shape for space in wanted]
            obs, *_ = world.step(world.action_space.sample())
        return STEPS
    finally:
        world.close()


def target() -> Callable[[bytes], None]:
    """The target: every error is one that names what is wrong."""
    # All that `play` needs: what is imported here is instrumented.
    from penstock.envs.dm_env_rpc import answers, spaces, world  # noqa: F401
    from penstock.errors import EnvError, SpaceError

    def dm_env_rpc(data: bytes) -> None:
        try:
            play(data)
        except (EnvError, SpaceError):
            return

    return dm_env_rpc


def seeds() -> list[bytes]:
    """Servers whose worlds are played to the end."""
    from tests.envs import dm_env_rpc_double as double

    return [answers(double.SPECS), answers(_pictures())]


def answers(specs: object, **observed: object) -> bytes:
    """The answers of a server whose world has these specs, and at each step shows zeros or what is given.

    Args:
        specs: ``ActionObservationSpecs``.
        observed: name -> ``Tensor``.
    """
    import numpy as np
    from dm_env_rpc.v1 import dm_env_rpc_pb2 as messages
    from dm_env_rpc.v1 import tensor_utils

    shown = {
        uid: observed.get(spec.name)
        or tensor_utils.pack_tensor(np.zeros(spec.shape, tensor_utils.data_type_to_np_type(spec.dtype)))
        for uid, spec in specs.observations.items()
    }
    step = messages.StepResponse(state=messages.EnvironmentStateType.RUNNING, observations=shown)
    ends = (("leave_world", messages.LeaveWorldResponse()), ("destroy_world", messages.DestroyWorldResponse()))
    begins = (("reset", messages.ResetResponse(specs=specs)),)
    return joined(specs) + _said(*begins, *[("step", step)] * (STEPS + 1), *ends)


def joined(specs: object) -> bytes:
    """The answers of a server whose world has these specs, until somebody has joined it."""
    from dm_env_rpc.v1 import dm_env_rpc_pb2 as messages

    made = messages.CreateWorldResponse(world_name="a")
    return _said(("create_world", made), ("join_world", messages.JoinWorldResponse(specs=specs)))


def _said(*told: tuple[str, object]) -> bytes:
    from dm_env_rpc.v1.dm_env_rpc_pb2 import EnvironmentResponse

    packed = [EnvironmentResponse(**{name: answer}).SerializeToString() for name, answer in told]
    return b"".join(_SIZE.pack(len(one)) + one for one in packed)


def _pictures() -> object:
    """Specs with a picture, bounds for each number, and two actions."""
    from dm_env_rpc.v1 import dm_env_rpc_pb2 as messages
    from dm_env_rpc.v1 import tensor_spec_utils

    kinds = messages.DataType
    arm = messages.TensorSpec(name="arm", dtype=kinds.DOUBLE, shape=[2])
    tensor_spec_utils.set_bounds(arm, [-1.0, 0.0], [1.0, 2.0])
    return messages.ActionObservationSpecs(
        actions={1: arm, 2: messages.TensorSpec(name="grip", dtype=kinds.FLOAT, shape=[1])},
        observations={
            1: messages.TensorSpec(name="camera", dtype=kinds.UINT8, shape=[2, 3, 1]),
            4: messages.TensorSpec(name="touches", dtype=kinds.BOOL),
            9: messages.TensorSpec(name="discount", dtype=kinds.FLOAT),
        },
    )
