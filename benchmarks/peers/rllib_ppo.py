"""PPO of RLlib with environments in processes of their own; prints one line `RESULT {json}`.

It runs in its own environment and imports nothing of penstock: `benchmarks/cluster.py` starts it beside penstock's run.
"""

import argparse
import contextlib
import json
import os
import sys
import time

os.environ |= {"OMP_NUM_THREADS": "1", "RAY_DISABLE_METRICS": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def arguments() -> argparse.Namespace:
    """The setting; its defaults are those of `DistributedPPO`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--num_workers", type=int, default=4)
    parser.add_argument("--num_envs", type=int, default=4)
    parser.add_argument("--num_steps", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--mini_batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--updates", type=int, default=4, help="batches that are measured, after one that is not")
    return parser.parse_args()


def config_of(args: argparse.Namespace) -> PPOConfig:
    """RLlib's own words for the setting."""
    module = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    return (
        PPOConfig()
        .environment(args.env)
        .env_runners(
            num_env_runners=args.num_workers,
            num_envs_per_env_runner=args.num_envs // args.num_workers,
            rollout_fragment_length=args.num_steps,
        )
        .training(
            train_batch_size_per_learner=args.num_envs * args.num_steps,
            minibatch_size=args.mini_batch_size,
            num_epochs=args.epochs,
            lr=args.lr,
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            vf_loss_coeff=0.5,
            entropy_coeff=0.01,
            grad_clip=0.5,
            use_kl_loss=False,
            vf_clip_param=1e9,
        )
        .rl_module(model_config=module)
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
        .reporting(min_time_s_per_iteration=0)
    )


def main() -> None:
    """Train, leave the first batch out, print steps per second."""
    args = arguments()
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        # One core for each runner and one for the learner, or RLlib waits for more than there are.
        ray.init(num_cpus=args.num_workers + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        algorithm = config_of(args).build_algo()
        marks = []
        for _ in range(args.updates + 1):
            sampled = algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"]
            marks.append((time.perf_counter(), int(sampled)))
        algorithm.stop()
        ray.shutdown()
    (begun, before), (ended, after) = marks[0], marks[-1]
    result = {
        "system": f"RLlib {ray.__version__}",
        "torch": torch.__version__,
        "steps": after - before,
        "seconds": round(ended - begun, 3),
        "steps_per_s": round((after - before) / (ended - begun), 1),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
