"""SAC of stable-baselines3 with its defaults; runs in its own environment and prints one line `RESULT {json}`.

One update is due for each environment step, for any number of environments and any interval of learning. The script
imports nothing of penstock: `benchmarks/off_policy.py` and `benchmarks/learning/beside.py` start it.
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
    parser.add_argument("--num_envs", type=int, default=1, help="environments, one after the other in this process")
    parser.add_argument("--train_freq", type=int, default=1, help="steps of each before the updates that they make due")
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
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(args.threads)

    class Clock(BaseCallback):
        """Notes when 100 updates were done, and the mean return of the last 100 episodes every 1,000 steps."""

        def __init__(self) -> None:
            super().__init__()
            self.began = 0.0
            self.updates = 0
            self.steps: list[int] = []
            self.seconds: list[float] = []
            self.returns: list[float] = []

        def _on_training_start(self) -> None:
            self.start = time.perf_counter()

        def _on_step(self) -> bool:
            now = time.perf_counter()
            # The first 100 updates are left out, or as many as come at once, because the first ones allocate memory.
            if self.began == 0.0 and done() >= 100:
                self.began, self.updates = now, done()
            buffer = self.model.ep_info_buffer
            before = self.num_timesteps - args.num_envs
            if self.num_timesteps // 1_000 != before // 1_000 and buffer:
                self.steps.append(self.num_timesteps)
                self.seconds.append(round(now - self.start, 2))
                self.returns.append(round(float(np.mean([episode["r"] for episode in buffer])), 2))
            return True

    model = SAC(
        "MlpPolicy",
        DummyVecEnv([lambda: Monitor(gymnasium.make(args.env))] * args.num_envs),
        learning_rate=args.lr,
        learning_starts=args.min_rows,
        train_freq=args.train_freq,
        gradient_steps=-1,  # as many as steps were taken, of all environments
        device="cpu",
        seed=args.seed,
    )

    def done() -> int:
        """Updates so far; there is no public count of them."""
        return int(model._n_updates)  # noqa: SLF001

    clock = Clock()
    model.learn(args.timesteps, callback=clock)
    seconds, updates = time.perf_counter() - clock.began, done() - clock.updates
    result = {
        "system": f"stable-baselines3 {stable_baselines3.__version__}",
        "torch": torch.__version__,
        **vars(args),
        "updates": updates,
        "seconds": round(seconds, 3),
        "updates_per_s": round(updates / seconds, 1),
        "curve": {"steps": clock.steps, "seconds": clock.seconds, "returns": clock.returns},
    }
    if args.episodes:
        judge = Monitor(gymnasium.make(args.env))
        judge.reset(seed=args.seed + 1_000_000)
        result["mean_return"], result["std_return"] = evaluate_policy(model, judge, n_eval_episodes=args.episodes)
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
