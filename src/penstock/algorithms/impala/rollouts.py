"""What IMPALA needs of whole rollouts beside the rows of its minibatches. Targets of rows are V-trace's, in the update.

Pure functions on NumPy arrays, for all backends of the update. Imports no torch, runs no network.
"""

from collections.abc import Mapping

from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.ops.returns import advantages
from penstock.types import Array, Arrays

__all__ = ["targets"]


def targets(config: IMPALAConfig, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """What the policy that acted thinks of each row: ``[T, B]`` each.

    - ``bootstrap``: the value behind the row. A truncated row's is that of its episode's last observation.
    - ``size``: of the row's advantage, by generalised estimation, without V-trace.
    - ``target``, if values are normalised: the plain returns. Their moments normalise the values.
    """
    del state
    bootstrap = rollout["value"][1:].copy()
    # Sources that reset in the same step list truncated rows in the side area. Others have the last observation in the
    # next row.
    count = int(rollout["final_count"])
    bootstrap[rollout["final_t"][:count], rollout["final_lane"][:count]] = rollout["final_value"][:count]
    if config.clip_reward:
        rollout = {**rollout, "reward": rollout["reward"].clip(-1.0, 1.0)}
    advantage, target = advantages(rollout, config.gamma, config.gae_lambda)
    found = {"bootstrap": bootstrap, "size": abs(advantage)}
    return {**found, "target": target} if config.normalize_value else found
