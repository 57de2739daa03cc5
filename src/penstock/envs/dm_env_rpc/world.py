"""One lane: a world of a server of dm_env_rpc, with the spaces and steps of an environment."""

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.dm_env_rpc.answers import MOST_MESSAGE, Answers
from penstock.envs.dm_env_rpc.spaces import space_of
from penstock.envs.engines import whole
from penstock.errors import EnvError, SpaceError
from penstock.types import EnvFactory

__all__ = ["World", "world_at"]

_CONNECT_S = 30.0
_OWN = ("reward", "discount")
"""They come among the observations, because the protocol has no other place for them."""


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
    ) -> World:
        return World(_Connection(address, insecure=insecure), address, world or {}, join or {}, world_name)

    return make


class World:
    """One lane: a connection that has joined a world.

    Args:
        connection: to the server, with ``send`` and ``close`` as the package has them. The world closes it.
        address: of the server.
        world: settings for ``CreateWorld``.
        join: settings for ``JoinWorld``.
        world_name: an existing world to join; ``None``: create one, and destroy it at the end.

    Raises:
        EnvError: the server refuses, or says what the protocol does not know.
        SpaceError: what it shows or takes is not numbers in fixed shapes, or too large.
    """

    metadata: Mapping[str, Any] = {}

    def __init__(
        self, connection: Any, address: str, world: Mapping[str, Any], join: Mapping[str, Any], world_name: str | None
    ) -> None:
        from dm_env_rpc.v1 import dm_env_rpc_pb2  # noqa: PLC0415 - imported on use: half a second

        self._messages = dm_env_rpc_pb2
        self._address = address
        self._own_world: str | None = None
        self._answers = Answers(connection, address)
        try:
            if world_name is None:
                made = self._answers.send(dm_env_rpc_pb2.CreateWorldRequest(settings=_packed(world)))
                world_name = self._own_world = made.world_name
            request = dm_env_rpc_pb2.JoinWorldRequest(world_name=world_name, settings=_packed(join))
            specs = self._answers.send(request).specs
            with self._answers.understood():
                self._take(specs)
        except BaseException:
            self.close()
            raise
        self.observation_space = whole(self._observations)
        self.action_space = whole(self._actions)

    # Without a parameter `seed`: episodes count as not restorable.
    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        with self._answers.understood():
            return self._observed(self._env.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step. An episode has terminated if its discount is 0, else it was interrupted."""
        given = {next(iter(self._actions)): action} if len(self._actions) == 1 else action
        typed = {name: np.asarray(value, self._dtypes[name]) for name, value in given.items()}
        with self._answers.understood():
            found = self._env.step(typed)
            if found.first():
                raise ValueError("an episode has begun that nobody has asked for")
            terminated = found.last() and float(found.discount) == 0.0
            truncated = found.last() and not terminated
            return self._observed(found.observation), float(found.reward), terminated, truncated, {}

    def close(self) -> None:
        """Leave the world, and destroy it if it was made for this lane."""
        # Errors of each call are ignored on their own, because the server may be gone.
        with contextlib.suppress(Exception):
            self._answers.send(self._messages.LeaveWorldRequest())
        if self._own_world is not None:
            with contextlib.suppress(Exception):
                self._answers.send(self._messages.DestroyWorldRequest(world_name=self._own_world))
        self._own_world = None
        with contextlib.suppress(Exception):
            self._answers.close()

    def _take(self, specs: Any) -> None:
        """Take the spaces from the specs of a world."""
        from dm_env_rpc.v1 import dm_env_adaptor  # noqa: PLC0415 - as above

        self._env = dm_env_adaptor.DmEnvAdaptor(self._answers, specs, nested_tensors=False)
        seen, acted = sorted(self._env.observation_spec().items()), sorted(self._env.action_spec().items())
        self._observations = {name: space_of(spec) for name, spec in seen if name not in _OWN}
        self._actions = {name: space_of(spec) for name, spec in acted}
        self._dtypes = {name: spec.dtype for name, spec in acted}
        if not self._observations:
            raise SpaceError(f"the server at {self._address} observes nothing that is a number")
        if not self._actions:
            raise SpaceError(f"the server at {self._address} takes no actions")

    def _observed(self, observation: Mapping[str, Any]) -> Any:
        if len(self._observations) == 1:
            return observation[next(iter(self._observations))]
        return {name: observation[name] for name in self._observations}


def _packed(settings: Mapping[str, Any]) -> dict[str, Any]:
    from dm_env_rpc.v1 import tensor_utils  # noqa: PLC0415 - as above

    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}


class _Connection:
    """A connection of the package that closes its channel with itself.

    Raises:
        EnvError: nobody answers.
    """

    def __init__(self, address: str, *, insecure: bool) -> None:
        import grpc  # noqa: PLC0415 - as above
        from dm_env_rpc.v1 import connection  # noqa: PLC0415

        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", MOST_MESSAGE)]
        if insecure:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, grpc.local_channel_credentials(), options=options)
        try:
            grpc.channel_ready_future(self._channel).result(_CONNECT_S)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise EnvError(f"no server of dm_env_rpc answers at {address} within {_CONNECT_S:g} s") from None
        self._connection = connection.Connection(self._channel)

    def send(self, request: Any) -> Any:
        """Ask, and wait for the answer."""
        return self._connection.send(request)

    def close(self) -> None:
        self._connection.close()
        self._channel.close()
