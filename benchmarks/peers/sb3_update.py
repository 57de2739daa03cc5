"""One gradient step of stable-baselines3's SAC, TD3 or DQN, on rows like those of `benchmarks/replay_update.py`.

It runs in its own environment and imports nothing of penstock: `benchmarks/replay_update.py` asks it round by round.
"""

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from benchmarks.peers.answers import answer

ROWS = 100_000
ALGORITHMS: dict[str, tuple[type[OffPolicyAlgorithm], str]] = {
    "sac": (SAC, "Pendulum-v1"),
    "td3": (TD3, "Pendulum-v1"),
    "dqn": (DQN, "CartPole-v1"),
}


def filled(algo: str, hidden: list[int], batch: int) -> OffPolicyAlgorithm:
    """The algorithm with a full buffer of random rows whose episodes go on, on one thread."""
    algorithm, env = ALGORITHMS[algo]
    made = gymnasium.make(env)
    model = algorithm(
        "MlpPolicy",
        made,
        batch_size=batch,
        buffer_size=ROWS,
        policy_kwargs={"net_arch": hidden},
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    generator, buffer = np.random.default_rng(0), model.replay_buffer
    obs = generator.standard_normal((ROWS + 1, 1, *made.observation_space.shape), np.float32)
    for row in range(ROWS):
        action = generator.integers(0, 2, (1, *made.action_space.shape))
        buffer.add(obs[row], obs[row + 1], action, generator.standard_normal(1), np.zeros(1), [{}])
    return model


def main() -> None:
    """Fill a buffer. Then each call is one gradient step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algo", choices=ALGORITHMS, required=True)
    parser.add_argument("--hidden", type=int, nargs="+", required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = filled(args.algo, args.hidden, args.batch)
    answer({"update": lambda: model.train(gradient_steps=1, batch_size=args.batch)}, {})


if __name__ == "__main__":
    main()
