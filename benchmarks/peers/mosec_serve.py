"""The graph behind mosec: ``python -m benchmarks.peers.mosec_serve MODEL PORT``.

It runs in the peer's own environment. `benchmarks/serve_peers.py` asks it.
"""

import os
import sys
from typing import Any

from mosec import Server, Worker

from benchmarks.peers.onnx_policy import OnnxPolicy, read, written

MAX_BATCH = 64
WAIT_MS = 1
"""The shortest wait of a batch for more requests."""


class Served(Worker):
    """The one stage of the service."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = OnnxPolicy(sys.argv[1])

    def deserialize(self, data: bytes) -> Any:
        """The observation of a request."""
        return read(data)

    def forward(self, data: list[Any]) -> list[list[float]]:
        """The actions of a batch."""
        return self.policy.actions(data)

    def serialize(self, data: list[float]) -> bytes:
        """The body of a reply."""
        return written(data)


if __name__ == "__main__":
    os.environ |= {"MOSEC_ADDRESS": "127.0.0.1", "MOSEC_PORT": sys.argv[2], "MOSEC_LOG_LEVEL": "warning"}
    server = Server()
    server.append_worker(Served, max_batch_size=MAX_BATCH, max_wait_time=WAIT_MS, route="/infer")
    server.run()
