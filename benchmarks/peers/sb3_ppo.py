"""PPO of stable-baselines3 at the published setting; runs in its own environment and prints one line `RESULT {json}`.

It imports nothing of penstock: `benchmarks/end_to_end.py` starts it beside penstock's run.
"""

import argparse
import json
import os
import time


def arguments() -> argparse.Namespace:
    """The setting; its defaults are the published one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--num_envs", type=int, default=8)
    parser.add_argument("--num_steps", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--mini_batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads; 1 is the peer's best on 2 cores")
    parser.add_argument("--updates", type=int, default=4, help="batches that are measured, after one that is not")
    return parser.parse_args()


def main() -> None:
    """Train, leave the first batch out, print steps per second."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import stable_baselines3
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(args.threads)

    class Clock(BaseCallback):
        """Notes the time at each start of a rollout: one batch collected and learned lies between two of them."""

        def __init__(self) -> None:
            super().__init__()
            self.starts: list[float] = []

        def _on_rollout_start(self) -> None:
            self.starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    env = make_vec_env(args.env, n_envs=args.num_envs, seed=args.seed, vec_env_cls=DummyVecEnv)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=args.num_steps,
        batch_size=args.mini_batch_size,
        n_epochs=args.epochs,
        learning_rate=args.lr,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        vf_coef=0.5,
        ent_coef=0.01,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=args.seed,
        verbose=0,
    )
    clock = Clock()
    batch = args.num_envs * args.num_steps
    model.learn((args.updates + 1) * batch, callback=clock)
    seconds = time.perf_counter() - clock.starts[1]
    env.close()
    result = {
        "system": f"stable-baselines3 {stable_baselines3.__version__}",
        "torch": torch.__version__,
        "threads": args.threads,
        "steps": args.updates * batch,
        "seconds": round(seconds, 3),
        "steps_per_s": round(args.updates * batch / seconds, 1),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
