"""The replay buffers of torchrl: batches of Pendulum's rows, uniformly and by priority; prints `RESULT {json}`.

It runs in its own environment and imports nothing of penstock: `benchmarks/replay.py` starts it.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

BLOCK = 1024


def median_us(function: Callable[[], object], calls: int) -> float:
    """Of so many calls, after some that warm up."""
    seconds = []
    for number in range(calls + 20):
        begun = time.perf_counter()
        function()
        if number >= 20:
            seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds)) * 1e6


def block() -> TensorDict:
    """Rows of random numbers."""
    numbers = {"reward": torch.rand(BLOCK, 1), "terminated": torch.zeros(BLOCK, 1, dtype=torch.bool)}
    rows = {"obs": torch.rand(BLOCK, 3), "next_obs": torch.rand(BLOCK, 3), "action": torch.rand(BLOCK, 1), **numbers}
    return TensorDict(rows, [BLOCK])


def main() -> None:
    """Fill both, draw, print the median times of a batch and of an insertion of a block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    storage = {"storage": LazyTensorStorage(args.rows), "batch_size": args.batch}
    uniform = TensorDictReplayBuffer(**storage)
    storage["storage"] = LazyTensorStorage(args.rows)
    rows = block()
    inserted = median_us(lambda: uniform.extend(rows), args.rows // BLOCK)
    result = {"uniform_us": median_us(uniform.sample, 2000), "insert_1024_us": inserted}
    try:
        ranked = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, priority_key="td_error", **storage)
    except RuntimeError as error:  # its native part is built for one version of torch, and may not load under another
        result["prioritised"] = str(error)
    else:
        result["prioritised_us"] = prioritised_us(ranked, rows, args)
    print("RESULT", json.dumps(result))


def prioritised_us(ranked: TensorDictPrioritizedReplayBuffer, rows: TensorDict, args: argparse.Namespace) -> float:
    """A batch drawn by priority, each of its rows given a new one."""
    for _ in range(args.rows // BLOCK):
        ranked.extend(rows)

    def there_and_back() -> None:
        batch = ranked.sample()
        batch["td_error"] = torch.rand(args.batch)
        ranked.update_tensordict_priority(batch)

    return median_us(there_and_back, 1000)


if __name__ == "__main__":
    main()
