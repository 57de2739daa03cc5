"""What nodes ask of a cluster is read from short text, JSON or a table, and anything else is one line."""

import pytest

from penstock.config.demands import DEMANDS_EXAMPLE, demands_of
from penstock.config.sources import from_mapping, to_toml, with_changes
from penstock.errors import ConfigError

RAY = {"env": "Pendulum-v1", "runtime": "ray"}


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (DEMANDS_EXAMPLE, {"env": {"cpu": 1}, "learner": {"gpu": 1}}),
        ('{"env": {"CPU": 5e-1, "fast-disk": 2}}', {"env": {"cpu": 0.5, "fast-disk": 2}}),
        ('learner: {"accelerator_type:A100": 0.01}', {"learner": {"accelerator_type:A100": 0.01}}),
        ({"env": {"memory": 4_000_000_000}}, {"env": {"memory": 4e9}}),
        ("policy: {gpu: 0.5, memory: 2e9}", {"policy": {"gpu": 0.5, "memory": 2e9}}),
    ],
)
def test_demands_are_read_and_written_again(value, asked) -> None:
    demands = demands_of(value, "--resources")
    assert demands.asked == asked
    assert demands_of(str(demands), "--resources") == demands


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("env: {cpu}", "cannot be read: env: {cpu} .*; write it as"),
        ("enf: {cpu: 1}", "kind of node enf; there are env, learner, policy; did you mean env"),
        ("env: {cpu: 1}, env: {cpu: 2}", "env is given twice"),
        ("env: {cpu: 1, CPU: 2}", "the resource CPU twice"),
        ("env: {}", "env takes resources with amounts, not {}"),
        ("env: {cpu: 0}", "cpu: 0 for env; give a number of at least 0.0001"),
        ("env: {cpu: NaN}", "cpu: NaN for env"),
        ("env: {cpu: 1e999}", "cpu: inf for env"),
        ("env: {memory: 8GB}", 'read: env: {memory: 8GB}; memory is a number of bytes; write it as "env: {memory: 80'),
        ("env: {memory: 8_000_000_000}", "8_000_000_000}; memory is a number of bytes; write it as"),
        ("env: {memory}", "env: {memory}; memory is a number of bytes; write it as"),
        ('{"env": {"object_store_memory": 8GiB}}', "8GiB}}; memory is a number of bytes; write it as"),
        ("env: {memory: 2e9}, env: {cpu: 2}", r"\(env is given twice\); write it as"),
        ('env: {memory: "1 GB"}', 'memory: 1 GB for env; give a number of bytes, as in "env: {memory: 8000000000}"$'),
        ("learner: {gpu: 1.5}", "gpu: 1.5 for learner; Ray shares out parts of one, or whole ones"),
        ([], "names no kind of node"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(value, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        demands_of(value, "--resources")
    assert "\n" not in str(refusal.value)


def test_only_a_cluster_is_asked() -> None:
    with pytest.raises(ConfigError, match="--resources is what nodes ask a Ray cluster for"):
        from_mapping({**RAY, "runtime": "local", "resources": DEMANDS_EXAMPLE})


@pytest.mark.parametrize("placement", ["auto", "env"])
def test_policy_nodes_ask_for_something_only_where_there_are_any(placement: str) -> None:
    asking = {**RAY, "resources": "env: {cpu: 1}, policy: {cpu: 1}"}
    with pytest.raises(ConfigError, match=r"^--resources says what policy nodes ask for, .*; give --policy_placement"):
        from_mapping({**asking, "policy_placement": placement})
    with pytest.raises(ConfigError, match=r"^--min_workers asks Ray for machines without .*; leave policy out of "):
        from_mapping({**asking, "policy_placement": "node", "min_workers": 1})
    assert from_mapping({**asking, "policy_placement": "node"}).run.resources is not None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"min_workers": 2}, "counts processes with room for what they ask for; give --resources as well"),
        ({"min_workers": 2, "resources": "learner: {cpu: 1}"}, "give --resources as well, such as"),
        ({"min_workers": 5, "num_workers": 4, "resources": "env: {cpu: 1}"}, "5 is more than --num_workers 4"),
    ],
)
def test_a_minimum_is_of_processes_that_ask_for_something(settings, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^--min_workers .*{says}"):
        from_mapping({**RAY, **settings})


def test_a_resume_may_ask_for_something_else_and_leave_the_cluster() -> None:
    config = from_mapping({**RAY, "address": "auto", "resources": DEMANDS_EXAMPLE})
    assert "[resources.learner]\ngpu = 1.0" in to_toml(config)
    changed = with_changes(config, {"resources": "env: {cpu: 2}"}).run
    assert changed.resources is not None
    assert changed.resources.asked == {"env": {"cpu": 2}}
    left = with_changes(config, {"runtime": "local"})
    assert (left.run.address, left.run.resources) == (None, None)
    assert with_changes(left, {"distributed": True}).run.runtime == "ray"


def test_a_resume_leaves_the_cluster_also_by_the_name_by_which_it_came() -> None:
    joined = from_mapping({"env": "X", "distributed": True, "address": "auto"})
    assert joined.run.runtime == "ray"
    left = with_changes(joined, {"distributed": False}).run
    assert (left.runtime, left.distributed, left.address) == ("local", False, None)
    # The runtime that is named counts, and one that does not change takes nothing with it.
    assert with_changes(joined, {"distributed": False, "runtime": "inline"}).run.runtime == "inline"
    assert with_changes(joined, {"distributed": True}).run.address == "auto"
    alone = from_mapping({"env": "X", "runtime": "inline"})
    assert with_changes(alone, {"distributed": False}).run.runtime == "inline"


def test_a_table_lies_with_its_learners_on_a_cluster_only() -> None:
    sharded = {**RAY, "algo": "sac", "learners": 2, "table_on": "learners"}
    assert from_mapping(sharded).run.table_on == "learners"
    with pytest.raises(
        ConfigError, match="--table_on learners puts the table on machines of a Ray cluster; give --dis"
    ):
        from_mapping({**sharded, "runtime": "local"})
    # A resume that leaves the cluster takes it back.
    assert with_changes(from_mapping(sharded), {"runtime": "local"}).run.table_on == "launcher"
