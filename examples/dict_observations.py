"""Train on observations with several parts: a Dict of Boxes and Discretes, nested as you like.

    python examples/dict_observations.py

Each part is stored under its own name (`obs.dials`, `obs.which`); a Discrete part enters the network as one-hot.
"""

import argparse

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

import penstock


class Dials(gymnasium.Env):
    """Shows three dials and which of them counts. Reward 1 for saying whether that dial is positive."""

    observation_space = Dict({"dials": Box(-1.0, 1.0, (3,), np.float32), "which": Discrete(3)})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Start a round of 16 questions."""
        super().reset(seed=seed)
        self.asked = 0
        return self._ask(), {}

    def step(self, action):
        """Answer, and get the next question; the last answer ends the round."""
        reward = float(action == self.answer)
        self.asked += 1
        return self._ask(), reward, self.asked == 16, False, {}

    def _ask(self):
        dials = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        which = int(self.np_random.integers(3))
        self.answer = int(dials[which] > 0)
        return {"dials": dials, "which": which}


def main() -> None:
    """Train, then ask one question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    agent = penstock.ParallelPPO(Dials, num_envs=8, num_steps=256, lr=1e-3, gamma=0.0, log_dir=arguments.log_dir)
    result = agent.train(total_timesteps=arguments.timesteps)
    print(f"right answers of 16: {result.evaluation.mean_return:.1f}")
    question = {"dials": np.array([-0.9, 0.9, -0.9], np.float32), "which": 1}
    print(f"is dial 1 of {question['dials']} positive? {'yes' if agent.policy(question) else 'no'}")


if __name__ == "__main__":
    main()
