"""How several learners agree: which rules, paces and compressions go together. Pure functions of a run's settings."""

from typing import NamedTuple

from penstock.config.fields import AUTO
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.registry import RUNTIMES, compression_of

__all__ = [
    "HANDED_ON",
    "HOGWILD",
    "SERVED",
    "Agreement",
    "agreement",
    "agreement_flags",
    "learners_text",
    "shards_of",
    "sync_mode_of",
]

SERVED = "parameter_server"
HOGWILD = "hogwild"
NO_WAITING = "async"
"""The pace of learners that wait for nothing."""
HANDED_ON = 2
"""Gradients that each learner may have handed on before the first of them is applied."""


class Agreement(NamedTuple):
    """How learners agree. Nothing is ``auto`` any more."""

    exchange: str
    pace: str
    compress: str
    learners: int

    @property
    def apart(self) -> bool:
        """True if no learner waits for another one: each learns from minibatches of its own."""
        return self.learners > 1 and self.pace != "sync"


def sync_mode_of(run: RunConfig, natural: str) -> str:
    """The sync mode that ``auto`` stands for.

    Args:
        run: settings of the run.
        natural: the mode that suits the algorithm.
    """
    apart = run.exchange == HOGWILD or (run.exchange == SERVED and run.pace != "sync")
    return "non_blocking" if run.learners > 1 and apart else natural


def agreement_flags(run: RunConfig) -> list[str]:
    """The given flags that say how several learners agree, with their values."""
    return [
        f"--{name} {getattr(run, name)}"
        for name in ("exchange", "pace", "compress")
        if getattr(run, name) != getattr(RunConfig, name)
    ]


def learners_text(run: RunConfig) -> str:
    """Several learners in words: ``2 learners, parameter_server, lag 10, topk:0.01``. Empty for one learner.

    Args:
        run: settings of the run, whose rule and pace are decided.
    """
    if run.learners == 1:
        return ""
    pace = f"lag {run.max_policy_lag}" if run.pace == "lag" else run.pace
    words = [word for word in (run.exchange, pace, run.compress) if word not in {AUTO, "none"}]
    return ", ".join([f"{run.learners} learners", *words])


def agreement(run: RunConfig, *, from_table: bool) -> Agreement:
    """What ``--exchange``, ``--pace`` and ``--compress`` mean for this run, whose ``sync_mode`` is settled.

    Args:
        run: settings of the run.
        from_table: the algorithm learns from a table.

    Raises:
        ConfigError: they do not go together, or not with this run.
    """
    given = agreement_flags(run)
    if run.learners == 1 and given:
        # Left out is no advice: a resume has them from the run.
        names = [flag.split()[0] for flag in given]
        without = " ".join(f"{name} {getattr(RunConfig, name.removeprefix('--'))}" for name in names)
        raise ConfigError(
            f"{given[0]} is for several learners, and this run has one learner; give --learners 2 or more, or {without}"
        )
    overlapping, machines = run.sync_mode == "non_blocking", RUNTIMES[run.runtime].machines
    # On several machines learners that step together have a shard of the table each. The others each need a copy of it.
    natural = SERVED if from_table and overlapping and not machines else "allreduce"
    exchange = natural if run.exchange == AUTO else run.exchange
    if machines and exchange == HOGWILD:
        instead = "allreduce" if from_table and not overlapping else SERVED
        raise ConfigError(
            f"--exchange {exchange} is for one machine: its learners add to one vector in shared memory, which no "
            f"network can replace; give --exchange {instead}, or --runtime local"
        )
    if exchange == "gossip" and from_table:
        raise ConfigError("--exchange gossip is for algorithms that learn from a stream: a table has no batches to end")
    paces = _paces(exchange, from_table=from_table, overlapping=overlapping)
    if not paces:
        other = run.pace not in {AUTO, *_paces(exchange, from_table=from_table, overlapping=True)}
        leave = f", and no --pace {run.pace}" if other else ""
        raise ConfigError(
            f"--exchange {exchange} needs --sync_mode non_blocking{leave}: in lock step learners wait for each other"
        )
    pace = paces[0] if run.pace == AUTO else run.pace
    if pace not in paces:
        raise ConfigError(f"--pace {pace} does not go with {_why_not(run, exchange, pace, paces)}")
    if pace == "lag" and run.max_policy_lag < (least := HANDED_ON * run.learners):
        raise ConfigError(
            f"--pace lag with --max_policy_lag {run.max_policy_lag} would drop gradients all the time: "
            f"{HANDED_ON} of each of {run.learners} learners may wait to be applied; give --max_policy_lag {least} or "
            "more, or --pace async"
        )
    if run.compress != "none":
        compression_of(run.compress)
        uncompressed = f"give --compress {RunConfig.compress}"
        if exchange == "gossip":
            raise ConfigError(f"--compress {run.compress} is for gradients, and gossip sends states; {uncompressed}")
        if exchange == HOGWILD:
            raise ConfigError(
                f"--compress {run.compress} is for gradients that are sent, and hogwild sends none; {uncompressed}"
            )
    agreed = Agreement(exchange, pace, run.compress, run.learners)
    if run.table_on != RunConfig.table_on and (run.learners == 1 or agreed.apart):
        give = "--learners 2 or more" if run.learners == 1 else "--exchange allreduce"
        raise ConfigError(
            f"--table_on {run.table_on} is for several learners that take each step together, as each of them has a "
            f"shard of the table then; give {give}, or --table_on {RunConfig.table_on}"
        )
    return agreed


def shards_of(run: RunConfig) -> int:
    """Shards of the table of this run, whose ``sync_mode`` is settled: one for each learner, if they step together.

    Raises:
        ConfigError: as `agreement`.
    """
    return 1 if agreement(run, from_table=True).apart else run.learners


def _paces(exchange: str, *, from_table: bool, overlapping: bool) -> tuple[str, ...]:
    """The paces that go with a rule; the first one is what ``auto`` stands for."""
    if exchange == SERVED:
        apart = (NO_WAITING, "lag") if overlapping else ()
        return apart if from_table else (*apart, "sync")
    if exchange == HOGWILD:
        return (NO_WAITING,) if overlapping else ()
    return ("sync",)


def _why_not(run: RunConfig, exchange: str, pace: str, paces: tuple[str, ...]) -> str:
    """Why a pace does not go with a rule, and what to type instead."""
    if exchange == SERVED and pace in {NO_WAITING, "lag"}:
        return f"--sync_mode {run.sync_mode}: in lock step learners wait for each other; try --sync_mode non_blocking"
    why = {
        SERVED: "learners of a table do not wait for each other",
        HOGWILD: "learners wait for nothing, and always take the latest parameters",
    }.get(exchange, "all learners meet in rounds")
    tries = [f"--pace {one}" for one in paces]
    if exchange in {"allreduce", "gossip"}:
        tries = [f"--exchange {SERVED}", *tries]
    return f"--exchange {exchange}: {why}; try {' or '.join(tries)}"
