r"""Train several agents of one environment, which share one policy: any `ParallelEnv` of PettingZoo.

    pip install 'penstock[pettingzoo]'
    python examples/many_agents.py
    penstock train --env pettingzoo:examples.many_agents:Rendezvous --num_envs 24       # the same: 8 environments of 3
    penstock train --env pettingzoo:examples.many_agents:Rendezvous --num_envs 24 \
        --env_args '{"with_state": true}' --critic_obs state        # the critic also sees `state()`, and no walker does

Each agent is a lane. Three walkers want to meet. A walker whose battery is empty leaves before the others; nothing is
learned from its lane until the next episode begins.
"""

import argparse
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

import penstock

STEPS = 25


class Rendezvous(ParallelEnv):
    """A walker sees where the others are, seen from its own place. All are paid alike, for standing close together."""

    def __init__(self):
        self.metadata = {"name": "rendezvous"}
        self.possible_agents = ["ann", "ben", "cas"]

    def observation_space(self, agent):
        """Two numbers for each of the others."""
        return Box(-np.inf, np.inf, (4,), np.float32)

    def action_space(self, agent):
        """A step in the plane."""
        return Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, seed=None, options=None):
        """Start anywhere, with batteries for 15 to 25 steps."""
        random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.places = {agent: random.uniform(-1, 1, 2) for agent in self.agents}
        self.batteries = {agent: int(random.integers(15, STEPS + 1)) for agent in self.agents}
        self.steps = 0
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        """Move all walkers. An empty battery terminates one of them; the cut after 25 steps truncates the others."""
        moved = list(self.agents)
        for agent in moved:
            self.places[agent] = self.places[agent] + 0.2 * np.clip(actions[agent], -1, 1)
        self.steps += 1
        spread = np.mean([np.linalg.norm(place - self.middle()) for place in self.places.values()])
        empty = {agent: self.batteries[agent] == self.steps for agent in moved}
        cut = {agent: self.steps >= STEPS and not empty[agent] for agent in moved}
        self.agents = [agent for agent in moved if not empty[agent] and not cut[agent]]
        observed = {agent: seen for agent, seen in self.observe().items() if agent in moved}
        return observed, dict.fromkeys(moved, -float(spread)), empty, cut, {agent: {} for agent in moved}

    def state(self):
        """All places, and what is left of the batteries, which no walker sees."""
        left = [self.batteries[agent] - self.steps for agent in self.possible_agents]
        return np.concatenate([*self.places.values(), np.array(left) / STEPS])

    def middle(self):
        """The place between all walkers."""
        return np.mean(list(self.places.values()), axis=0)

    def observe(self):
        """What each walker sees. One that has left stands still."""
        return {
            agent: np.concatenate([self.places[other] - place for other in self.places if other != agent]).astype("f4")
            for agent, place in self.places.items()
        }


def main() -> None:
    """Train, and ask where a walker goes that sees both others on its right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=100_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    settings = {
        # By its name, as on the command line. Python finds this file in the folder of the script.
        "env": f"pettingzoo:{Path(__file__).stem}:Rendezvous",
        # Lanes: 8 environments of 3 agents.
        "num_envs": 24,
        "num_steps": 64,
        "mini_batch_size": 256,
        "lr": 1e-3,
        "gamma": 0.9,
    }
    result = penstock.train({**settings, "timesteps": arguments.timesteps, "log_dir": arguments.log_dir})
    print(f"mean return of a walker {result.evaluation.mean_return:.2f}")
    print(f"with both others at (1, 0) it goes by {result.policy(np.array([1, 0, 1, 0], np.float32))}")


if __name__ == "__main__":
    main()
