"""Act without training: a planner that knows the equations of the environment (MPPI).

    python examples/plan_pendulum.py --episodes 10

`pendulum` predicts a step of many samples at once: here by the equations of Pendulum-v1, elsewhere by a simulator that
steps many states, or by a network that has learned to predict.
"""

import argparse

import gymnasium
import numpy as np

import penstock

GRAVITY, MASS, LENGTH, TIME_STEP, MOST_SPEED = 10.0, 1.0, 1.0, 0.05, 8.0


def pendulum(obs, action):
    """One step of Pendulum-v1: observations ``[n, 3]``, torques ``[n, 1]``."""
    angle, speed, torque = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2], action[:, 0]
    reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
    pull = 3.0 * GRAVITY / (2.0 * LENGTH) * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
    speed = np.clip(speed + pull * TIME_STEP, -MOST_SPEED, MOST_SPEED)
    angle = angle + speed * TIME_STEP
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1), reward, np.zeros(len(obs), np.bool_)


def played(seed):
    """The return of one episode."""
    env = gymnasium.make("Pendulum-v1")
    planner = penstock.MPPI(pendulum, env.action_space, seed=seed)
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(planner(obs))
        total, ended = total + float(reward), terminated or truncated
    env.close()
    return total


def main():
    """Play some episodes and print their mean return."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10)
    arguments = parser.parse_args()
    found = [played(seed) for seed in range(arguments.episodes)]
    print(f"mean return {np.mean(found):.1f} over {len(found)} episodes, nothing was trained")


if __name__ == "__main__":
    main()
