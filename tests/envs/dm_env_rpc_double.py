"""A headless server of dm_env_rpc: guess the number that is shown. It passes the compliance tests of the protocol."""

import contextlib
import itertools
from collections.abc import Iterator
from concurrent import futures

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, spec_manager, tensor_spec_utils, tensor_utils
from google.rpc import status_pb2

LENGTH = 4
CHOICES = 3
STATES = dm_env_rpc_pb2.EnvironmentStateType


class Refused(Exception):
    """A request that is answered with an error."""


def _spec(name, dtype, shape=(), bounds=None):
    spec = dm_env_rpc_pb2.TensorSpec(name=name, dtype=tensor_utils.np_type_to_data_type(dtype), shape=shape)
    if bounds is not None:
        tensor_spec_utils.set_bounds(spec, *bounds)
    return spec


SPECS = dm_env_rpc_pb2.ActionObservationSpecs(
    actions={1: _spec("guess", np.int32, (), (0, CHOICES - 1))},
    observations={
        1: _spec("shown", np.float32, (CHOICES,), (0.0, 1.0)),
        2: _spec("step", np.int32, (), (0, LENGTH)),
        3: _spec("reward", np.float32),
        4: _spec("text", np.str_),
    },
)


class _Player:
    """One connection's episode. ``endless`` episodes are interrupted after their last step; others terminate."""

    def __init__(self, endless: bool) -> None:
        self.endless = endless
        self.state = STATES.TERMINATED
        self.numbers = np.random.default_rng(0)

    def reset(self) -> None:
        if self.state == STATES.RUNNING:
            self.state = STATES.INTERRUPTED

    def step(self, request):
        managers = spec_manager.SpecManager(SPECS.actions), spec_manager.SpecManager(SPECS.observations)
        unknown = set(request.requested_observations) - set(SPECS.observations)
        if unknown:
            raise Refused(f"there is no observation {sorted(unknown)}")
        reward = 0.0
        if self.state != STATES.RUNNING:
            self.state, self.t = STATES.RUNNING, 0
        else:
            guess = _checked(request.actions, managers[0])
            reward = float(guess == self.target)
            self.t += 1
            if self.t == LENGTH:
                self.state = STATES.INTERRUPTED if self.endless else STATES.TERMINATED
        self.target = int(self.numbers.integers(CHOICES))
        values = {
            "shown": np.eye(CHOICES, dtype=np.float32)[self.target],
            "step": np.int32(self.t),
            "reward": np.float32(reward),
            "text": "hello",
        }
        names = [managers[1].uid_to_name(uid) for uid in request.requested_observations]
        packed = managers[1].pack({name: values[name] for name in names})
        return dm_env_rpc_pb2.StepResponse(state=self.state, observations=packed)


def _checked(actions, manager) -> int:
    unknown = set(actions) - set(SPECS.actions)
    if unknown:
        raise Refused(f"there is no action {sorted(unknown)}")
    guess = 0
    for uid, tensor in actions.items():
        spec = SPECS.actions[uid]
        if tensor_utils.get_tensor_type(tensor) != tensor_utils.data_type_to_np_type(spec.dtype):
            raise Refused(f"action {spec.name} has another type")
        if list(tensor.shape) not in ([], [-1]) or (list(tensor.shape) == [-1] and spec.shape == []):
            raise Refused(f"action {spec.name} has another shape")
        guess = int(tensor_utils.unpack_tensor(tensor))
        if not 0 <= guess < CHOICES:
            raise Refused(f"action {spec.name} is {guess}")
    return guess


class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """Worlds by name, and one player for each connection.

    Attributes:
        worlds: those that exist: name -> whether its episodes are interrupted.
    """

    def __init__(self) -> None:
        self.worlds = {}
        self._numbers = itertools.count()

    def Process(self, requests, context):
        joined = None
        for request in requests:
            kind = request.WhichOneof("payload")
            response = dm_env_rpc_pb2.EnvironmentResponse()
            try:
                joined, answer = self._answer(kind, getattr(request, kind), joined)
                getattr(response, kind).CopyFrom(answer)
            except Refused as refused:
                response.error.CopyFrom(status_pb2.Status(code=3, message=str(refused)))
            yield response

    def _answer(self, kind, request, joined):
        if kind == "create_world":
            unknown = set(request.settings) - {"endless"}
            if unknown:
                raise Refused(f"there is no setting {sorted(unknown)}")
            name = f"world-{next(self._numbers)}"
            endless = "endless" in request.settings and bool(tensor_utils.unpack_tensor(request.settings["endless"]))
            self.worlds[name] = endless
            return joined, dm_env_rpc_pb2.CreateWorldResponse(world_name=name)
        if kind == "join_world":
            if joined is not None:
                raise Refused("this connection has joined a world already")
            if request.world_name not in self.worlds or request.settings:
                raise Refused(f"there is no world {request.world_name} with these settings")
            return _Player(self.worlds[request.world_name]), dm_env_rpc_pb2.JoinWorldResponse(specs=SPECS)
        if kind == "leave_world":
            return None, dm_env_rpc_pb2.LeaveWorldResponse()
        if kind in {"destroy_world", "reset_world"}:
            if request.world_name not in self.worlds:
                raise Refused(f"there is no world {request.world_name}")
            if kind == "reset_world":
                return joined, dm_env_rpc_pb2.ResetWorldResponse()
            del self.worlds[request.world_name]
            return joined, dm_env_rpc_pb2.DestroyWorldResponse()
        if joined is None:
            raise Refused(f"{kind} needs a world that was joined")
        if kind == "reset":
            joined.reset()
            return joined, dm_env_rpc_pb2.ResetResponse(specs=SPECS)
        if kind == "step":
            return joined, joined.step(request)
        raise Refused(f"{kind} is not supported")


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, Servicer]]:
    """Serve on a free port; the address, and the worlds."""
    servicer = Servicer()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(servicer, server)
    port = server.add_secure_port("localhost:0", grpc.local_server_credentials())
    server.start()
    try:
        yield f"localhost:{port}", servicer
    finally:
        server.stop(None).wait()
