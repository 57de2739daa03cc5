"""EnvPool's environments, as ``envpool:<task>``: one pool for each environment process, stepped as one batch.

A pool steps its lanes in C++. It resets an ended lane on the next step, from random streams of its own, so its episodes
cannot be restored. https://envpool.readthedocs.io
"""

import importlib.util
import warnings
from typing import Any

from penstock.errors import EnvError, nearest
from penstock.seeding import episode_seed
from penstock.types import EnvFactory

__all__ = ["pool_of"]


def pool_of(task: str) -> EnvFactory:
    """A factory of pools of a task's environments.

    Args:
        task: a name in ``envpool.list_all_envs()``.

    Raises:
        EnvError: EnvPool is not installed, or it has no such task.
    """
    if importlib.util.find_spec("envpool") is None:
        raise EnvError(f"environment envpool:{task} needs EnvPool: pip install 'penstock[envpool]'")
    import envpool  # noqa: PLC0415  # takes 0.8 s

    tasks = envpool.list_all_envs()
    if task not in tasks:
        raise EnvError(f"EnvPool has no task {task!r}{nearest(task, tasks)}")

    def make_lanes(num_envs: int, seed: int, **arguments: Any) -> Any:
        # Each lane gets a mixed seed. With EnvPool's own, seed + lane, the run with the next seed would share most of
        # them.
        seeds = [episode_seed(seed, lane, 0) for lane in range(num_envs)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a pool reads the spaces from C++ in float64, and Gymnasium warns of it
            # One thread, because environment processes already run in parallel.
            pool = envpool.make_gymnasium(task, num_envs=num_envs, num_threads=1, seed=seeds, **arguments)
            _ = pool.observation_space, pool.action_space
        return pool

    return make_lanes
