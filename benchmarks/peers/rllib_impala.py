"""IMPALA of RLlib on Pong; prints one line `RESULT {json}`.

It runs in its own environment and imports nothing of penstock: `benchmarks/impala.py` starts it beside penstock's run.
The network is that of the Atari papers, under both heads; coefficients are RLlib's own for Pong.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "RAY_DISABLE_METRICS": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import ale_py
import gymnasium
import ray
import torch
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env


def arguments() -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="ale_py:ALE/Pong-v5")
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--num_envs", type=int, default=32)
    parser.add_argument("--num_steps", type=int, default=20)
    parser.add_argument("--mini_batch_size", type=int, default=320)
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of training that are not measured")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds that are")
    return parser.parse_args()


def make_env(config: Any) -> gymnasium.Env:
    """One game, with four grey frames of 84 x 84."""
    gymnasium.register_envs(ale_py)
    game = gymnasium.make(config["game"], frameskip=1, repeat_action_probability=0.25)
    return wrap_atari_for_new_api_stack(game, dim=84, frameskip=4, framestack=4)


def config_of(args: argparse.Namespace) -> IMPALAConfig:
    """RLlib's own words for the setting."""
    module = DefaultModelConfig(
        conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]],
        conv_activation="relu",
        head_fcnet_hiddens=[512],
        head_fcnet_activation="relu",
        vf_share_layers=True,
    )
    return (
        IMPALAConfig()
        .environment("pong", env_config={"game": args.env})
        .env_runners(
            num_env_runners=args.num_workers,
            num_envs_per_env_runner=args.num_envs // args.num_workers,
            rollout_fragment_length=args.num_steps,
        )
        .training(
            train_batch_size_per_learner=args.mini_batch_size, grad_clip=40.0, lr=5e-4, vf_loss_coeff=0.5, gamma=0.99
        )
        .rl_module(model_config=module)
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
        .reporting(min_time_s_per_iteration=2)
    )


def main() -> None:
    """Train, leave the first seconds out, print steps that were learned from per second."""
    args = arguments()
    torch.set_num_threads(1)
    register_env("pong", make_env)
    with contextlib.redirect_stdout(sys.stderr):
        # One core for each runner and one for the learner, or RLlib waits for more than there are.
        ray.init(num_cpus=args.num_workers + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        algorithm = config_of(args).build_algo()
        marks: list[tuple[float, int]] = []
        while not marks or marks[-1][0] - marks[0][0] < args.warm + args.seconds:
            learners = algorithm.train().get("learners", {})
            learned = learners.get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0)
            if learned:
                marks.append((time.perf_counter(), int(learned)))
        algorithm.stop()
        ray.shutdown()
    kept = [mark for mark in marks if mark[0] - marks[0][0] >= args.warm]
    (begun, before), (ended, after) = kept[0], kept[-1]
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
