"""Games of Godot RL Agents, by a headless double."""

import json
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.doubles import FakeGodot
from penstock.envs.godot import agents_at
from penstock.errors import EnvError, SpaceError
from tests.ports import free_port


def test_agents_are_lanes_and_their_ends_are_terminations() -> None:
    port = free_port()
    with FakeGodot(port, agents=3) as game:
        env = agents_at(f":{port}")(num_envs=2, seed=0)
        assert str(env.single_observation_space) == (
            "Dict('obs': Box(-inf, inf, (3,), float32), 'view_2d': Box(0, 255, (1, 1, 3), uint8))"
        )
        assert str(env.single_action_space) == "Discrete(3)"
        obs, _ = env.reset()
        found = []
        for _ in range(8):
            np.testing.assert_array_equal(obs["view_2d"][:, 0, 0], 255 * obs["obs"])
            obs, reward, terminated, truncated, _ = env.step(obs["obs"].argmax(axis=1) * [1, 0])
            assert not truncated.any()
            found.append((reward[0], terminated.tolist()))
        assert found == ([(1.0, [False, False])] * 3 + [(1.0, [True, True])]) * 2
        env.close()
        assert game.messages[:3] == ["handshake", "env_info", "reset"]
        while game.messages[-1] != "close":
            time.sleep(0.01)


def test_several_games_fill_the_lanes() -> None:
    port = free_port()
    with FakeGodot(port, agents=2) as one, FakeGodot(port, agents=2) as other:
        env = agents_at(f":{port}")(num_envs=4, seed=0)
        obs, _ = env.reset()
        for _ in range(5):
            obs, reward, *_ = env.step(obs["obs"].argmax(axis=1))
            assert reward.tolist() == [1.0] * 4
        assert (one.games, other.games) == (1, 1)
        env.close()


def settings(tmp_path: Path, env: str) -> dict[str, object]:
    return {
        "env": env,
        "ignore_obs": ("view_2d",),
        "num_envs": 4,
        "num_steps": 32,
        "mini_batch_size": 32,
        "timesteps": 3000,
        "lr": 0.01,
        "eval_episodes": 20,
        "log_dir": str(tmp_path),
    }


def test_penstock_learns_from_a_game(tmp_path) -> None:
    """Whoever names what is shown gets 4 an episode; who guesses gets 4 / 3."""
    port = free_port()
    with FakeGodot(port, agents=4) as game:
        result = penstock.train({**settings(tmp_path, f"godot://:{port}"), "num_workers": 1}, quiet=True)
        assert result.evaluation.mean_return > 3.9
        # The probe, the training, and the evaluation.
        assert game.games >= 3


def test_games_that_penstock_starts_may_be_several(tmp_path) -> None:
    game = tmp_path / "game.x86_64"
    game.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from penstock.doubles import FakeGodot\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "port = next(int(word[7:]) for word in sys.argv if word.startswith('--port='))\n"
        "double = FakeGodot(port, 2)\n"
        "double._run = lambda: double._play(__import__('socket').create_connection(('127.0.0.1', port)))\n"
        "double._run()\n"
    )
    game.chmod(0o755)
    args = {"env_args": {"speedup": 8, "framerate": 60}, "num_workers": 2, "timesteps": 256, "eval_episodes": 0}
    result = penstock.train({**settings(tmp_path, f"godot://{game}"), **args}, quiet=True)
    assert result.steps >= 256
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) >= 3
    for call in calls:
        for flag in ("--env_seed=", "--disable-render-loop --headless", "--fixed-fps 60", "--speedup=8", "--port="):
            assert flag in call


def answering(port: int, *answers: bytes) -> threading.Thread:
    """A game that says these bytes after its connection, one after the other, and leaves."""

    def run() -> None:
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
            except OSError:
                continue
            with connection:
                for answer in answers:
                    connection.sendall(answer)
                while connection.recv(1 << 16):
                    pass
            return

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def message(value: object) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(4, "little") + data


BOX = {"space": "box", "size": [2]}
STEER = {"action_type": "continuous", "size": 2}


