"""`GamesNode` as a process opens and closes it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.envs.games import SCHEME, game_spaces
from penstock.errors import ConfigError
from penstock.games.node import GamesNode
from penstock.games.settings import GamesSettings
from penstock.types import EnvRecipe


def test_a_node_whose_file_of_tokens_is_gone_says_so_and_can_be_closed(tmp_path: Path) -> None:
    env = EnvRecipe(f"{SCHEME}tests.games.agents:Plain", {}, ())
    spaces, _ = game_spaces(env, (), masks=True)
    file = tmp_path / "tokens"
    node = GamesNode(GamesSettings(env, spaces, "127.0.0.1", 0, 0, str(file), 60.0, tmp_path / "episodes", 0, 60.0))
    ports = SimpleNamespace(shared_object=lambda _, make: make(), stopping=lambda: False)
    with pytest.raises(ConfigError, match=f"--token_file {file} cannot be read: No such file"):
        node.open(ports)
    node.close()
