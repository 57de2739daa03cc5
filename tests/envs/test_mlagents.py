"""Games of ML-Agents, by a headless double."""

import io
import socket
import sys
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.doubles import FakeUnity
from penstock.envs.mlagents import agents_at
from penstock.envs.mlagents.agents import Agents
from penstock.envs.mlagents.lanes import GameLanes
from penstock.envs.mlagents.messages import PNG, AgentInfo, Message, engine_packets, parameter_packets
from penstock.envs.mlagents.observations import read_observation
from penstock.errors import BadDataError, EnvError, SpaceError
from tests.envs import fuzz_mlagents


def free_port() -> int:
    """A port that is free, and so is the one above it."""
    while True:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            try:
                above.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


@pytest.mark.parametrize("limited", [False, True])
def test_agents_are_lanes_and_a_time_limit_truncates(limited: bool) -> None:
    port = free_port()
    with FakeUnity(port, agents=3, limited=limited) as game:
        env = agents_at(f":{port}")(num_envs=2, seed=7, parameters={"mass": 2.5})
        assert str(env.single_observation_space) == (
            "Dict('camera': Box(0, 255, (3, 4, 4), uint8), 'shown': Box(-inf, inf, (3,), float32))"
        )
        assert str(env.single_action_space) == "Discrete(3)"
        obs, info = env.reset()
        assert info == {}
        for step in range(1, 9):
            np.testing.assert_array_equal(obs["camera"][:, :, 0, 0], 255 * obs["shown"])
            obs, reward, terminated, truncated, info = env.step(obs["shown"].argmax(axis=1) * [1, 0])
            assert reward[0] == 1.0
            assert (truncated if limited else terminated).tolist() == [step % 4 == 0] * 2
            assert not (terminated if limited else truncated).any()
            for last, first in zip(info["final_obs"], obs["shown"], strict=True):
                assert (last is None) == (step % 4 > 0)
                assert last is None or last["shown"].shape == first.shape
        env.reset()
        assert game.games == 1
        assert (game.begun.seed, game.begun.communication_version) == (7, "1.5.0")
        assert game.packets == engine_packets(20.0) + parameter_packets({"mass": 2.5})
        env.close()
        # It was told to end, and is started again.
        agents_at(f":{port}")(num_envs=3, seed=8).close()
        assert (game.games, game.begun.seed) == (2, 8)
    with pytest.raises(EnvError, match=f"no game of ML-Agents has connected to 127.0.0.1:{port} within 0.1 s"):
        agents_at(f":{port}")(num_envs=1, seed=0, wait=0.1)


def test_packets_are_those_of_the_package() -> None:
    """Bytes that its side channels have written: id of the channel, size, numbers; all little-endian."""
    engine, parameters = "2c3451e97e4fea11b238784f4387d1f7 08000000", "1e894c530f81ea11a9d0822485860400 10000000"
    settings = ("02000000 0000a041", "03000000 ffffffff", "04000000 3c000000")
    assert engine_packets(20.0) == bytes.fromhex("".join(f"{engine} {one}" for one in settings))
    assert parameter_packets({"mass": 2.5}) == bytes.fromhex(f"{parameters} 04000000 6d617373 00000000 00002040")


def test_games_at_the_ports_above_fill_the_lanes() -> None:
    port = free_port()
    with FakeUnity(port, agents=2) as one, FakeUnity(port + 1, agents=2) as other:
        env = agents_at(f":{port}")(num_envs=4, seed=0)
        obs, _ = env.reset()
        for _ in range(5):
            obs, reward, *_ = env.step(obs["shown"].argmax(axis=1))
            assert reward.tolist() == [1.0] * 4
        assert (one.begun.seed, other.begun.seed) == (0, 1)
        env.close()


def settings(tmp_path: Path, env: str) -> dict[str, object]:
    return {
        "env": env,
        "ignore_obs": ("camera",),
        "num_envs": 4,
        "num_steps": 32,
        "mini_batch_size": 32,
        "timesteps": 3000,
        "lr": 0.01,
        "eval_episodes": 20,
        "log_dir": str(tmp_path),
    }


