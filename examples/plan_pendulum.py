"""Act without training: a planner that knows the equations of the environment (MPPI).

    python examples/plan_pendulum.py --episodes 10

With `--keep FOLDER` it also writes its episodes as files, from which a policy learns:

    penstock train --algo td3 --env Pendulum-v1 --demonstrations FOLDER --imitation 2.5

`pendulum` predicts a step of many samples at once: here by the equations of Pendulum-v1, elsewhere by a simulator that
steps many states, or by a network that has learned to predict.
"""

import argparse
from pathlib import Path

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
    """One episode: its observations ``[n + 1, 3]``, actions ``[n, 1]`` and rewards ``[n]``."""
    env = gymnasium.make("Pendulum-v1")
    planner = penstock.MPPI(pendulum, env.action_space, seed=seed)
    seen, actions, rewards, ended = [env.reset(seed=seed)[0]], [], [], False
    while not ended:
        actions.append(planner(seen[-1]))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        seen.append(obs)
        rewards.append(reward)
        ended = terminated or truncated
    env.close()
    return np.array(seen, np.float32), np.array(actions, np.float32), np.array(rewards, np.float32)


def keep(folder, number, episode):
    """Write an episode in the form that `--demonstrations` and `penstock retrain` read."""
    folder.mkdir(parents=True, exist_ok=True)
    obs, action, reward = episode
    more = {"terminated": np.array(False), "vanished": np.array(False), "session": np.array("planner")}
    np.savez(folder / f"episode-{number:08d}.npz", obs=obs, action=action, reward=reward, **more)


def main():
    """Play some episodes and print their mean return."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="write the episodes into this folder")
    arguments = parser.parse_args()
    episodes = [played(seed) for seed in range(arguments.episodes)]
    for number, episode in enumerate(episodes, 1):
        if arguments.keep is not None:
            keep(arguments.keep, number, episode)
    found = [reward.sum() for _, _, reward in episodes]
    print(f"mean return {np.mean(found):.1f} over {len(found)} episodes, nothing was trained")


if __name__ == "__main__":
    main()
