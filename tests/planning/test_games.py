"""What a run settles if its environments are games."""

import pytest

from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.planning.games import where, with_games
from tests.replay.world import SPACES


def test_an_address_of_ipv6_is_in_brackets() -> None:
    run = RunConfig(host="::1", port=8000, tcp_port=8001)
    assert where(run) == "http://[::1]:8000 and tcp://[::1]:8001"


def test_a_table_on_other_machines_is_not_for_games() -> None:
    settings = {"env": "gamecore://a:B", "algo": "apex", "learners": 2, "distributed": True, "table_on": "learners"}
    profile = EnvProfile("gamecore://a:B", SPACES, same_step=False, restorable=False, kind="game")
    with pytest.raises(ConfigError, match=r"^--table_on is not for games: games connect to the launcher, whose"):
        with_games(from_mapping(settings), profile, "off_policy")
