"""Train on an environment that steps many lanes at once: any `gymnasium.vector.VectorEnv`.

    python examples/vector_environment.py
    penstock train --env CartPole-v1 --vector_env True --num_envs 64 --num_steps 128      # one that Gymnasium ships

A factory with a parameter `num_envs` is called once in each worker, with the worker's number of lanes. penstock reads
from `metadata["autoreset_mode"]` how episodes are reset. If it is DISABLED, as here, penstock resets the ended lanes,
each with a seed of its own. So a run does not depend on the number of workers, and a resume goes on in the middle of
all episodes (docs/restoring-episodes.md).
"""

import argparse

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import penstock


class Points(gymnasium.vector.VectorEnv):
    """Points in a plane. The action pushes a point; the reward is for being near the origin. It is all NumPy."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.places = np.zeros((num_envs, 2), np.float32)
        self.steps = np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, options=None):
        """Reset the lanes of ``options["reset_mask"]``, or all. ``seed`` is a list with one seed for each lane."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        for lane in np.flatnonzero(mask):
            random = np.random.default_rng(None if seed is None else seed[lane])
            self.places[lane] = random.uniform(-1, 1, 2)
        self.steps[mask] = 0
        return self.places.copy(), {}

    def step(self, actions):
        """Step all lanes at once. The clock cuts episodes after 25 steps."""
        self.places += 0.2 * np.clip(actions, -1, 1)
        self.steps += 1
        rewards = -np.linalg.norm(self.places, axis=1)
        return self.places.copy(), rewards, np.zeros(self.num_envs, np.bool_), self.steps >= 25, {}


def main() -> None:
    """Train, and ask where the policy pushes a point in the upper right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=100_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    agent = penstock.ParallelPPO(
        Points, num_envs=32, num_steps=50, mini_batch_size=160, lr=1e-3, gamma=0.9, log_dir=arguments.log_dir
    )
    result = agent.train(total_timesteps=arguments.timesteps)
    print(f"mean return {result.evaluation.mean_return:.1f}")
    print(f"from (0.5, 0.5) the policy pushes by {agent.policy(np.array([0.5, 0.5], np.float32))}")


if __name__ == "__main__":
    main()
