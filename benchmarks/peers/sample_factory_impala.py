"""Sample Factory on Pong with one pass over each batch; prints one line `RESULT {json}`.

It runs in its own environment and imports nothing of penstock: `benchmarks/impala.py` and `benchmarks/pong_hour.py`
start it beside penstock's runs. Its environments are EnvPool's. One worker has two halves of the lanes: it steps one
half while the actions of the other half are computed. The network is its own for Atari. Advantages are generalised
estimates: version 2.1.1 ends with an error with V-trace and no memory ("no attribute 'advantages'").
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sample_factory_ppo import Clock, make_env

EVERY_S = 10.0
"""Seconds between two points of the learning curve."""


def arguments() -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pong-v5")
    parser.add_argument("--num_envs", type=int, default=32)
    parser.add_argument("--num_steps", type=int, default=20)
    parser.add_argument("--mini_batch_size", type=int, default=320)
    parser.add_argument("--lr", type=float, default=2.5e-4)
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of training that are not measured")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds that are")
    return parser.parse_args()


def flags(args: argparse.Namespace, folder: str) -> list[str]:
    """Sample Factory's own command line."""
    return [
        "--algo=APPO",
        f"--env={args.env}",
        "--seed=0",
        f"--train_dir={folder}",
        "--experiment=impala",
        "--device=cpu",
        "--use_rnn=False",
        "--recurrence=1",
        "--with_vtrace=False",
        "--encoder_conv_architecture=convnet_atari",
        "--encoder_conv_mlp_layers",
        "512",
        "--nonlinearity=relu",
        "--obs_scale=255.0",
        "--normalize_input=False",
        "--actor_critic_share_weights=True",
        f"--learning_rate={args.lr}",
        "--gamma=0.99",
        "--exploration_loss_coeff=0.01",
        "--max_policy_lag=100000",
        "--save_every_sec=1000",
        "--num_workers=1",
        "--num_envs_per_worker=2",
        "--worker_num_splits=2",
        "--batched_sampling=True",
        f"--rollout={args.num_steps}",
        f"--batch_size={args.mini_batch_size}",
        f"--num_batches_per_epoch={args.num_envs * args.num_steps // args.mini_batch_size}",
        "--num_epochs=1",
    ]


def main() -> None:
    """Train, leave the first seconds out, print steps per second."""
    args = arguments()
    # The process of its worker makes the environments, one pool for each half.
    os.environ |= {"AGENTS": str(args.num_envs // 2), "KIND": "envpool", "SEED": "0"}
    register_env(args.env, make_env)
    clock = Clock(args.warm + args.seconds, None)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        parser, _ = parse_sf_args(flags(args, folder))
        _, runner = make_runner(parse_full_cfg(parser, flags(args, folder)))
        runner.register_observer(clock)
        if runner.init() != ExperimentStatus.SUCCESS:
            raise SystemExit("Sample Factory did not start")
        runner.run()
    steps, seconds = clock.steps_per_s(args.warm)
    result = {
        "system": "Sample Factory 2.1.1",
        "torch": torch.__version__,
        "steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_s": round(steps / seconds, 1),
        "curve": clock.curve(EVERY_S),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
