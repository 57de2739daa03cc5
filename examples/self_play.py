r"""Learn a game of two against earlier versions of the same policy: rock, paper, scissors with unequal stakes.

    pip install 'penstock[pettingzoo]'
    python examples/self_play.py                            # against all versions: near the equilibrium
    python examples/self_play.py --opponent_rule latest     # against the newest version: round and round
    penstock train --env pettingzoo:examples.self_play:Cycle --opponents self --save_interval 4

Rock against scissors counts double. So the only mix that nobody can exploit is rock 1/4, paper 1/2, scissors 1/4.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import penstock

# What the row wins against the column.
STAKES = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]])
EQUILIBRIUM = np.array([0.25, 0.5, 0.25])
SETTINGS = {
    "save_interval": 4,
    "num_envs": 8,
    "num_steps": 32,
    "mini_batch_size": 256,
    "epochs": 1,
    # A network with hardly anything to learn, in plain steps: what goes round is the game, not the optimizer.
    "hidden_sizes": [4],
    "optimizer": "sgd",
    "momentum": 0.0,
    "lr": 0.5,
    "max_grad_norm": 10.0,
    "value_coef": 0.1,
    # A mixed policy stays mixed only if that is worth something.
    "entropy_coef": 0.4,
    # What is greedy says nothing about a mix.
    "eval_episodes": 0,
}


class Cycle(ParallelEnv):
    """Both show rock, paper or scissors, once. There is nothing to see."""

    def __init__(self):
        self.metadata = {"name": "cycle"}
        self.possible_agents = ["ann", "ben"]

    def observation_space(self, agent):
        """One number, which is always 1."""
        return Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        """Rock, paper, scissors."""
        return Discrete(3)

    def reset(self, seed=None, options=None):
        """Begin a round."""
        self.agents = list(self.possible_agents)
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        """Both show, and the round is over."""
        ann, ben = actions["ann"], actions["ben"]
        rewards = {"ann": float(STAKES[ann, ben]), "ben": float(STAKES[ben, ann])}
        self.agents = []
        over, cut = dict.fromkeys(actions, True), dict.fromkeys(actions, False)
        return self.observe(), rewards, over, cut, {agent: {} for agent in actions}

    def observe(self):
        """The same for both, always."""
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}


def mix(run: Path, checkpoint: str | None = None) -> np.ndarray:
    """How often a version shows rock, paper and scissors, of 20,000 times."""
    bundle = penstock.export(run, run / "bundle", checkpoint=checkpoint, noise=True, observations=1)
    session = onnxruntime.InferenceSession(bundle / "policy.onnx")
    count = 20_000
    noise = np.random.default_rng(0).gumbel(size=(count, 3)).astype(np.float32)
    inputs = {"obs": np.ones((count, 1), np.float32), "noise": noise, "explore": np.ones(count, np.float32)}
    (action,) = session.run(["action"], inputs)
    return np.bincount(action, minlength=3) / count


def exploited(shown: np.ndarray) -> float:
    """What the best answer to this mix wins a round; 0 at the equilibrium."""
    return float((STAKES @ shown).max())


def main() -> None:
    """Train, and say how far the policy is from the equilibrium."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--opponent_rule", default="uniform")
    parser.add_argument("--timesteps", type=int, default=40_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    settings = {
        # By its name, as on the command line. Python finds this file in the folder of the script.
        "env": f"pettingzoo:{Path(__file__).stem}:Cycle",
        "opponents": ["self"],
        "opponent_rule": arguments.opponent_rule,
        **SETTINGS,
    }
    result = penstock.train({**settings, "timesteps": arguments.timesteps, "log_dir": arguments.log_dir})
    shown = mix(result.run_folder)
    print(f"rock, paper, scissors: {shown.round(2)}; the best answer wins {exploited(shown):.2f} a round")


if __name__ == "__main__":
    main()
