"""Train on rewards of your own: for each step, or over a whole episode.

    python examples/own_reward.py
    penstock train --env CartPole-v1 --reward examples.own_reward:centred        # the same from the command line
    penstock train --env CartPole-v1 --reward examples.own_reward:Calm

The parameters of a reward say what it needs: obs, action, reward, next_obs, terminated, truncated, info. The policy
learns from this reward. Reported returns stay the environment's, so that runs with different rewards can be compared.
"""

import argparse

import penstock


def centred(reward, next_obs):
    """The reward of a step is less, the farther the cart is from the middle."""
    return reward - abs(float(next_obs[0]))


class Calm:
    """The usual reward, and at the end of an episode up to 10 more: more if the cart has changed direction less often.

    Each episode makes an object of its own, so the object remembers only that episode.
    """

    def __init__(self):
        self.actions = []

    def step(self, action, reward):
        """Return the reward of one step."""
        self.actions.append(int(action))
        return reward

    def end(self):
        """Return the reward of the whole episode. It is added to the reward of the last step."""
        changes = sum(one != other for one, other in zip(self.actions, self.actions[1:], strict=False))
        return 10.0 * (1 - changes / len(self.actions))


def main() -> None:
    """Train with each of the two, and say how long the pole stays up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=50_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    for reward in (centred, Calm):
        result = penstock.train(
            {
                "env": "CartPole-v1",
                "reward": reward,
                "num_steps": 128,
                "epochs": 4,
                "lr": 1e-3,
                "timesteps": arguments.timesteps,
                "log_dir": arguments.log_dir,
            }
        )
        print(f"{reward.__name__}: the pole stays up for {result.evaluation.mean_return:.0f} of 500 steps")


if __name__ == "__main__":
    main()
