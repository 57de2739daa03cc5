"""Train on an environment that was written for the older `gym` API, without changes.

    python examples/older_gym_api.py

`step` gives four values, `reset` only the observation, `seed` is a method of its own. Neither `gym` nor a wrapper is
needed; spaces of `gym` work as well as those of Gymnasium.
"""

import argparse

import numpy as np
from gymnasium.spaces import Box, Discrete

import penstock


class Balance:
    """A ball on a beam that tilts left or right. Reward 1 for each step that the ball stays on it."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)
    time_limit = 200

    def seed(self, seed=None):
        """Set the seed, as in the older API. Newer environments have ``reset(seed=...)``."""
        self.random = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        """Return only the first observation."""
        self.ball = self.random.uniform(-0.1, 0.1, 2)
        self.steps = 0
        return self.ball.astype(np.float32)

    def step(self, action):
        """Return four values. ``info`` says whether the clock ended the episode and not a fall, as in ``gym``."""
        position, speed = self.ball
        speed += 0.02 if action == 1 else -0.02
        self.ball = np.array([position + speed, speed + 0.01 * position])
        self.steps += 1
        fallen = abs(self.ball[0]) > 1.0
        late = self.steps >= self.time_limit
        info = {"TimeLimit.truncated": late and not fallen}
        return self.ball.astype(np.float32), 1.0, bool(fallen or late), info


def main() -> None:
    """Train, and say how long the ball stays on the beam."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=40_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    agent = penstock.ParallelPPO(Balance, num_envs=8, num_steps=128, lr=1e-3, log_dir=arguments.log_dir)
    result = agent.train(total_timesteps=arguments.timesteps)
    print(f"the ball stays on the beam for {result.evaluation.mean_length:.0f} of {Balance.time_limit} steps")


if __name__ == "__main__":
    main()
