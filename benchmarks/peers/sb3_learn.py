"""An algorithm of stable-baselines3 at its own defaults: how well it learns a task. Prints one line `RESULT {json}`.

It runs in its own environment and imports nothing of penstock: `benchmarks/learning/beside.py` starts it. Other scripts
measure how fast stable-baselines3 is.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def arguments() -> argparse.Namespace:
    """What is learned, and for how long: the settings of the algorithm are the peer's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algo", choices=("a2c", "ddpg", "dqn", "ppo", "sac", "td3"), required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--timesteps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--episodes", type=int, default=100, help="greedy episodes at the end")
    return parser.parse_args()


def main() -> None:
    """Train; print the curve, and how the policy plays at the end."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    # For environments that are named by their module, as those of `benchmarks.peers.minatar_games`.
    sys.path.append(str(ROOT))
    import gymnasium
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(args.threads)
    curve: dict[str, list[Any]] = {"steps": [], "seconds": [], "returns": []}

    class Curve(BaseCallback):
        """Notes the mean return of the last 100 episodes every 1,000 steps."""

        def _on_training_start(self) -> None:
            self.start = time.perf_counter()

        def _on_step(self) -> bool:
            buffer = self.model.ep_info_buffer
            if self.num_timesteps % 1_000 == 0 and buffer:
                curve["steps"].append(self.num_timesteps)
                curve["seconds"].append(round(time.perf_counter() - self.start, 2))
                curve["returns"].append(round(float(np.mean([episode["r"] for episode in buffer])), 2))
            return True

    algorithm = {"a2c": A2C, "ddpg": DDPG, "dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3}[args.algo]
    env = Monitor(gymnasium.make(args.env))
    policy = "MultiInputPolicy" if isinstance(env.observation_space, gymnasium.spaces.Dict) else "MlpPolicy"
    model = algorithm(policy, env, device="cpu", seed=args.seed)
    model.learn(args.timesteps, callback=Curve())
    judge = Monitor(gymnasium.make(args.env))
    judge.reset(seed=args.seed + 1_000_000)
    mean, std = evaluate_policy(model, judge, n_eval_episodes=args.episodes)
    result = {
        "system": f"stable-baselines3 {stable_baselines3.__version__}",
        "torch": torch.__version__,
        **vars(args),
        "curve": curve,
        "mean_return": float(mean),
        "std_return": float(std),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
