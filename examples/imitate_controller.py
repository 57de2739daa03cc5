"""Imitate a controller from its recordings, then go on by rewards.

    python examples/imitate_controller.py

1. A controller that looks at the speed of the pole alone plays CartPole-v1. Its episodes are written as files. A log of
   a machine, or of a person, can be written in the same way.
2. `--algo bc` imitates these episodes. It sees no reward.
3. PPO begins with this policy, and becomes better than the controller.
"""

import argparse
import tempfile

import gymnasium
import numpy as np

import penstock

ENV = "CartPole-v1"


def controller(obs):
    """Push the cart to the side to which the pole falls. So the pole stays up for some 200 of 500 steps."""
    return int(obs[3] > 0.0)


def played(episodes):
    """Episodes of the controller, one at a time, with the arrays that `penstock.write_episodes` takes."""
    env = gymnasium.make(ENV)
    for number in range(1, episodes + 1):
        seen, actions, rewards, ended = [env.reset(seed=number)[0]], [], [], False
        while not ended:
            actions.append(controller(seen[-1]))
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            seen.append(obs)
            rewards.append(reward)
            ended = terminated or truncated
        yield {
            "obs": np.array(seen, np.float32),  # one more than actions: what was seen after the last one
            "action": np.array(actions, np.int64),
            "reward": np.array(rewards, np.float32),  # imitation does not look at it
            "terminated": terminated,
        }
    env.close()


def main() -> None:
    """Record, imitate, go on; and say how long the pole stays up each time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--log_dir", default="logs")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        shown = list(played(20))
        penstock.write_episodes(folder, shown)
        steps = np.mean([len(episode["action"]) for episode in shown])
        print(f"controller: the pole stays up for {steps:.0f} of 500 steps")
        clone = penstock.train(
            {
                "algo": "bc",
                "env": ENV,
                "demonstrations": folder,
                "label_smoothing": 0.2,  # else it is as sure as the controller, and PPO would not explore
                "timesteps": min(5_000, arguments.timesteps),
                "log_dir": arguments.log_dir,
            }
        )
    print(f"imitated: the pole stays up for {clone.evaluation.mean_return:.0f} of 500 steps")
    better = penstock.train(
        {
            "algo": "ppo",
            "env": ENV,
            "begin_with": str(clone.run_folder),
            "num_steps": 128,
            "timesteps": arguments.timesteps,
            "log_dir": arguments.log_dir,
        }
    )
    print(f"gone on by rewards: the pole stays up for {better.evaluation.mean_return:.0f} of 500 steps")


if __name__ == "__main__":
    main()
