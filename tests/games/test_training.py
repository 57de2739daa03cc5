"""Whole runs that train from games: real processes, real sockets, the games in threads of the test."""

import asyncio
import contextlib
import itertools
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.clients import AsyncGameClient, EpisodeLostError, RefusedError
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.episodes import list_episodes
from penstock.saved_runs.run_folder import RunFolder
from tests.children import killing
from tests.ports import free_port

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "game"))

import cart_game

pytestmark = pytest.mark.usefixtures("shared_templates")

AGENT = "gamecore://tests.games.agents:Cart"


def carts(url: str, count: int):
    """So many carts play until the block ends or the run is gone."""
    return playing(lambda number: cart_game.play(url, number, 30.0), count)


@contextlib.contextmanager
def playing(game, count: int):
    """So many games, made by their numbers, play until the block ends or the run is gone."""

    async def play() -> None:
        tasks = [asyncio.ensure_future(game(number)) for number in range(count)]
        while not ended.is_set() and not all(task.done() for task in tasks):
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(play()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def settings(tmp_path, **more):
    return {
        "env": AGENT,
        "num_envs": 4,
        "num_steps": 16,
        "timesteps": 1500,
        "save_interval": 4,
        "log_dir": str(tmp_path),
        "tcp_port": free_port(),
        **more,
    }


@pytest.mark.parametrize(
    ("algo", "more"),
    [
        ("appo", {}),
        # Eight seconds. Shorter: APPO without a memory above, with one in ``tests/end_to_end/test_lagging.py``.
        pytest.param("appo", {"model": "lstm", "timesteps": 600}, marks=pytest.mark.nightly),
        ("ppo", {"mini_batch_size": 32, "policy_placement": "node"}),
        ("dqn", {"capacity": 2000, "min_rows": 200, "mini_batch_size": 32, "updates_per_step": 0.1, "num_steps": 4}),
    ],
)
def test_algorithms_train_from_games_that_are_fewer_than_the_lanes(tmp_path, algo, more):
    config = settings(tmp_path, algo=algo, **more)
    with carts(f"tcp://127.0.0.1:{config['tcp_port']}", 3):
        result = penstock.train(config, quiet=True)
    assert result.steps >= config["timesteps"]
    assert result.updates > 3
    assert result.evaluation is None
    saved = RunFolder.open(result.run_folder).read_config().run
    assert (saved.sync_mode, saved.num_workers, saved.eval_episodes) == ("non_blocking", 4, 0)
    # The policy acts without the game.
    (action,) = penstock.load_policy(result.run_folder).session().act([[0.0, 0.0, 0.0, 0.0]])
    assert action in {0, 1}


def test_sixteen_games_at_once_are_neither_lost_nor_mixed(tmp_path):
    """Each observation names its game, its episode and its step: what was learned from is what each game has played."""
    config = settings(tmp_path, algo="appo", num_envs=16, timesteps=4000, keep_episodes=4000, port=free_port())
    config["env"] = "gamecore://tests.games.agents:Numbered"
    urls = [f"tcp://127.0.0.1:{config['tcp_port']}", f"http://127.0.0.1:{config['port']}"]
    played: dict[tuple[int, int], list[int]] = {}

    async def play(game: int) -> None:
        async with AsyncGameClient(urls[game % 2], f"game-{game}", patience=30.0) as client:
            for number in itertools.count():
                actions: list[int] = []
                try:
                    await client.start()
                    for step in range(5 + game):
                        actions.append(await client.tick([game, number, step], 100.0 * game + step if step else None))
                    await client.stop([game, number, 5 + game], 100.0 * game + 5 + game, terminated=True)
                except (EpisodeLostError, RefusedError):
                    # The run has ended.
                    return
                played[game, number] = actions

    with playing(play, 16):
        result = penstock.train(config, quiet=True)
    found = {}
    for path in list_episodes(RunFolder(result.run_folder).episodes):
        with np.load(path) as episode:
            if not episode["vanished"]:
                game, number = episode["obs"][0, :2].tolist()
                steps = np.arange(6 + game)
                assert str(episode["session"]) == f"game-{game:g}"
                assert episode["obs"].tolist() == [[game, number, step] for step in steps]
                assert episode["reward"].tolist() == (100.0 * game + steps[1:]).tolist()
                found[game, number] = episode["action"].tolist()
    assert found.items() >= played.items()
    # An episode whose last reply was not read before the run had ended.
    assert len(found) <= len(played) + 16
    assert {game for game, _ in played} == set(range(16))
    assert result.steps >= 4000


def test_a_killed_process_of_games_is_started_again_and_a_run_goes_on_later(tmp_path):
    config = settings(tmp_path, algo="appo", timesteps=3000, port=free_port())
    del config["tcp_port"]
    url = f"http://127.0.0.1:{config['port']}"
    with carts(url, 4), killing(["games"], tmp_path) as killed:
        result = penstock.train(config, quiet=True)
    assert killed == ["games"]
    assert result.steps >= 3000
    with carts(url, 4):
        more = penstock.resume(result.run_folder, timesteps=4000, quiet=True)
    assert more.steps >= 4000


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"sync_mode": "blocking"}, "needs --sync_mode non_blocking: in lock step"),
        ({"num_workers": 2}, "each session of a game is a lane"),
        ({"wrap": "module:Wrapper"}, "--wrap is not for games"),
        ({"reward": "module:reward"}, "--reward is not for games"),
        ({"eval_interval": 5}, "--eval_interval is not for games"),
        ({"eval_episodes": 5}, "--eval_episodes is not for games"),
        ({"port": 8003, "tcp_port": 8003}, "--port and --tcp_port are both 8003; give each a port of its own"),
        ({"env": "gamecore://tests.games.agents:Unborn"}, "agent .*Unborn cannot be made: KeyError: 'a map'"),
        ({"host": "0.0.0.0"}, "--token_file"),
        ({"env": "gamecore://tests.games.agents:Nobody"}, "has no Nobody"),
        ({"env": "gamecore://nothing"}, "names no agent"),
        ({"env": "CartPole-v1"}, "--tcp_port is for games"),
    ],
)
def test_what_does_not_fit_games_is_one_line(tmp_path, more, text):
    with pytest.raises(penstock.UsageError, match=text):
        penstock.train(settings(tmp_path, runtime="inline", **more), quiet=True)


