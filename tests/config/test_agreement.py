"""Which rules, paces and compressions go together."""

from dataclasses import replace

import pytest

from penstock.config.agreement import Agreement, agreement
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError

TWO = RunConfig(env="X", learners=2, sync_mode="blocking")
APART = replace(TWO, sync_mode="non_blocking")


def test_auto_is_what_suits_where_rows_come_from() -> None:
    assert agreement(TWO, from_table=False) == agreement(TWO, from_table=True) == Agreement("allreduce", "sync", "none")
    assert agreement(APART, from_table=False) == Agreement("allreduce", "sync", "none")
    assert agreement(APART, from_table=True) == Agreement("parameter_server", "async", "none")
    assert agreement(replace(APART, exchange="allreduce"), from_table=True).exchange == "allreduce"


def test_what_goes_together_is_taken() -> None:
    assert agreement(replace(TWO, compress="topk:0.01"), from_table=False).compress == "topk:0.01"
    assert agreement(replace(APART, pace="lag"), from_table=True).pace == "lag"


@pytest.mark.parametrize(
    ("run", "from_table", "why"),
    [
        (replace(TWO, learners=1, exchange="allreduce"), True, "--exchange allreduce .* there is one"),
        (replace(TWO, learners=1, compress="int8"), True, "--compress int8 .* there is one"),
        (replace(APART, exchange="parameter_server"), False, "the learners of ppo share each batch"),
        (replace(TWO, exchange="parameter_server"), True, "needs --sync_mode non_blocking"),
        (replace(TWO, pace="lag"), True, "--pace lag does not go with --exchange allreduce: .* try sync"),
        (replace(APART, pace="sync"), True, "--pace sync does not go with --exchange parameter_server"),
        (replace(APART, compress="int8"), True, "--compress int8 .* needs --exchange allreduce"),
        (replace(TWO, exchange="gossip", compress="int8"), False, "--compress int8 .* needs --exchange allreduce"),
        (replace(TWO, exchange="gossip"), True, "--exchange gossip is for algorithms that learn from a stream"),
        (replace(TWO, exchange="gossip", pace="async"), False, "--pace async .* all learners meet in rounds"),
        (replace(TWO, compress="topk:7"), True, "up to 1"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(run: RunConfig, from_table: bool, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        agreement(run, from_table=from_table)
