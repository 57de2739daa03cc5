"""SAC of stable-baselines3 with its defaults; runs in its own environment and prints one line `RESULT {json}`.

It imports nothing of penstock: `benchmarks/off_policy.py` and `benchmarks/learning/beside.py` start it.
"""

import argparse
import json
import os
import time


def arguments() -> argparse.Namespace:
    """The setting; its defaults are those of the paper: two layers of 256, minibatches of 256, one update a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--timesteps", type=int, default=3_000)
    parser.add_argument("--min_rows", type=int, default=1_000, help="steps before the first update")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--episodes", type=int, default=0, help="greedy episodes at the end")
    return parser.parse_args()


def main() -> None:
    """Train; print updates per second from the first update to the last, the curve, and how it plays at the end."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import gymnasium
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(args.threads)

    class Clock(BaseCallback):
        """Notes when updates began, and the mean return of the last 100 episodes every 1,000 steps."""

        def __init__(self) -> None:
            super().__init__()
            self.began = 0.0
            self.steps: list[int] = []
            self.seconds: list[float] = []
            self.returns: list[float] = []

        def _on_training_start(self) -> None:
            self.start = time.perf_counter()

        def _on_step(self) -> bool:
            now = time.perf_counter()
            # 100 updates are left out: the first of them allocate.
            if self.num_timesteps == args.min_rows + 100:
                self.began = now
            buffer = self.model.ep_info_buffer
            if self.num_timesteps % 1_000 == 0 and buffer:
                self.steps.append(self.num_timesteps)
                self.seconds.append(round(now - self.start, 2))
                self.returns.append(round(float(np.mean([episode["r"] for episode in buffer])), 2))
            return True

    model = SAC(
        "MlpPolicy",
        Monitor(gymnasium.make(args.env)),
        learning_rate=args.lr,
        learning_starts=args.min_rows,
        device="cpu",
        seed=args.seed,
    )
    clock = Clock()
    model.learn(args.timesteps, callback=clock)
    seconds = time.perf_counter() - clock.began
    result = {
        "system": f"stable-baselines3 {stable_baselines3.__version__}",
        "torch": torch.__version__,
        "threads": args.threads,
        "seed": args.seed,
        "updates": args.timesteps - args.min_rows - 100,
        "seconds": round(seconds, 3),
        "updates_per_s": round((args.timesteps - args.min_rows - 100) / seconds, 1),
        "curve": {"steps": clock.steps, "seconds": clock.seconds, "returns": clock.returns},
    }
    if args.episodes:
        judge = Monitor(gymnasium.make(args.env))
        judge.reset(seed=args.seed + 1_000_000)
        result["mean_return"], result["std_return"] = evaluate_policy(model, judge, n_eval_episodes=args.episodes)
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
