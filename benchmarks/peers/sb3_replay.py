"""The replay buffer of stable-baselines3, with rows like Pendulum's. It is asked round by round.

It runs in its own environment and imports nothing of penstock: `benchmarks/replay.py` starts it.
"""

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer

from benchmarks.peers.answers import answer

LANES, BLOCK, EPISODE = 8, 1024, 200


def main() -> None:
    """Fill a buffer. Then each call samples a batch, or inserts 1,024 rows, 8 at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = gymnasium.make("Pendulum-v1")
    buffer = ReplayBuffer(args.rows, env.observation_space, env.action_space, device="cpu", n_envs=LANES)
    rng = np.random.default_rng(0)
    obs, action = rng.random((LANES, 3), np.float32), rng.random((LANES, 1), np.float32)
    reward, on, off = rng.random(LANES, np.float32), np.ones(LANES, bool), np.zeros(LANES, bool)
    going_on: list[dict[str, bool]] = [{} for _ in range(LANES)]
    truncated = [{"TimeLimit.truncated": True} for _ in range(LANES)]
    step = 0

    def insert() -> None:
        nonlocal step
        for _ in range(BLOCK // LANES):
            step += 1
            ends = step % EPISODE == 0
            buffer.add(obs, obs, action, reward, on if ends else off, truncated if ends else going_on)

    for _ in range(-(-args.rows // BLOCK)):
        insert()
    answer({"uniform": lambda: buffer.sample(args.batch), "insert_steps": insert}, {})


if __name__ == "__main__":
    main()