@pytest.mark.nightly  # Twenty seconds. Shorter: a run of one agent and of several games, and masks without a run below.
def test_penstock_learns_from_a_game_that_masks_actions(tmp_path) -> None:
    """Whoever names what is shown gets 4 an episode; who guesses between the two that are possible gets 2."""
    port = free_port()
    with FakeUnity(port, agents=4, masked=True) as game:
        result = penstock.train({**settings(tmp_path, f"mlagents://:{port}"), "num_workers": 1}, quiet=True)
        assert result.evaluation is not None
        assert result.evaluation.mean_return > 3.9
        # The probe, the training, and the evaluation.
        assert game.games >= 3


def test_a_run_of_one_lane_needs_one_agent(tmp_path) -> None:
    port = free_port()
    one = {"num_envs": 1, "runtime": "inline", "timesteps": 64, "eval_episodes": 0}
    with FakeUnity(port):
        assert penstock.train({**settings(tmp_path, f"mlagents://:{port}"), **one}, quiet=True).steps >= 64


@pytest.mark.nightly  # Seven seconds. Shorter: games of Godot, in ``test_godot.py``.
def test_games_that_penstock_starts_may_be_several(tmp_path) -> None:
    game = tmp_path / "game.x86_64"
    game.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from penstock.doubles import FakeUnity\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "FakeUnity(int(sys.argv[sys.argv.index('--mlagents-port') + 1]), 2).play()\n"
    )
    game.chmod(0o755)
    args = {"num_workers": 2, "timesteps": 256, "eval_episodes": 0}
    result = penstock.train({**settings(tmp_path, f"mlagents://{game}"), **args}, quiet=True)
    assert result.steps >= 256
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) >= 3
    assert all(call.startswith("-batchmode -nographics --mlagents-port ") for call in calls)


class Scripted:
    """A game that says these lists of infos, one after the other, and remembers the actions."""

    def __init__(self, *said: dict[str, list[AgentInfo]], kinds: dict[str, tuple[int, tuple[int, ...]]]) -> None:
        self._said = iter(said)
        self._kinds = kinds
        self.actions: list[dict[str, list[tuple[object, object]]]] = []

    def reset(self) -> Message:
        said = self.act({})
        self.actions.clear()
        for name, (continuous, branches) in self._kinds.items():
            action = {"num_continuous_actions": continuous, "discrete_branch_sizes": branches}
            said.rl_initialization_output.brain_parameters.add(brain_name=name, action_spec=action)
        return said

    def act(self, actions) -> Message:
        self.actions.append({name: [tuple(row) for row in rows] for name, rows in actions.items()})
        output = Message().unity_output
        for name, infos in next(self._said).items():
            output.rl_output.agentInfos[name].value.extend(infos)
        return output

    def close(self) -> None:
        self.actions.append({})


def says(agent: int, value: float = 0.0, **more) -> AgentInfo:
    return AgentInfo(id=agent, observations=[{"shape": [1], "float_data": {"data": [value]}}], **more)


def agents(game: Scripted, num_envs: int, *, masks: bool = False) -> Agents:
    return Agents(num_envs, iter([GameLanes(game)]), masks=masks)


def test_actions_come_in_the_order_of_the_questions_and_a_new_agent_takes_a_lane() -> None:
    ended = says(5, 9.0, done=True, reward=0.5, group_reward=2.0)
    game = Scripted(
        {"b": [says(7), says(3)], "a": [says(5)]},
        {"a": [ended]},
        {"b": [says(3, reward=1.0), says(7, reward=-1.0)], "a": [says(8, 4.0, reward=99.0)]},
        {"a": [says(8)], "b": [says(3), says(7)], "c": [says(40, done=True)]},
        kinds={"a": (1, ()), "b": (1, ())},
    )
    env = agents(game, 3)
    assert str(env.single_action_space) == "Box(-1.0, 1.0, (1,), float32)"
    env.reset()
    obs, reward, terminated, _, info = env.step(np.array([[0.5], [0.25], [-1.0]], np.float32))
    # Lanes are sorted: 5 of a, then 3 and 7 of b.
    assert game.actions == [{"a": [([0.5], ())], "b": [([-1.0], ()), ([0.25], ())]}, {}]
    assert (reward.tolist(), terminated.tolist()) == ([2.5, 1.0, -1.0], [True, False, False])
    assert (obs[:, 0].tolist(), info["final_obs"][0].tolist()) == ([4.0, 0.0, 0.0], [9.0])
    env.step(np.zeros((3, 1), np.float32))
    assert game.actions[-1] == {"a": [([0.0], ())], "b": [([0.0], ()), ([0.0], ())]}


