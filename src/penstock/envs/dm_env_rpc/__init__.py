"""Environments behind a server of dm_env_rpc, as ``dm_env_rpc://host:port``. Each lane creates and joins a world.

The protocol, version 1: https://github.com/google-deepmind/dm_env_rpc/blob/main/docs/v1/overview.md. The server decides
how an episode begins; it takes no seed, so episodes cannot be restored.
"""

from penstock.envs.dm_env_rpc.world import world_at

__all__ = ["world_at"]
