"""The settings of a run are those of its groups."""

from penstock.config.fields import fields_of
from penstock.config.schema import GROUPS, RunConfig


def test_each_setting_stands_in_one_group():
    assert [field for group in GROUPS for field in fields_of(group)] == list(fields_of(RunConfig))


def test_the_groups_stand_in_the_order_of_the_help():
    names = [field.name for field in fields_of(RunConfig)]
    assert names[:6] == ["env", "env_args", "wrap", "reward", "algo", "num_envs"]
    assert names[-4:] == ["keep_episodes", "trace", "max_restarts", "stall_timeout"]


def test_each_group_has_a_title_of_its_own():
    assert len({group.title for group in GROUPS}) == len(GROUPS) == 12