def test_agents_beyond_the_lanes_do_nothing() -> None:
    two, mixed = [says(1), says(2)], {"a": (1, (3, 2))}
    game = Scripted({"a": two}, {"a": [*two, says(3)]}, {"a": two}, kinds=mixed)
    env = agents(game, 1)
    assert str(env.single_action_space) == (
        "Dict('continuous': Box(-1.0, 1.0, (1,), float32), 'discrete': MultiDiscrete([3 2]))"
    )
    env.reset()
    chosen = {"continuous": np.ones((1, 1), np.float32), "discrete": np.array([[2, 1]])}
    env.step(chosen)
    env.step(chosen)
    idle, acted = ([0.0], [0, 0]), ([1.0], [2, 1])
    assert game.actions == [{"a": [acted, idle]}, {"a": [acted, idle, idle]}]


def test_masks_are_turned_round_and_used_only_if_they_come_at_first_or_are_asked_for() -> None:
    choices = {"a": (0, (3,))}
    forbids = says(1, action_mask=[True, False, False])
    env = agents(Scripted({"a": [forbids]}, {"a": [says(1)]}, kinds=choices), 1)
    assert env.reset()[1]["action_mask"].tolist() == [[0, 1, 1]]
    assert env.step(np.array([1]))[4]["action_mask"].tolist() == [[1, 1, 1]]
    env = agents(Scripted({"a": [says(1)]}, {"a": [forbids]}, kinds=choices), 1)
    env.reset()
    with pytest.raises(BadDataError, match=r"give --env_args '{\"action_mask\": true}'"):
        env.step(np.array([1]))
    env = agents(Scripted({"a": [says(1)]}, {"a": [forbids]}, kinds=choices), 1, masks=True)
    assert env.reset()[1]["action_mask"].tolist() == [[1, 1, 1]]
    # An agent that was cut off has a mask of its last state.
    ends = says(1, action_mask=[False, True, True], done=True, max_step_reached=True)
    env = agents(Scripted({"a": [forbids]}, {"a": [ends]}, {"a": [says(2)]}, kinds=choices), 1)
    env.reset()
    assert env.step(np.array([1]))[4]["final_info"]["action_mask"].tolist() == [[1, 0, 0]]
    env = agents(Scripted({"a": [says(1, action_mask=[True])]}, kinds=choices), 1)
    with pytest.raises(BadDataError, match="not one number for each of its 3 choices"):
        env.reset()


ACTS = {"a": (1, ())}


@pytest.mark.parametrize(
    ("said", "kinds", "kind", "text"),
    [
        ([{"a": [says(1)]}], {}, EnvError, "does not say what its agents see and do"),
        ([{"a": [says(1)]}], {"a": (0, ())}, SpaceError, "take no actions"),
        ([{"a": [AgentInfo(id=1)]}], ACTS, SpaceError, "see nothing"),
        ([{"a": [says(1)], "b": [says(2)]}], {**ACTS, "b": (2, ())}, SpaceError, "agents a and b see or do different"),
        ([{"a": [says(1), says(2)]}, {"a": [says(2)]}], ACTS, EnvError, "1 of 2 agents of the game ask for no action"),
        ([{"a": [says(1)]}, {"a": [AgentInfo(id=1)]}], ACTS, BadDataError, "shows 0 observations instead of 1"),
    ],
)
def test_a_game_that_does_not_fit_is_one_line(said, kinds, kind, text) -> None:
    def stepped() -> None:
        env = agents(Scripted(*said, kinds=kinds), 1)
        env.reset()
        env.step(np.zeros((1, 1), np.float32))

    with pytest.raises(kind, match=text) as refusal:
        stepped()
    assert "\n" not in str(refusal.value)


def observation(shape: list[int], data: list[float] | None = None, png: bytes = b""):
    info = AgentInfo()
    if data is None:
        info.observations.add(shape=shape, compression_type=PNG, compressed_data=png)
    else:
        info.observations.add(shape=shape, float_data={"data": data})
    return info.observations[0]


