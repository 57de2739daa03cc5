"""The replay buffers of torchrl, uniform and by priority, with rows like Pendulum's. They are asked round by round.

It runs in its own environment and imports nothing of penstock: `benchmarks/replay.py` starts it.
"""

import argparse
import importlib
from collections.abc import Callable

import torch
import torchrl
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

from benchmarks.peers.answers import answer

LANES, BLOCK, EPISODE = 8, 1024, 200


def block(rows: int, *, truncated: bool = False) -> TensorDict:
    """Rows of random numbers."""
    flags = {"terminated": torch.zeros(rows, 1, dtype=torch.bool), "truncated": torch.full((rows, 1), truncated)}
    numbers = {"obs": torch.rand(rows, 3), "next_obs": torch.rand(rows, 3), "action": torch.rand(rows, 1)}
    return TensorDict({**numbers, "reward": torch.rand(rows, 1), **flags}, [rows])


def inserting(buffer: TensorDictReplayBuffer) -> Callable[[], None]:
    """Insert 1,024 rows, 8 at a time."""
    going_on, last = block(LANES), block(LANES, truncated=True)
    step = 0

    def insert() -> None:
        nonlocal step
        for _ in range(BLOCK // LANES):
            step += 1
            buffer.extend(last if step % EPISODE == 0 else going_on)

    return insert


def there_and_back(ranked: TensorDictPrioritizedReplayBuffer, batch: int) -> None:
    """Sample a batch by priority, and give each of its rows a new priority."""
    rows = ranked.sample()
    rows["td_error"] = torch.rand(batch)
    ranked.update_tensordict_priority(rows)


def why_not_native() -> str:
    """Why the native part with the sum trees cannot be loaded, without the path of its file."""
    versions = f"torchrl {torchrl.__version__}, torch {torch.__version__}"
    try:
        importlib.import_module("torchrl._torchrl")
    except ImportError as error:
        return f"({versions}: {str(error).rpartition('.so: ')[2]})"
    return f"({versions}: its native part loads)"


def main() -> None:
    """Fill the buffers. Then each call samples a batch, by priority or not, or inserts 1,024 rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = block(BLOCK)
    uniform = TensorDictReplayBuffer(storage=LazyTensorStorage(args.rows), batch_size=args.batch)
    ways: dict[str, Callable[[], object]] = {
        "uniform": uniform.sample,
        "insert_whole": lambda: uniform.extend(rows),
        "insert_steps": inserting(uniform),
    }
    missing, buffers = {}, [uniform]
    storage = {"storage": LazyTensorStorage(args.rows), "batch_size": args.batch}
    try:
        ranked = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, priority_key="td_error", **storage)
    except (ImportError, RuntimeError) as error:  # its native part is built for one version of torch, and may not load
        missing["prioritised"] = f"{error} {why_not_native()}"
    else:
        buffers.append(ranked)
        ways["prioritised"] = lambda: there_and_back(ranked, args.batch)
    for buffer in buffers:
        for _ in range(-(-args.rows // BLOCK)):
            buffer.extend(rows)
    answer(ways, missing)


if __name__ == "__main__":
    main()
