"""Asynchronous PPO of Sample Factory; runs in its own environment and prints one line `RESULT {json}`.

It imports nothing of penstock: `benchmarks/throughput.py` and `benchmarks/appo.py` start it beside penstock's runs. The
environments are those of EnvPool, or Python's. The defaults are the best setting that was found for it on two cores.
One worker has two halves of 64 environments: it steps one half while the actions of the other half are computed.
Batches have 16,384 rows.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import envpool
import gymnasium
import numpy as np
import torch
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


class Pool(gymnasium.Env):
    """One EnvPool, in the form of Sample Factory's environments with many agents. Ended episodes begin anew at once.

    Args:
        task: EnvPool's name of the environment.
        agents: how many.
        seed: of the first of them.
    """

    def __init__(self, task: str, agents: int, seed: int) -> None:
        self._pool = envpool.make_gymnasium(task, num_envs=agents, num_threads=1, seed=seed)
        self.num_agents = agents
        self.observation_space = self._pool.observation_space
        self.action_space = self._pool.action_space

    def reset(self, **_seed_and_options: Any) -> tuple[np.ndarray, dict]:
        """Begin every episode; a pool is seeded when it is made."""
        return self._pool.reset()[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step every agent."""
        given = np.asarray(action).reshape(self.num_agents, *self.action_space.shape)
        obs, reward, terminated, truncated, _ = self._pool.step(given.astype(self.action_space.dtype))
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            obs = obs.copy()
            obs[ended] = self._pool.reset(ended)[0]
        return obs, reward, terminated, truncated, {}

    def render(self) -> None:
        """Nothing is shown."""


class Several(gymnasium.Env):
    """Environments of Python, in the form of Sample Factory's with many agents. Ended episodes begin anew at once.

    Args:
        task: Gymnasium's name of the environment.
        agents: how many.
        seed: of the first of them.
    """

    def __init__(self, task: str, agents: int, seed: int) -> None:
        self._envs = [gymnasium.make(task) for _ in range(agents)]
        self._seed = seed
        self.num_agents = agents
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space

    def reset(self, **_seed_and_options: Any) -> tuple[np.ndarray, dict]:
        """Begin every episode."""
        return np.stack([env.reset(seed=self._seed + at)[0] for at, env in enumerate(self._envs)]), {}

    def step(self, action: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step every agent."""
        steps = [env.step(one) for env, one in zip(self._envs, np.asarray(action), strict=True)]
        obs, reward, terminated, truncated = (np.stack(part) for part in list(zip(*steps, strict=True))[:4])
        for at in np.flatnonzero(terminated | truncated):
            obs[at] = self._envs[at].reset()[0]
        return obs, reward.astype(np.float32), terminated, truncated, {}

    def render(self) -> None:
        """Nothing is shown."""


def make_env(name: str, _config: Any, env_config: Any, _render_mode: Any) -> gymnasium.Env:
    """Make the environment of one of Sample Factory's workers, with its share of the agents."""
    agents = int(os.environ["AGENTS"])
    make = Several if os.environ["KIND"] == "python" else Pool
    return make(name, agents, int(os.environ["SEED"]) + (env_config.env_id * agents if env_config else 0))


class Clock(AlgoObserver):
    """Notes the number of learned steps at each iteration, and ends the run after enough seconds or steps."""

    def __init__(self, seconds: float, until: int | None) -> None:
        self.marks: list[tuple[float, int]] = []
        self.returns: list[float | None] = []
        """After each iteration: the mean return of the last 100 training episodes."""
        self._seconds = seconds
        self._until = until

    def on_training_step(self, runner: Runner, _training_iteration: int) -> None:
        """One iteration was learned."""
        self.marks.append((time.perf_counter(), int(runner.env_steps.get(0, 0))))
        returns = runner.policy_avg_stats.get("reward", [[]])[0]
        self.returns.append(float(np.mean(list(returns)[-100:])) if len(returns) else None)
        seconds, steps = self.marks[-1][0] - self.marks[0][0], self.marks[-1][1]
        if seconds > self._seconds if self._until is None else steps >= self._until:
            runner.cfg.train_for_seconds = -1  # its own way to end before its time

    def curve(self, every_s: float) -> list[tuple[float, int, float]]:
        """Seconds since the first iteration, steps and mean return, once in so many seconds."""
        found: list[tuple[float, int, float]] = []
        for (at, steps), mean_return in zip(self.marks, self.returns, strict=True):
            seconds = at - self.marks[0][0]
            if mean_return is not None and (not found or seconds >= found[-1][0] + every_s):
                found.append((round(seconds, 1), steps, round(mean_return, 2)))
        return found

    def steps_per_s(self, warm: float) -> tuple[int, float]:
        """Steps and seconds after the first ``warm`` seconds of training."""
        kept = [mark for mark in self.marks if mark[0] - self.marks[0][0] >= warm]
        return kept[-1][1] - kept[0][1], kept[-1][0] - kept[0][0]


def arguments() -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--agents", type=int, default=64, help="environments of a half")
    parser.add_argument("--num_steps", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--mini_batch_size", type=int, default=2048)
    parser.add_argument("--minibatches", type=int, default=8, help="minibatches of a batch")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--shared", action="store_true", help="one trunk for actor and critic, instead of two networks")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds of training that are not measured")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds that are")
    parser.add_argument("--until", type=int, help="end after so many steps, whatever the seconds")
    parser.add_argument("--python", action="store_true", help="environments of Python in place of EnvPool")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def flags(args: argparse.Namespace, folder: str) -> list[str]:
    """Sample Factory's own command line."""
    return [
        "--algo=APPO",
        f"--env={args.env}",
        f"--seed={args.seed}",
        f"--train_dir={folder}",
        "--experiment=throughput",
        "--device=cpu",
        "--use_rnn=False",
        "--recurrence=1",
        "--with_vtrace=False",
        "--encoder_mlp_layers",
        "64",
        "64",
        "--nonlinearity=tanh",
        f"--actor_critic_share_weights={args.shared}",
        f"--learning_rate={args.lr}",
        "--exploration_loss_coeff=0.01",
        "--max_policy_lag=100000",
        "--save_every_sec=1000",
        "--num_workers=1",
        "--num_envs_per_worker=2",
        "--worker_num_splits=2",
        "--batched_sampling=True",
        f"--rollout={args.num_steps}",
        f"--batch_size={args.mini_batch_size}",
        f"--num_batches_per_epoch={args.minibatches}",
        f"--num_epochs={args.epochs}",
    ]


def main() -> None:
    """Train, leave the first seconds out, print steps per second."""
    args = arguments()
    # The processes of its workers make the environments.
    os.environ |= {"AGENTS": str(args.agents), "KIND": "python" if args.python else "envpool", "SEED": str(args.seed)}
    register_env(args.env, make_env)
    clock = Clock(args.warm + args.seconds, args.until)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        parser, _ = parse_sf_args(flags(args, folder))
        config, runner = make_runner(parse_full_cfg(parser, flags(args, folder)))
        runner.register_observer(clock)
        if runner.init() != ExperimentStatus.SUCCESS:
            raise SystemExit("Sample Factory did not start")
        runner.run()
    steps, seconds = clock.steps_per_s(args.warm if args.until is None else 0.0)
    result = {
        "system": "Sample Factory 2.1.1",
        "torch": torch.__version__,
        "envpool": envpool.__version__,
        "separate_networks": not config.actor_critic_share_weights,
        "steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_s": round(steps / seconds, 1),
        "mean_return": clock.returns[-1],
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
