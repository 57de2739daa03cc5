"""How several learners agree: which rules, paces and compressions go together. Pure functions of a run's settings."""

from typing import NamedTuple

from penstock.config.schema import AUTO, RunConfig
from penstock.errors import ConfigError
from penstock.registry import compression_of

__all__ = ["Agreement", "agreement"]


class Agreement(NamedTuple):
    """How learners agree. Nothing is ``auto`` any more."""

    exchange: str
    pace: str
    compress: str


def agreement(run: RunConfig, *, from_table: bool) -> Agreement:
    """What ``--exchange``, ``--pace`` and ``--compress`` mean for this run, whose ``sync_mode`` is settled.

    Args:
        run: of the run.
        from_table: the algorithm learns from a table.

    Raises:
        ConfigError: they do not go together, or not with this run.
    """
    given = [
        f"--{name} {getattr(run, name)}"
        for name in ("exchange", "pace", "compress")
        if getattr(run, name) != getattr(RunConfig, name)
    ]
    if run.learners == 1 and given:
        raise ConfigError(f"{given[0]} says how several learners agree, and there is one; give --learners as well")
    overlapping = run.sync_mode == "non_blocking"
    natural = "parameter_server" if from_table and overlapping else "allreduce"
    exchange = natural if run.exchange == AUTO else run.exchange
    if exchange == "parameter_server" and not from_table:
        raise ConfigError(
            "--exchange parameter_server is for algorithms that learn from a table (penstock algos) and for a3c: "
            f"the learners of {run.algo} share each batch; try --exchange allreduce"
        )
    if exchange == "parameter_server" and not overlapping:
        raise ConfigError(
            "--exchange parameter_server needs --sync_mode non_blocking: in lock step learners wait for each other"
        )
    if exchange == "gossip" and from_table:
        raise ConfigError("--exchange gossip is for algorithms that learn from a stream: a table has no batches to end")
    paces = {"allreduce": ("sync",), "gossip": ("sync",), "parameter_server": ("async", "lag")}[exchange]
    pace = paces[0] if run.pace == AUTO else run.pace
    if pace not in paces:
        why = "no learner waits for another" if exchange == "parameter_server" else "all learners meet in rounds"
        raise ConfigError(f"--pace {pace} does not go with --exchange {exchange}: {why}; try {' or '.join(paces)}")
    if run.compress != "none":
        if exchange != "allreduce":
            raise ConfigError(f"--compress {run.compress} is for gradients that meet: it needs --exchange allreduce")
        compression_of(run.compress)
    return Agreement(exchange, pace, run.compress)
