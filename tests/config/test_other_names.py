"""Names of settings in other libraries lead to ours. None of them is a setting."""

import dataclasses

import pytest

from penstock.algorithm_lookup import find_algorithm
from penstock.config.fields import field_table
from penstock.config.flags import config_from_arguments
from penstock.config.other_names import OTHER_NAMES, unknown
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping, from_toml
from penstock.errors import ConfigError
from penstock.registry import ALGORITHMS


def test_each_name_leads_to_a_setting_and_is_none():
    own = {field.name for name in ALGORITHMS.names() for field in dataclasses.fields(find_algorithm(name).config)}
    own |= field_table(RunConfig).keys()
    assert {name for names in OTHER_NAMES.values() for name in names} <= own
    assert not OTHER_NAMES.keys() & own


@pytest.mark.parametrize(
    ("algo", "theirs", "says"),
    [
        ("ppo", "learning_rate", "; it is {}lr here"),
        ("ppo", "total_timesteps", "; it is {}timesteps here"),
        ("ppo", "dtype", "; it is {}precision here"),
        ("ppo", "steps_per_worker", "; it is {}num_steps here"),
        ("ppo", "ent_coef", "; it is {}entropy_coef here"),
        ("sac", "ent_coef", "; it is {}temperature here"),
        ("ppo", "n_steps", "; it is {}num_steps here"),
        ("dqn", "n_steps", "; it is {}n_step here"),
        ("sac", "buffer_size", "; it is {}capacity here"),
        ("ppo", "tau", " for this algorithm: it is a setting of sac, dsac, dsact, td3 or ddpg"),
    ],
)
def test_a_flag_and_a_setting_in_python_lead_to_ours(algo: str, theirs: str, says: str):
    with pytest.raises(ConfigError) as of_flag:
        config_from_arguments(["--algo", algo, f"--{theirs}", "1"])
    assert str(of_flag.value) == f"unknown flag --{theirs}{says.format('--')}"
    with pytest.raises(ConfigError) as of_setting:
        from_mapping({"algo": algo, theirs: 1})
    assert str(of_setting.value) == f"unknown setting {theirs}{says.format('')}"


def test_a_setting_in_a_file_leads_to_ours(tmp_path):
    (tmp_path / "run.toml").write_text("learning_rate = 0.1\n")
    with pytest.raises(ConfigError, match=r"^unknown setting learning_rate in .*run\.toml; it is lr here$"):
        from_toml(tmp_path / "run.toml")


def test_a_name_that_the_algorithm_has_nothing_for_is_answered_with_those_like_it():
    assert unknown("buffer_size", ["bufer_sizes", "lr"]) == "; did you mean bufer_sizes?"
    assert unknown("lrr", ["gamma"], ["lr"], "--") == "; did you mean --lr?"
