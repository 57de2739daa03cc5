"""From ``mlagents://...`` to games. Imports no gRPC before a game is wanted."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import EnvError
from penstock.types import EnvFactory

if TYPE_CHECKING:
    from penstock.envs.mlagents.agents import Agents
    from penstock.envs.mlagents.lanes import GameLanes

__all__ = ["agents_at"]

_NEEDED = ("grpc", "google.protobuf", "PIL")


def agents_at(address: str) -> EnvFactory:
    """A factory of vector environments whose lanes are the agents of games.

    Args:
        address: ``:PORT``, to wait there for a game, and at the ports above it for more; or the path of a game that is
            started.

    Raises:
        EnvError: it is neither, or a package is missing.
    """
    port = address.removeprefix(":")
    waits = address.startswith(":") and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not waits and not Path(address).is_file():
        raise EnvError(
            f"mlagents://{address} is neither a port nor a game: write mlagents://:5005 to wait for a game there, or "
            "mlagents://path/to/game.x86_64 to start one"
        )
    if any(importlib.util.find_spec(package) is None for package in _NEEDED):
        raise EnvError(f"environment mlagents://{address} needs gRPC and Pillow: pip install 'penstock[mlagents]'")

    def make(
        num_envs: int,
        seed: int,
        *,
        wait: float = 60.0,
        time_scale: float = 20.0,
        parameters: Mapping[str, float] | None = None,
        action_mask: bool = False,
        graphics: bool = False,
    ) -> "Agents":
        # Imported on use: gRPC takes 0.1 s.
        from penstock.envs.mlagents.agents import Agents  # noqa: PLC0415
        from penstock.envs.mlagents.game import Game  # noqa: PLC0415
        from penstock.envs.mlagents.lanes import GameLanes  # noqa: PLC0415
        from penstock.envs.mlagents.messages import engine_packets, parameter_packets  # noqa: PLC0415

        packets = engine_packets(time_scale) + parameter_packets(parameters or {})
        hidden = () if graphics else ("-batchmode", "-nographics")
        command = () if waits else (str(Path(address).resolve()), *hidden)

        def games() -> "Iterator[GameLanes]":
            for number in range(num_envs):
                own_port = int(port) + number if waits else 0
                yield GameLanes(Game(own_port, wait, (seed + number) % (1 << 31), packets, command))

        return Agents(num_envs, games(), masks=action_mask)

    return make
