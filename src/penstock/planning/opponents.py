"""What a run settles if opponents play the agents that do not learn. Opens no opponent."""

from dataclasses import replace

from penstock.config.opponents import RANDOM, SELF, named_runs, settled
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.metrics.episode_metrics import ALL_SCORES, SCORE

__all__ = ["with_scores"]


def with_scores(config: Config, profile: EnvProfile) -> tuple[Config, tuple[str, ...]]:
    """The config with the scores against its opponents as episode metrics, and lines for its display.

    With `SELF` it also keeps the checkpoints that are opponents. Without opponents it is unchanged.

    Raises:
        ConfigError: the environment is a game that connects to the run; or there are too many metrics.
    """
    run = config.run
    if not run.opponents:
        return config, ()
    if profile.kind == "game":
        raise ConfigError(f"--opponents play the agents of one environment, and {profile.name} is a game that connects")
    labels = [name for name in (SELF, RANDOM) if name in run.opponents]
    if SELF in run.opponents and RANDOM not in labels:
        # It plays until there is a version.
        labels.append(RANDOM)
    labels += [named.label for named in named_runs(run.opponents)]
    # A resume may have other opponents than the config that it found.
    own = [name for name in run.episode_metrics or () if not name.startswith(SCORE)]
    metrics = (*own, ALL_SCORES, *(f"{SCORE}{label}" for label in labels))
    changed = replace(run, opponents=settled(run.opponents), episode_metrics=metrics)
    if SELF not in run.opponents or run.keep_every:
        return replace(config, run=changed), ()
    told = f"--opponents {SELF} keeps every checkpoint (--keep_every {run.save_interval}): each is an opponent"
    return replace(config, run=replace(changed, keep_every=run.save_interval)), (told,)
