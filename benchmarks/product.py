"""How fast NumPy's own library multiplies: operations per second of a large float32 product.

python -m benchmarks.product         # the library chooses the number of threads
OPENBLAS_NUM_THREADS=1 python -m benchmarks.product

It is no limit where the library does not use all of the processor. `benchmarks.peak` measures that.
"""

import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.record import ROOT
from penstock.policies import Linear, Network, PolicyGraph

SIZE = 1024
REPEATS = 25


def operations_per_second(threads: int) -> float:
    """Operations per second of ``threads`` cores, measured in a new process: the library reads its threads at start."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    command = [sys.executable, "-m", "benchmarks.product"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT).stdout)


def forward_operations(graph: PolicyGraph) -> int:
    """Additions and multiplications of all linear layers for one row."""
    return sum(sum(_operations(network)) for network in graph.networks)


def update_operations(graph: PolicyGraph) -> int:
    """The same for one row of an update: outputs, gradients of weights, gradients of inputs but the first layers'."""
    return 3 * forward_operations(graph) - sum(_operations(network)[0] for network in graph.networks)


def _operations(network: Network) -> list[int]:
    """Of each linear layer, for one row."""
    return [2 * layer.inputs * layer.outputs for layer in network.layers if isinstance(layer, Linear)]


def main() -> None:
    """Print the operations per second of the quickest of some products."""
    a, b = (np.random.default_rng(seed).standard_normal((SIZE, SIZE), np.float32) for seed in range(2))
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - begun)
    print(2 * SIZE**3 / min(seconds))


if __name__ == "__main__":
    main()
