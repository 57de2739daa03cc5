"""A plain FastAPI handler around ONNX Runtime: ``python -m benchmarks.peers.fastapi_serve MODEL PORT``.

It runs in the peer's own environment. `benchmarks/serve_peers.py` asks it.
"""

import sys

import uvicorn
from fastapi import FastAPI, Request, Response

from benchmarks.peers.onnx_policy import OnnxPolicy, read, written


def main() -> None:
    """Serve until SIGTERM."""
    model, port = sys.argv[1:]
    policy = OnnxPolicy(model)
    app = FastAPI()

    @app.post("/infer")
    async def infer(request: Request) -> Response:
        observation = read(await request.body())
        return Response(written(policy.actions([observation])[0]), media_type="application/json")

    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
