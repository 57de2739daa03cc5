"""Which rules, paces and compressions go together."""

from dataclasses import replace

import pytest

from penstock.config.agreement import Agreement, agreement, learners_text, sync_mode_of
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError

TWO = RunConfig(env="X", learners=2, sync_mode="blocking")
APART = replace(TWO, sync_mode="non_blocking")


def test_auto_is_what_suits_where_rows_come_from() -> None:
    together = Agreement("allreduce", "sync", "none", 2)
    assert agreement(TWO, from_table=False) == agreement(TWO, from_table=True) == together
    assert agreement(APART, from_table=False) == together
    assert agreement(APART, from_table=True) == Agreement("parameter_server", "async", "none", 2)
    assert agreement(replace(APART, exchange="allreduce"), from_table=True).exchange == "allreduce"
    assert agreement(replace(TWO, exchange="parameter_server"), from_table=False).pace == "sync"
    assert agreement(replace(APART, exchange="parameter_server"), from_table=False).pace == "async"
    assert agreement(replace(APART, exchange="hogwild"), from_table=False).pace == "async"


def test_what_goes_together_is_taken() -> None:
    assert agreement(replace(TWO, compress="topk:0.01"), from_table=False).compress == "topk:0.01"
    assert agreement(replace(APART, pace="lag"), from_table=True).pace == "lag"
    served = replace(APART, exchange="parameter_server", compress="topk:0.01")
    assert agreement(replace(served, pace="lag"), from_table=False) == Agreement(
        "parameter_server", "lag", "topk:0.01", 2
    )
    assert agreement(replace(served, pace="sync"), from_table=False).pace == "sync"
    assert agreement(replace(served, compress="int8"), from_table=True).compress == "int8"


def test_learners_that_wait_for_no_other_overlap_with_collecting_unless_told_otherwise() -> None:
    auto = replace(TWO, sync_mode="auto")
    served = replace(auto, exchange="parameter_server")
    assert [sync_mode_of(replace(served, pace=pace), "blocking") for pace in ("auto", "async", "lag", "sync")] == [
        "non_blocking",
        "non_blocking",
        "non_blocking",
        "blocking",
    ]
    assert sync_mode_of(replace(auto, exchange="hogwild"), "blocking") == "non_blocking"
    assert sync_mode_of(auto, "blocking") == "blocking"
    assert sync_mode_of(auto, "non_blocking") == "non_blocking"


def test_learners_are_apart_unless_they_wait_for_each_other() -> None:
    served = replace(APART, exchange="parameter_server")
    assert agreement(served, from_table=False).apart
    assert not agreement(replace(served, pace="sync"), from_table=False).apart
    assert not agreement(replace(APART, learners=1), from_table=True).apart


@pytest.mark.parametrize(
    ("run", "from_table", "why"),
    [
        (replace(TWO, learners=1, exchange="allreduce"), True, "--exchange allreduce .* has one learner"),
        (
            replace(TWO, learners=1, exchange="gossip", compress="int8"),
            False,
            "--exchange gossip .*; give --learners 2 or more, or --exchange auto --compress none$",
        ),
        (
            replace(TWO, learners=1, compress="int8"),
            True,
            "--compress int8 .* give --learners 2 or more, or --compress none$",
        ),
        (
            replace(APART, runtime="ray", exchange="hogwild"),
            True,
            "hogwild is for one machine: .* no network can replace; give --exchange parameter_server, or --runtime",
        ),
        (replace(TWO, runtime="ray", exchange="hogwild"), True, "hogwild .*; give --exchange allreduce, or --runtime"),
        (replace(TWO, exchange="parameter_server"), True, "needs --sync_mode non_blocking: "),
        (replace(TWO, exchange="parameter_server", pace="sync"), True, "non_blocking, and no --pace sync: "),
        (replace(TWO, exchange="parameter_server", pace="lag"), False, "lag .* blocking: .* try --sync_mode non_block"),
        (replace(TWO, exchange="hogwild"), False, "--exchange hogwild needs --sync_mode non_blocking"),
        (replace(APART, exchange="hogwild", pace="lag"), False, "--pace lag .* wait for nothing, .*; try --pace async"),
        (
            replace(APART, exchange="hogwild", compress="int8"),
            False,
            "--compress int8 .* hogwild sends none; give --compress none$",
        ),
        (
            replace(TWO, pace="lag"),
            True,
            "--pace lag does not go with --exchange allreduce: .* try --exchange parameter_server or --pace sync$",
        ),
        (
            replace(APART, runtime="ray", pace="async"),
            False,
            "--pace async does not go with --exchange allreduce: .* try --exchange parameter_server or --pace sync$",
        ),
        (
            replace(APART, runtime="ray", pace="lag"),
            True,
            "allreduce: .* try --exchange parameter_server or --pace sync$",
        ),
        (
            replace(APART, pace="sync"),
            True,
            "--pace sync does not go with --exchange parameter_server: .* try --pace async",
        ),
        (
            replace(TWO, exchange="gossip", compress="int8"),
            False,
            "--compress int8 .* gossip sends states; give --compress none$",
        ),
        (replace(TWO, exchange="gossip"), True, "--exchange gossip is for algorithms that learn from a stream"),
        (replace(TWO, exchange="gossip", pace="async"), False, "--pace async .* all learners meet in rounds"),
        (replace(TWO, compress="topk:7"), True, "up to 0.5, not 7: .* more bytes"),
        (
            replace(TWO, runtime="ray", learners=1, table_on="learners"),
            True,
            "--table_on learners is for several learners .*; give --learners 2 or more, or --table_on launcher$",
        ),
        (
            replace(APART, runtime="ray", exchange="parameter_server", table_on="learners"),
            True,
            "--table_on learners .* has a shard of the table then; give --exchange allreduce, or --table_on launcher$",
        ),
        (replace(APART, pace="lag", max_policy_lag=3), True, "--max_policy_lag 3 .* give --max_policy_lag 4 or more"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(run: RunConfig, from_table: bool, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        agreement(run, from_table=from_table)


def test_several_learners_are_told_of_in_words_and_one_learner_is_not() -> None:
    served = replace(APART, exchange="parameter_server", pace="lag")
    assert learners_text(replace(served, compress="topk:0.01")) == "2 learners, parameter_server, lag 10, topk:0.01"
    assert learners_text(replace(TWO, exchange="gossip", pace="sync")) == "2 learners, gossip, sync"
    # The config of a run that was begun before there were rules.
    assert learners_text(TWO) == "2 learners"
    assert learners_text(replace(TWO, learners=1)) == ""
