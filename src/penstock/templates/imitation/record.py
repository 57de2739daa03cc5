"""Records demonstrations: episodes of the operator, one file each.

    python record.py --episodes 20

``penstock train --demonstrations FOLDER`` reads such files, wherever they come from. So recordings of a person, or logs
of a machine, need no operator: give their numbers to `write`.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from crane import Crane, operator

__all__ = ["played", "write"]

Numbers = npt.NDArray[np.float32]


def played(seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """One episode of the operator: observations ``[n + 1, 2]``, actions ``[n, 1]``, rewards ``[n]``.

    Nobody does the same thing twice, so the actions vary a little. From them alone the values of other actions show.
    """
    env, numbers = Crane(), np.random.default_rng(seed)
    seen, actions, rewards, ended = [env.reset(seed=seed)[0]], [], [], False
    while not ended:
        action = operator(seen[-1]) + numbers.normal(0.0, 0.1, 1).astype(np.float32)
        actions.append(np.clip(action, -1.0, 1.0))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        seen.append(obs)
        rewards.append(reward)
        ended = terminated or truncated
    return np.stack(seen), np.stack(actions), np.array(rewards, np.float32)


def write(folder: Path, number: int, obs: Numbers, action: Numbers, reward: Numbers) -> Path:
    """Write one episode of n steps, and return its file.

    Args:
        folder: of the demonstrations.
        number: of the episode, from 1 on.
        obs: ``[n + 1, ...]``: what was seen before each action, and after the last one.
        action: ``[n, ...]``, in the environment's units.
        reward: ``[n]``: what came of each action.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"episode-{number:08d}.npz"
    np.savez(
        file,
        obs=obs,
        action=action,
        reward=reward,
        terminated=False,  # the episode was cut off, so the last state keeps its value
        vanished=False,  # it is whole
        session="operator",
    )
    return file


def main() -> None:
    """Record some episodes, and print what the operator reaches."""
    parser = argparse.ArgumentParser(description="Records episodes of the operator.")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("demonstrations"))
    given = parser.parse_args()
    returns = []
    for number in range(1, given.episodes + 1):
        obs, action, reward = played(seed=number)
        write(given.folder, number, obs, action, reward)
        returns.append(float(reward.sum()))
    print(f"{given.episodes} episodes in {given.folder}; the operator's mean return is {np.mean(returns):.1f}")


if __name__ == "__main__":
    main()