def test_a_port_that_is_taken_ends_the_run_with_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for flag in ("port", "tcp_port"):
            text = f"cannot listen on 127.0.0.1:{port}: Address already in use; give another --{flag}$"
            ports = {"port": None, "tcp_port": None, flag: port}
            with pytest.raises(penstock.ResourceError, match=text):
                penstock.train(settings(tmp_path, algo="appo", **ports), quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_file_of_tokens_that_cannot_be_read_ends_the_run_with_one_line(tmp_path):
    with pytest.raises(penstock.ConfigError, match="--token_file /nowhere/tokens cannot be read: No such file"):
        penstock.train(settings(tmp_path, algo="appo", token_file="/nowhere/tokens"), quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_run_of_games_cannot_be_evaluated(tmp_path):
    config = settings(tmp_path, algo="appo", timesteps=64)
    with carts(f"tcp://127.0.0.1:{config['tcp_port']}", 4):
        result = penstock.train(config, quiet=True)
    with pytest.raises(penstock.ConfigError, match="cannot be asked for episodes"):
        penstock.evaluate(result.run_folder)


def test_a_policy_is_exported_and_verified_by_the_episodes_that_its_games_have_played(tmp_path):
    """Kept episodes stand in for the environment, which nobody can play."""
    config = settings(tmp_path, algo="appo", timesteps=600)
    with carts(f"tcp://127.0.0.1:{config['tcp_port']}", 4):
        without = penstock.train(config, quiet=True)
        result = penstock.train({**config, "keep_episodes": 5}, quiet=True)
    with pytest.raises(penstock.PenstockError, match="has kept no episodes"):
        penstock.export(without.run_folder, tmp_path / "none")
    bundle = penstock.export(result.run_folder, tmp_path / "bundle", observations=64)
    assert penstock.verify(bundle, against=result.run_folder, observations=64).passed
    (action,) = {penstock.load_policy(one)([0.1, 0.0, 0.2, 0.0]) for one in (bundle, result.run_folder)}
    assert action in {0, 1}


def test_a_run_goes_on_from_the_episodes_that_it_has_kept(tmp_path):
    """Nobody can play a game again, so a version is learned and judged from kept episodes alone."""
    learning = {"capacity": 2000, "min_rows": 400, "mini_batch_size": 32, "updates_per_step": 0.1, "num_steps": 4}
    config = settings(tmp_path, algo="dqn", timesteps=600, keep_episodes=200, **learning)
    with carts(f"tcp://127.0.0.1:{config['tcp_port']}", 4):
        run = penstock.train(config, quiet=True).run_folder
    before = list_checkpoints(run)[-1].name
    found = penstock.retrain(run, experience=RunFolder(run).episodes, held_out=0.5, epochs=1.0)
    assert (found.version is None) == (found.after < found.before)
    assert list_checkpoints(run)[-1].name == (found.version or before)
