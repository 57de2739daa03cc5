"""What a run settles and says if opponents play the agents that do not learn. Opens no opponent."""

import math
from collections.abc import Iterator
from dataclasses import replace

from penstock.config.opponents import SCORE, SELF, score_names, settled
from penstock.config.schema import RunConfig
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.nodes.contract import CHECKPOINT_SLOTS

__all__ = ["version_delay", "version_interval", "with_scores"]


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
    # The config may have been written with other opponents.
    own = [name for name in run.episode_metrics or () if not name.startswith(SCORE)]
    metrics = (*own, *score_names(run.opponents))
    changed = replace(run, opponents=settled(run.opponents), episode_metrics=metrics)
    if SELF not in run.opponents:
        return replace(config, run=changed), ()
    told = []
    if not run.keep_every:
        changed = replace(changed, keep_every=run.save_interval)
        told = [f"--opponents {SELF} keeps every checkpoint (--keep_every {run.save_interval}): each is an opponent"]
    rows = run.num_envs * config.algorithm.num_steps
    return replace(config, run=changed), (*told, *_of_versions(changed, rows))


def version_interval(run: RunConfig) -> int:
    """A version's update is a multiple of this. ``keep_every`` is not 0."""
    return math.lcm(run.save_interval, run.keep_every)


def version_delay(run: RunConfig) -> int:
    """For how many updates a new version waits: that of update u may play once the learner is past update u + this."""
    return CHECKPOINT_SLOTS * run.save_interval


def _of_versions(run: RunConfig, rows: int) -> Iterator[str]:
    """Lines on which checkpoints are versions, when the first one plays, and on settings that measure opponents, too.

    Args:
        run: settled.
        rows: of a batch.
    """
    every = version_interval(run)
    if every != run.save_interval:
        why = f"a multiple of --save_interval {run.save_interval} and --keep_every {run.keep_every}"
        yield f"--opponents {SELF}: the checkpoint of each update that is {why} is an opponent: every {every} updates"
    first = every + version_delay(run) + 1
    until = "opponents move at random" if run.opponents == (SELF,) else "the others play"
    line = f"--opponents {SELF}: the first version plays after {first:,} updates; until then {until}"
    # Rows of absent agents count as no steps, so there may be more updates.
    updates = math.ceil(run.timesteps / rows)
    if updates <= first:
        line += f"; --timesteps {run.timesteps} may be only {updates:,} updates: give a smaller --save_interval"
    yield line
    for name in ("early_stop", "target_return"):
        if getattr(run, name) != getattr(RunConfig, name):
            why = "returns fall when stronger versions begin to play"
            yield f"--{name} {getattr(run, name)} measures the opponents as well: with --opponents {SELF} {why}"