def info(**more: object) -> bytes:
    whole = {"type": "env_info", "n_agents": 1, "action_space": {"steer": STEER}, "observation_space": {"obs": BOX}}
    return message({**whole, **more})


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (b"\xff\xff\xff\xff", EnvError, "announces a message of 4,294,967,295 bytes"),
        (b"\x02\x00\x00\x00no", EnvError, "no JSON"),
        (message([1]), EnvError, "which is no message"),
        (message({"type": "step"}), EnvError, "answers env_info with step, not env_info"),
        (message({"type": "env_info"}), EnvError, "describes its agents in another form: .*n_agents"),
        (info(n_agents=0), EnvError, "no agent that trains"),
        (info(n_agents=float("inf")), EnvError, "describes its agents in another form: .*infinity"),
        (info(action_space={"steer": {**STEER, "action_type": "odd"}}), SpaceError, "an action of type odd"),
        (info(observation_space={"obs": {**BOX, "space": "odd"}}), SpaceError, "shows obs as odd"),
        (info(n_agents=2, observation_space=[{"obs": BOX}, {"other": BOX}]), SpaceError, "have different obs"),
    ],
)
def test_a_game_that_says_something_else_is_one_line(answer: bytes, kind: type[Exception], text: str) -> None:
    port = free_port()
    thread = answering(port, answer)
    with pytest.raises(kind, match=text):
        agents_at(f":{port}")(num_envs=1, seed=0)
    thread.join()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"type": "step", "obs": [{"obs": [1, 2]}], "reward": [1, 2], "done": [False]}, "as reward of 1 agents"),
        ({"type": "step", "obs": [{"obs": [1]}], "reward": [1], "done": [False]}, "obs of an agent does not fit"),
        ({"type": "step", "obs": [{}], "reward": [1], "done": [False]}, "obs of an agent does not fit"),
        ({"type": "step", "obs": [{"obs": [1, 2]}], "reward": ["much"], "done": [False]}, "as reward of its agents"),
        ({"type": "step", "obs": [{"obs": [1, 2]}], "reward": [1], "done": ["no"]}, "as done of its agents"),
        ({"type": "step", "obs": [{"obs": [1, 2]}], "reward": ["1"], "done": [False]}, "as reward of its agents"),
        ({"type": "step", "obs": [{"obs": ["1", "2"]}], "reward": [1], "done": [False]}, "holds no numbers"),
    ],
)
def test_a_step_that_does_not_fit_is_one_line(answer, text: str) -> None:
    port = free_port()
    thread = answering(port, info(), message({"type": "reset", "obs": [{"obs": [0, 3.5]}]}), message(answer))
    env = agents_at(f":{port}")(num_envs=1, seed=0)
    assert env.reset()[0].tolist() == [[0.0, 3.5]]
    with pytest.raises(penstock.BadDataError, match=text):
        env.step(np.zeros((1, 2), np.float32))
    env.close()
    thread.join()


@pytest.mark.parametrize("byte", [256, 0.5])
def test_a_number_that_is_no_byte_is_one_line(byte: float) -> None:
    port = free_port()
    picture = {"view_2d": {"space": "box", "size": [1, 1, 1]}}
    reset = {"type": "reset", "obs": [{"view_2d": [[[byte]]]}]}
    thread = answering(port, info(observation_space=picture), message(reset))
    env = agents_at(f":{port}")(num_envs=1, seed=0)
    with pytest.raises(penstock.BadDataError, match=rf"view_2d of an agent does not fit its space: .*{byte}"):
        env.reset()
    env.close()
    thread.join()


def test_mistakes_are_one_line() -> None:
    for address in ("nowhere", ":0", ":x", "localhost:11008"):
        with pytest.raises(EnvError, match="is neither a port nor a game: write godot://:11008"):
            agents_at(address)
    with pytest.raises(EnvError, match=r"no game of Godot has connected to 127.0.0.1:\d+ within 0.1 s"):
        agents_at(f":{free_port()}")(num_envs=1, seed=0, wait=0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EnvError, match="give --num_workers 1, and no --eval_interval"):
            agents_at(f":{taken.getsockname()[1]}")(num_envs=1, seed=0)
