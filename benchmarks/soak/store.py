"""Prints the bytes that objects take in the object stores of a Ray cluster, those of all its machines together.

    python -m benchmarks.soak.store HOST:PORT LIMIT_S

It joins no cluster, so it is no job of Ray, and starts nothing there. It must run on a machine of the cluster.
"""

import sys

# Ray has no public way to ask for these bytes but `ray memory`, which prints whole MiB.
from ray._private.internal_api import get_memory_info_reply, get_state_from_address


def main() -> None:
    """Ask a raylet, which asks all others."""
    address, limit_s = sys.argv[1:]
    reply = get_memory_info_reply(get_state_from_address(address), timeout_seconds=float(limit_s))
    print(int(reply.store_stats.object_store_bytes_used))


if __name__ == "__main__":
    main()
