"""The replay buffer of stable-baselines3, rows as Pendulum has them; in its own environment, prints `RESULT {json}`.

It imports nothing of penstock: `benchmarks/replay.py` starts it.
"""

import argparse
import json
import time

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer

LANES = 8


def main() -> None:
    """Fill a buffer, draw from it, print the median time of a batch and of an insertion of 8 rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = gymnasium.make("Pendulum-v1")
    buffer = ReplayBuffer(args.rows, env.observation_space, env.action_space, device="cpu", n_envs=LANES)
    rng = np.random.default_rng(0)
    obs, action = rng.random((LANES, 3), np.float32), rng.random((LANES, 1), np.float32)
    reward, done = rng.random(LANES, np.float32), np.zeros(LANES, bool)
    infos: list[dict[str, bool]] = [{} for _ in range(LANES)]
    inserted = []
    for _ in range(args.rows // LANES):
        begun = time.perf_counter()
        buffer.add(obs, obs, action, reward, done, infos)
        inserted.append(time.perf_counter() - begun)
    drawn = []
    for _ in range(3000):
        begun = time.perf_counter()
        buffer.sample(args.batch)
        drawn.append(time.perf_counter() - begun)
    result = {"uniform_us": float(np.median(drawn)) * 1e6, "insert_8_us": float(np.median(inserted)) * 1e6}
    print("RESULT", json.dumps(result))


if __name__ == "__main__":
    main()
