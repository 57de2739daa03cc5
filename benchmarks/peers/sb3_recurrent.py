"""Recurrent PPO of sb3-contrib; runs in its own environment and prints one line `RESULT {json}`.

It imports nothing of penstock: `benchmarks/recurrent.py` starts it beside penstock's run. The environment hides the
velocities of CartPole-v1. Actor and critic have an LSTM each, which is the peer's default, or share one.
"""

import argparse
import json
import os
import time


def arguments() -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_envs", type=int, default=64)
    parser.add_argument("--num_steps", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--mini_batch_size", type=int, default=2048)
    parser.add_argument("--memory_size", type=int, default=64)
    parser.add_argument("--shared", action="store_true", help="one LSTM for actor and critic")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--updates", type=int, default=4, help="batches that are measured, after one that is not")
    return parser.parse_args()


def main() -> None:
    """Train, leave the first batch out, print steps per second."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import sb3_contrib
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv
    from stateless_cartpole import make_env

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

    env = make_vec_env(make_env, n_envs=args.num_envs, seed=args.seed, vec_env_cls=DummyVecEnv)
    model = RecurrentPPO(
        "MlpLstmPolicy",
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
        policy_kwargs={
            "net_arch": [64, 64],
            "lstm_hidden_size": args.memory_size,
            "shared_lstm": args.shared,
            "enable_critic_lstm": not args.shared,
        },
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
        "system": f"sb3-contrib {sb3_contrib.__version__}",
        "torch": torch.__version__,
        "shared": args.shared,
        "threads": args.threads,
        "steps": args.updates * batch,
        "seconds": round(seconds, 3),
        "steps_per_s": round(args.updates * batch / seconds, 1),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
