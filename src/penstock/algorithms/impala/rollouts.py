"""What IMPALA needs of whole rollouts beside the rows of its minibatches. Targets of rows are V-trace's, in the update.

Pure functions on NumPy arrays, for all backends of the update. Imports no torch, runs no network.
"""

from collections.abc import Mapping

from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.ops.returns import advantages
from penstock.types import Array, Arrays

__all__ = ["targets"]


def targets(config: IMPALAConfig, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """``bootstrap`` ``[T, B]``: the value behind each row, as the policy that acted judged it.

    A truncated row's is that of its episode's last observation. If values are normalised, also ``target`` ``[T, B]``:
    the plain returns, whose moments they are normalised by.
    """
    del state
    bootstrap = rollout["value"][1:].copy()
    # Sources that reset in the same step list truncated rows in the side area. Others have the last observation in the
    # next row.
    count = int(rollout["final_count"])
    bootstrap[rollout["final_t"][:count], rollout["final_lane"][:count]] = rollout["final_value"][:count]
    if not config.normalize_value:
        return {"bootstrap": bootstrap}
    if config.clip_reward:
        rollout = {**rollout, "reward": rollout["reward"].clip(-1.0, 1.0)}
    _, target = advantages(rollout, config.gamma, config.gae_lambda)
    return {"bootstrap": bootstrap, "target": target}
