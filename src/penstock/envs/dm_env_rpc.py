"""Environments behind a server of dm_env_rpc, as ``dm_env_rpc://host:port``. Each lane creates and joins a world.

The protocol, version 1: https://github.com/google-deepmind/dm_env_rpc/blob/main/docs/v1/overview.md. The server decides
how an episode begins; it takes no seed, so episodes cannot be restored.
"""

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import EnvError, SpaceError
from penstock.types import EnvFactory

__all__ = ["world_at"]

_CONNECT_S = 30.0
_OWN = ("reward", "discount")
"""Observations that are no observations: the protocol has no other place for them."""


def world_at(address: str) -> EnvFactory:
    """A factory of environments on one server.

    Args:
        address: ``host:port``.

    Raises:
        EnvError: the package ``dm-env-rpc`` is not installed, or the address is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise EnvError(f"dm_env_rpc://{address} is no address of a server; write dm_env_rpc://localhost:9000")
    if importlib.util.find_spec("dm_env_rpc") is None:
        raise EnvError(f"environment dm_env_rpc://{address} needs dm-env-rpc: pip install 'penstock[dm-env-rpc]'")

    def make(
        world: Mapping[str, Any] | None = None,
        join: Mapping[str, Any] | None = None,
        world_name: str | None = None,
        insecure: bool = False,
    ) -> _World:
        return _World(address, world or {}, join or {}, world_name, insecure=insecure)

    return make


class _World:
    """One lane: a connection that has joined a world.

    Args:
        address: of the server.
        world: settings for ``CreateWorld``.
        join: settings for ``JoinWorld``.
        world_name: an existing world to join; ``None``: create one, and destroy it at the end.
        insecure: connect without gRPC's local credentials.
    """

    metadata: Mapping[str, Any] = {}

    def __init__(
        self, address: str, world: Mapping[str, Any], join: Mapping[str, Any], world_name: str | None, *, insecure: bool
    ) -> None:
        # Imported on use: gRPC and the messages take half a second.
        import grpc  # noqa: PLC0415
        from dm_env_rpc.v1 import connection, dm_env_adaptor, dm_env_rpc_pb2, error, tensor_utils  # noqa: PLC0415

        self._messages = dm_env_rpc_pb2
        self._own_world: str | None = None
        credentials = None if insecure else grpc.local_channel_credentials()
        self._channel = _channel(address, credentials)
        try:
            grpc.channel_ready_future(self._channel).result(_CONNECT_S)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise EnvError(f"no server of dm_env_rpc answers at {address} within {_CONNECT_S:g} s") from None
        self._connection = connection.Connection(self._channel)
        try:
            if world_name is None:
                settings = {name: tensor_utils.pack_tensor(value) for name, value in world.items()}
                made = self._connection.send(dm_env_rpc_pb2.CreateWorldRequest(settings=settings))
                world_name = self._own_world = made.world_name
            settings = {name: tensor_utils.pack_tensor(value) for name, value in join.items()}
            request = dm_env_rpc_pb2.JoinWorldRequest(world_name=world_name, settings=settings)
            specs = self._connection.send(request).specs
        except error.DmEnvRpcError as refused:
            self.close()
            raise EnvError(f"the server at {address} refuses: {one_line(refused, 300)}") from None
        self._env = dm_env_adaptor.DmEnvAdaptor(self._connection, specs, nested_tensors=False)
        self._observations = {
            name: _space(spec, f"observation {name}")
            for name, spec in sorted(self._env.observation_spec().items())
            if name not in _OWN and spec.dtype.kind in "biuf"
        }
        if not self._observations:
            self.close()
            raise SpaceError(f"the server at {address} observes nothing that is a number")
        acted = dict(sorted(self._env.action_spec().items()))
        self._actions = {name: _space(spec, f"action {name}") for name, spec in acted.items()}
        self._dtypes = {name: spec.dtype for name, spec in acted.items()}
        self.observation_space = _whole(self._observations)
        self.action_space = _whole(self._actions)

    # Without a parameter `seed`: episodes count as not restorable.
    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        return self._observed(self._env.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step. An episode has terminated if its discount is 0, else it was interrupted."""
        given = {next(iter(self._actions)): action} if len(self._actions) == 1 else action
        typed = {name: np.asarray(value, self._dtypes[name]) for name, value in given.items()}
        found = self._env.step(typed)
        terminated = found.last() and found.discount == 0.0
        return self._observed(found.observation), float(found.reward), terminated, found.last() and not terminated, {}

    def close(self) -> None:
        """Leave the world, and destroy it if it was made for this lane."""
        # Each by itself: the server may be gone.
        with contextlib.suppress(Exception):
            self._connection.send(self._messages.LeaveWorldRequest())
        if self._own_world is not None:
            with contextlib.suppress(Exception):
                self._connection.send(self._messages.DestroyWorldRequest(world_name=self._own_world))
        self._own_world = None
        with contextlib.suppress(Exception):
            self._connection.close()
        self._channel.close()

    def _observed(self, observation: Mapping[str, Any]) -> Any:
        if len(self._observations) == 1:
            return observation[next(iter(self._observations))]
        return {name: observation[name] for name in self._observations}


def _channel(address: str, credentials: Any) -> Any:
    import grpc  # noqa: PLC0415

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


def _space(spec: Any, what: str) -> Any:
    """The space of one tensor.

    Raises:
        SpaceError: its shape is not fixed, or it holds no numbers.
    """
    from gymnasium.spaces import Box, Discrete  # noqa: PLC0415

    if spec.dtype.kind not in "biuf" or any(size < 0 for size in spec.shape):
        raise SpaceError(f"{what} is {spec.dtype} {list(spec.shape)}: penstock needs numbers in a fixed shape")
    if hasattr(spec, "num_values"):
        return Discrete(int(spec.num_values))
    if hasattr(spec, "minimum") and not spec.shape and spec.dtype.kind in "iu":
        return Discrete(int(spec.maximum) - int(spec.minimum) + 1, start=int(spec.minimum))
    if spec.dtype.kind == "b":
        return Box(0, 1, spec.shape, np.uint8)
    limits: Any = np.finfo(spec.dtype) if spec.dtype.kind == "f" else np.iinfo(spec.dtype)
    low, high = getattr(spec, "minimum", limits.min), getattr(spec, "maximum", limits.max)
    if spec.dtype.kind == "f":
        # The protocol has no other way to say that a side has no bound.
        low, high = np.where(low <= limits.min, -np.inf, low), np.where(high >= limits.max, np.inf, high)
    bounds = [np.broadcast_to(np.asarray(side, spec.dtype), spec.shape) for side in (low, high)]
    return Box(bounds[0], bounds[1], dtype=spec.dtype.type)


def _whole(spaces: Mapping[str, Any]) -> Any:
    """One space by itself, several as a Dict."""
    from gymnasium.spaces import Dict  # noqa: PLC0415

    return next(iter(spaces.values())) if len(spaces) == 1 else Dict(dict(spaces))