def test_pictures_are_bytes_however_they_come() -> None:
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    png = file.getvalue()
    first = pixels.transpose(2, 0, 1)
    np.testing.assert_array_equal(read_observation(observation([3, 2, 5], png=png), "seen", (3, 2, 5)), first)
    np.testing.assert_array_equal(read_observation(observation([2, 5, 3], png=png), "seen", (2, 5, 3)), pixels)
    grey = read_observation(observation([1, 2, 5], png=png), "seen", (1, 2, 5))
    np.testing.assert_array_equal(grey, first[1:2])
    numbers = (first / 255).ravel().tolist()
    np.testing.assert_array_equal(read_observation(observation([3, 2, 5], numbers), "seen", (3, 2, 5)), first)
    for damaged, text in (
        (observation([3, 2, 5], [2.0] * 30), "numbers beyond 0 to 1"),
        (observation([3, 2, 5], [0.5] * 29), "cannot be read"),
        (observation([3, 2, 5], png=png[:40]), "cannot be read"),
        (observation([3, 2, 4], png=png), r"has shape \[3, 2, 4\] instead of \[3, 2, 5\]"),
        (observation([3, 2, 5], png=b"BM" + png), "cannot be read"),
        (observation([3, 2, 5], png=shortened(png)), "cannot be read: broken PNG"),
        (observation([3, 2, 5], png=black(9, 9)), "a picture of 9 x 9 pixels"),
        (observation([3, 2, 5], png=black(20_000, 20_000)), "cannot be read: Image size"),
    ):
        with pytest.raises(BadDataError, match=f"seen of an agent.*{text}"):
            read_observation(damaged, "seen", (3, 2, 5))


def shortened(png: bytes) -> bytes:
    """A picture with too few bytes of pixels: the bytes behind them are no part of a PNG."""
    place = png.index(b"IDAT") - 4
    return png[:place] + pack(">I", 8) + png[place + 4 :]


def black(width: int, height: int) -> bytes:
    """A picture in a few bytes."""
    png = io.BytesIO()
    Image.new("1", (width, height)).save(png, "PNG")
    return png.getvalue()


SHOWN = {"name": "seen", "shape": [2], "float_data": {"data": [0.0, 1.0]}}


@pytest.mark.parametrize(
    ("shape", "action"),
    [
        ([], {"num_continuous_actions": 1}),
        ([0], {"num_continuous_actions": 1}),
        ([-1], {"num_continuous_actions": 1}),
        ([-1, -2], {"num_continuous_actions": 1}),
        ([2**31 - 1] * 3, {"num_continuous_actions": 1}),
        ([2], {"num_continuous_actions": -5}),
        ([2], {"num_continuous_actions": 2**31 - 1}),
        ([2], {"discrete_branch_sizes": [3, 0]}),
        ([2], {"discrete_branch_sizes": [2**31 - 1]}),
    ],
)
def test_what_no_agent_can_see_or_do_is_refused_before_memory_is_taken(shape, action) -> None:
    with pytest.raises(SpaceError, match="no observation has it" if shape != [2] else "none can"):
        fuzz_mlagents.play(fuzz_mlagents.game([{**SHOWN, "shape": shape}], action))


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0", "", "1.x"])
def test_another_version_of_the_protocol_is_refused(version: str) -> None:
    port = free_port()
    with FakeUnity(port, version=version), pytest.raises(EnvError, match=f"speaks version {version} of .*1.3 to 1.5.0"):
        agents_at(f":{port}")(num_envs=1, seed=0)


def test_a_game_that_goes_away_is_noticed() -> None:
    port = free_port()
    with FakeUnity(port):
        env = agents_at(f":{port}")(num_envs=1, seed=0)
        env.reset()
    with pytest.raises(EnvError, match="has ended or lost its connection"):
        env.step(np.array([0]))
    env.close()


def test_a_port_that_is_taken_and_an_address_that_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvError, match=r"the port is in use; .*: give --num_workers 1"):
            agents_at(f":{port}")(num_envs=1, seed=0)
    for address in (":0", ":99999", ":x", "nowhere/game"):
        with pytest.raises(EnvError, match="neither a port nor a game: write mlagents://:5005"):
            agents_at(address)
