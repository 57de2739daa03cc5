"""The graph behind Ray Serve: ``python -m benchmarks.peers.ray_serve MODEL PORT``.

It runs in the peer's own environment. `benchmarks/serve_peers.py` asks it, and sets the variables of its mode for high
throughput.
"""

import signal
import sys
import threading
from typing import Any

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.peers.onnx_policy import OnnxPolicy, read, written

MAX_BATCH = 64


@serve.deployment(max_ongoing_requests=4 * MAX_BATCH, ray_actor_options={"num_cpus": 1})
class Served:
    """One replica."""

    def __init__(self, model: str) -> None:
        self.policy = OnnxPolicy(model)

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=0.0)
    async def actions(self, observations: list[Any]) -> list[list[float]]:
        """The actions of a batch."""
        return self.policy.actions(observations)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        action = await self.actions(read(await request.body()))
        return Response(written(action), media_type="application/json")


def main() -> None:
    """Serve until SIGTERM."""
    model, port = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="warning")
    quiet = {"enable_access_log": False, "log_level": "WARNING"}
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)}, logging_config=quiet)
    serve.run(Served.bind(model), route_prefix="/", logging_config=quiet)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    told.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
