"""Train on an environment of your own: a class in a file, nothing to register.

    python examples/own_environment.py
    penstock train --env examples.own_environment:Thermostat --timesteps 50000        # the same from the command line

A room cools towards the weather outside; the heater is off, low or high. Best is to hold it at 20 degrees.
"""

import argparse

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import penstock


class Thermostat(gymnasium.Env):
    """Observes how far the room and the weather are from 20 degrees. The reward is for keeping the room there."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        """Start somewhere between 10 and 30 degrees. ``seed`` seeds ``np_random``."""
        super().reset(seed=seed)
        self.room, self.weather = self.np_random.uniform([10, 0], [30, 15])
        self.minutes = 0
        return self._observe(), {}

    def step(self, action):
        """One minute. The task has no end of its own, so the cut after two hours is a truncation."""
        self.room += 0.1 * (self.weather - self.room) + 1.5 * action
        self.minutes += 1
        reward = -abs(self.room - 20.0) / 10
        return self._observe(), reward, False, self.minutes >= 120, {}

    def _observe(self):
        return np.array([self.room - 20, self.weather - 20], np.float32) / 10


def main() -> None:
    """Train, then ask the policy what it would do in a cold room and in a hot one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=50_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    agent = penstock.ParallelPPO(Thermostat, num_envs=8, num_steps=240, lr=1e-3, log_dir=arguments.log_dir)
    result = agent.train(total_timesteps=arguments.timesteps)
    print(f"mean return {result.evaluation.mean_return:.1f}; everything is in {result.run_folder}")
    cold, hot = agent.policy(np.array([[-1.0, -1.5], [1.0, -1.5]], np.float32))
    print(f"heater in a cold room: {cold}, in a hot room: {hot}")


# penstock starts its processes without running this file again, so the guard is only for those who import the class.
if __name__ == "__main__":
    main()
