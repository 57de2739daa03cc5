"""What it takes to play greedy episodes of a run: in an evaluation during it, at its end, or later. Builds no node."""

from penstock.algorithm_lookup import find_algorithm
from penstock.config.episode_metrics import info_names
from penstock.config.schema import RunConfig
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.evaluation import PlaySettings
from penstock.policies import PolicyGraph
from penstock.types import BackendSpec, EnvReference, Spaces

__all__ = ["play_settings"]


def play_settings(
    run: RunConfig,
    env: EnvReference,
    spaces: Spaces,
    policy: PolicyGraph,
    backend: BackendSpec,
    *,
    lanes: int,
    seed: int,
) -> PlaySettings:
    """The settings of a player.

    Args:
        run: the settings of the run.
        env: mostly that of the run.
        spaces: of the environment.
        policy: what plays.
        backend: runs the policy.
        lanes: number of episodes that are played side by side.
        seed: of the episodes.
    """
    return PlaySettings(
        env=env,
        vector=run.vector_env,
        ignore_obs=run.ignore_obs or (),
        spaces=spaces,
        policy=policy,
        backend=backend,
        lanes=lanes,
        seed=seed,
        bad_numbers=run.bad_numbers,
        work_limit_s=WORK_LIMIT_S,
        masks=find_algorithm(run.algo).masks,
        episode_metrics=info_names(run.episode_metrics),
    )
