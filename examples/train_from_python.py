"""Train from Python instead of the command line: one config, one call, one result.

    python examples/train_from_python.py

Setting names are those of `penstock train --help`. A setting that is left out has the default that the help shows.
"""

import argparse

import gymnasium
import numpy as np

import penstock


def main() -> None:
    """Train on CartPole, load the policy from the run folder, play one episode with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    config = penstock.from_mapping(
        {
            "env": "CartPole-v1",
            "num_envs": 8,
            "num_steps": 128,
            "lr": 1e-3,
            "timesteps": arguments.timesteps,
            "log_dir": arguments.log_dir,
            "seed": 1,
        }
    )
    print(penstock.draw(config))  # print the processes of the run, and the data that flows between them

    result = penstock.train(config)
    if result.evaluation is None:
        return  # It was interrupted by Ctrl-C: `penstock resume` goes on.
    print(f"mean return {result.evaluation.mean_return:.1f} after {result.steps} steps")

    policy = penstock.load_policy(result.run_folder)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(int(np.asarray(policy(obs))))
        total, ended = total + float(reward), terminated or truncated
    print(f"one greedy episode: {total:.0f}")
    print(f"to go on: penstock resume {result.run_folder} --timesteps {2 * arguments.timesteps}")


if __name__ == "__main__":
    main()
