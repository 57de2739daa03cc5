"""The graph behind LitServe: ``python -m benchmarks.peers.litserve_serve MODEL PORT``.

It runs in the peer's own environment. `benchmarks/serve_peers.py` asks it. Neither its faster queue nor leaving batches
out made a difference beyond the noise of a busy machine.
"""

import sys
from typing import Any

import litserve

from benchmarks.peers.onnx_policy import OnnxPolicy

MAX_BATCH = 64


class Served(litserve.LitAPI):
    """The steps of one request, as LitServe names them."""

    def setup(self, device: str) -> None:
        """Load the graph."""
        self.policy = OnnxPolicy(sys.argv[1])

    def decode_request(self, request: dict[str, Any]) -> Any:
        """The observation of a request."""
        return request["obs"]

    def batch(self, inputs: list[Any]) -> list[Any]:
        """The observations of a batch."""
        return inputs

    def predict(self, x: list[Any]) -> list[list[float]]:
        """Their actions."""
        return self.policy.actions(x)

    def unbatch(self, output: list[list[float]]) -> list[list[float]]:
        """The action of each."""
        return output

    def encode_response(self, output: list[float]) -> dict[str, list[float]]:
        """The body of a reply."""
        return {"action": output}


if __name__ == "__main__":
    api = Served(max_batch_size=MAX_BATCH, api_path="/infer")
    server = litserve.LitServer(api, accelerator="cpu", fast_queue=True)
    server.run("127.0.0.1", int(sys.argv[2]), log_level="warning", generate_client_file=False, access_log=False)
