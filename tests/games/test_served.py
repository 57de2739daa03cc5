"""Served policies whose clients play through an agent: what was trained with a game is what is served."""

import contextlib
import http.client
import json
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.clients import AsyncGameClient, EpisodeLostError, GameClient, RefusedError
from penstock.config.commands import ServeOptions
from penstock.envs.games import agent_name
from penstock.errors import ConfigError, EnvError
from penstock.games.served import _Collected
from penstock.retraining.kept import Kept
from penstock.retraining.suitable import check_seen
from penstock.saved_runs.episodes import KeptEpisode, list_episodes, read_episode
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.server.endpoints.recording import Recorder
from penstock.serving.server.policy.agents import agents_of
from penstock.serving.server.policy.source import Source
from tests.games.test_training import playing, settings
from tests.serving.server.harness import SPACES, policy_of, serving, until
from tests.serving.server.test_command import served

pytestmark = pytest.mark.usefixtures("shared_templates")

SCALED, HALVED, PLAIN = (f"tests.games.agents:{name}" for name in ("Scaled", "Halved", "Plain"))
FACTOR = 100.0
SEEN = [[0.001 * step, 0.002 - 0.0005 * step] for step in range(5)]


def body(obs: list[float], reward: float = 0.0) -> bytes:
    return struct.pack("<fff", *obs, reward)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an agent with bodies of its own, which sees another unit than its games."""
    folder = tmp_path_factory.mktemp("logs")
    learning = {"capacity": 500, "min_rows": 50, "mini_batch_size": 32, "updates_per_step": 0.1, "num_steps": 4}
    config = settings(folder, algo="sac", timesteps=200, keep_episodes=50, hidden_sizes=(8,), **learning)
    config |= {"env": f"gamecore://{SCALED}", "env_args": {"factor": FACTOR}}

    async def play(game: int) -> None:
        url = f"tcp://127.0.0.1:{config['tcp_port']}"
        async with AsyncGameClient(url, f"game-{game}", patience=30.0) as client:
            with contextlib.suppress(EpisodeLostError, RefusedError):
                while True:
                    await client.start()
                    for obs in SEEN:
                        await client.send("tick", body(obs, 1.0))
                    await client.send("stop", body([0.0, 0.0], 1.0))

    with playing(play, 4):
        return Path(penstock.train(config, quiet=True).run_folder)


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    return Path(penstock.export(run, run.parent / "bundle", observations=16))


def wanted(run: Path) -> list[float]:
    """The trained policy's greedy actions for what the agent saw in training."""
    session = penstock.load_policy(run).session()
    seen = [np.array([[FACTOR * number for number in obs]], np.float32) for obs in SEEN]
    return [float(session.act(obs)[0, 0]) for obs in seen]


def dotted(agent: str) -> str:
    """The other form of an agent's name."""
    return agent.replace(":", ".")


@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_a_served_run_answers_through_its_agent_as_in_training(run: Path, scheme: str, tmp_path: Path) -> None:
    trained = [np.load(path)["obs"] for path in list_episodes(RunFolder(run).episodes)]
    with served(run, "--collect", str(tmp_path)) as server:
        assert f"agent {SCALED}" in server.line
        client = GameClient(f"{scheme}://127.0.0.1:{server.ports[scheme]}", "g")
        client.start()
        actions = [struct.unpack("<f", client.send("tick", body(obs, 1.0)))[0] for obs in SEEN]
        client.send("stop", body([0.0, 0.0], 1.0))
        client.close()
    assert actions == wanted(run)
    assert len(set(actions)) == len(SEEN)
    (path,) = list_episodes(tmp_path / "policy")
    with np.load(path) as episode:
        assert episode["obs"].tolist() in [one.tolist() for one in trained]
        assert episode["reward"].tolist() == [1.0] * len(SEEN)
        assert str(episode["seen_by"]) == SCALED


def test_a_run_learns_on_only_from_episodes_that_its_agent_has_seen(run: Path, tmp_path: Path) -> None:
    # What it learns must not reach the other tests.
    run = Path(shutil.copytree(run, tmp_path / run.name))
    kept = [np.load(path) for path in list_episodes(RunFolder(run).episodes)]
    for name in (SCALED, "", HALVED):
        folder = tmp_path / f"kept-{name.rpartition(':')[2]}"
        folder.mkdir()
        for number, arrays in enumerate(kept, 1):
            np.savez(folder / f"episode-{number:08d}.npz", **{**arrays, "seen_by": np.array(name)})
    text = "what its agent tests.games.agents:Scaled sees (decode, on_tick, on_episode); collect episodes with penstock"
    for folder, holds in (("kept-", "what a client has sent"), ("kept-Halved", f"what agent {HALVED} has seen")):
        with pytest.raises(ConfigError, match=re.escape(f"{folder}: episode ")) as refused:
            penstock.retrain(run, experience=tmp_path / folder)
        assert f"holds {holds}, and the run learns from {text}" in str(refused.value)
    # Nothing is learned from a client that has vanished after its first step.
    newest = max(number for number, arrays in enumerate(kept, 1) if len(arrays["reward"]))
    for folder in (tmp_path / "kept-Scaled", RunFolder(run).episodes):
        assert penstock.retrain(run, experience=folder, epochs=0.1).newest == newest


def test_both_names_of_an_agent_are_the_same_agent() -> None:
    row = np.zeros(1, np.float32)
    episode = KeptEpisode("g", {"obs": np.zeros((2, 2), np.float32)}, row, row, True, False, SCALED)
    for env in (f"gamecore://{SCALED}", f"gamecore://{dotted(SCALED)}"):
        check_seen(env, Kept({1: episode}, {}), Path("kept"))
        assert agent_name(env) == SCALED


def test_a_run_takes_only_demonstrations_that_its_agent_has_seen(run: Path, tmp_path: Path) -> None:
    (arrays, *_) = (np.load(path) for path in list_episodes(RunFolder(run).episodes))
    config = RunFolder(run).read_config()
    for name, holds in (("", "what a client has sent"), (HALVED, f"what agent {HALVED} has seen"), (SCALED, None)):
        kept = tmp_path / f"kept-{name.rpartition(':')[2]}"
        kept.mkdir()
        np.savez(kept / "episode-00000007.npz", **{**arrays, "seen_by": np.array(name)})
        asked = replace(config, run=replace(config.run, demonstrations=(str(kept),)))
        if holds is None:
            penstock.draw(asked)
            continue
        says = f"--demonstrations {kept}: episode 7 holds {holds}, and the run learns from what its agent {SCALED} sees"
        with pytest.raises(ConfigError, match=re.escape(says)):
            penstock.draw(asked)


def test_an_exported_policy_is_served_through_the_agent_that_is_typed(bundle: Path, run: Path) -> None:
    with served(bundle, "--agent", SCALED) as server:
        client = GameClient(f"tcp://127.0.0.1:{server.ports['tcp']}", "g")
        client.start()
        actions = [struct.unpack("<f", client.send("tick", body(obs)))[0] for obs in SEEN]
        client.close()
    assert actions == pytest.approx(wanted(run), abs=1e-5)


def test_a_bundle_whose_agent_changes_something_wants_it_typed(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(bundle)]) == 2
    assert capsys.readouterr().err.endswith(
        f"bundle {bundle} was trained with agent {SCALED}, which overrides decode, encode, on_tick, on_episode, and so "
        f"changes what clients send and get; type --agent {SCALED}, or --agent off to serve the policy alone\n"
    )


def test_a_run_whose_agent_is_not_here_says_how_to_serve_the_policy_alone(run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(run, tmp_path / run.name))
    config = RunFolder(run).config_path
    config.write_text(config.read_text().replace(SCALED, "gone.away:Agent"))
    with pytest.raises(
        EnvError, match=r"^agent gone\.away:Agent: no module named .*; or give --agent off to serve the"
    ):
        of(run)
    assert of(run, "off") == {}


def of(place: Path, agent: str | None = None, **more: object) -> dict[str, object]:
    """The agent for one policy."""
    checkpoint = None if (place / "manifest.json").exists() else "update-00000001"
    source = Source("module:load", str(place), checkpoint, 1)
    return dict(agents_of({"policy": source}, ServeOptions(policies=("policy",), agent=agent, **more)))


def test_which_agent_plays_before_a_policy(bundle: Path, run: Path) -> None:
    own = of(run)["policy"]
    assert (own.env, own.arguments) == (f"gamecore://{SCALED}", {"factor": FACTOR})
    assert of(bundle, SCALED) == {"policy": own}
    for form in (f"gamecore://{SCALED}", dotted(SCALED), f"gamecore://{dotted(SCALED)}"):
        assert of(bundle, form) == of(run, form) == {"policy": own}
    assert of(run, HALVED)["policy"].arguments == {}
    # It changes nothing, so the server's own bodies are those of training.
    assert of(run, PLAIN) == of(run, "off") == of(bundle, "off") == {}
    with pytest.raises(ConfigError, match=f"--codec raw: agent {SCALED} reads the bodies itself"):
        of(run, codec="raw")
    source = Source("module:load", str(run), "update-00000001", 1)
    with pytest.raises(ConfigError, match=f"--agent {PLAIN} is for one policy, and 2 are served"):
        agents_of({"a": source, "b": source}, ServeOptions(policies=("a", "b"), agent=PLAIN))


@pytest.mark.parametrize("terminated", [True, np.True_, 1])
def test_an_end_counts_as_in_training_however_an_agent_says_it(tmp_path: Path, terminated) -> None:
    """A comparison of numpy gives a bool of numpy."""
    recorder = Recorder("toy", tmp_path, 1e9, SPACES["plain"], 0.0)
    rows, fields = _Collected(recorder.begin("g")), {"obs": np.zeros((1, 3), np.float32)}
    rows.add(fields, np.zeros((1, 2), np.float32), 0.0)
    rows.end(fields, 1.0, terminated=terminated)
    recorder.close()
    (path,) = list_episodes(tmp_path)
    assert read_episode(path, SPACES["plain"]).terminated


def test_an_agent_that_fits_the_policy_no_longer_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(run), "--port", "0", "--agent", HALVED]) == 2
    assert f"agent {HALVED} is not of policy policy: its spaces are obs float32[3]" in capsys.readouterr().err


def answer(obs: list[float]) -> list[float]:
    """What the policy of the harness answers to what `Halved` sees."""
    return policy_of("plain").session().act(np.array([[number / 2 for number in obs]], np.float32))[0].tolist()


def test_sessions_share_a_policy_and_each_tick_goes_through_the_agent() -> None:
    with serving(agent=HALVED, also={"other": "plain"}) as server:
        clients = [GameClient(f"tcp://127.0.0.1:{server.tcp}", f"g{number}") for number in range(3)]
        for client in clients:
            client.start()
        for step in range(3):
            for number, client in enumerate(clients):
                obs = [0.1 * number, 0.2 * step, 0.3]
                assert client.tick(obs, None if step == 0 else 1.0) == pytest.approx(answer(obs))
        assert len(server.endpoint.sessions) == 3
        for client in clients:
            client.stop([0.0, 0.0, 0.0], 1.0)
        until(lambda: not len(server.endpoint.sessions))
        other = GameClient(f"tcp://127.0.0.1:{server.tcp}", "g0", policy="other")
        other.start()
        raw = policy_of("plain").session().act(np.array([[0.1, 0.2, 0.3]], np.float32))[0]
        assert other.tick([0.1, 0.2, 0.3]) == pytest.approx(raw.tolist())
        with pytest.raises(RefusedError, match="'g0' has started already, with another policy"):
            clients[0].send("start", b"")
        other.close()
        for client in clients:
            client.close()


def has_begun(client: GameClient) -> bool:
    """Whether a session begins. It does not before the server has seen that its former connection is gone."""
    with contextlib.suppress(RefusedError):
        client.start()
        return True
    return False


def test_a_client_that_has_crashed_may_come_back_with_another_policy() -> None:
    with serving(agent=HALVED, also={"other": "plain"}) as server:
        obs = [0.1, 0.2, 0.3]
        raw = policy_of("plain").session().act(np.array([obs], np.float32))[0].tolist()
        other = server.endpoints.find("other")
        for policy, acted, mine, theirs in (
            ("toy", answer(obs), server.endpoint, other),
            ("other", raw, other, server.endpoint),
            ("toy", answer(obs), server.endpoint, other),
        ):
            client = GameClient(f"tcp://127.0.0.1:{server.tcp}", "g", policy=policy)
            until(lambda client=client: has_begun(client))
            assert client.tick(obs) == pytest.approx(acted)
            until(lambda theirs=theirs: not len(theirs.sessions))
            assert len(mine.sessions) == 1
            client.close()


def test_a_request_that_the_agent_would_not_see_is_refused() -> None:
    with serving(agent=HALVED) as server:

        def post(path: str, asked: object) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
            connection.request("POST", path, json.dumps(asked))
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

        status, text = post("/step", {"obs": [0.1, 0.2, 0.3]})
        assert status == 400
        assert f"policy toy is served with its agent {HALVED}: every request needs a session" in text
        tensor = {"name": "obs", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.3]}
        status, text = post("/v2/models/toy/infer", {"inputs": [tensor]})
        assert status == 400
        assert "sessions of Gamecore only; penstock serve --agent off serves it alone" in text


def test_an_agent_that_fails_ends_its_episode_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with serving(agent=HALVED) as server:
        first, second = (GameClient(f"tcp://127.0.0.1:{server.tcp}", name) for name in ("a", "b"))
        first.start()
        second.start()
        with pytest.raises(RefusedError, match="the server failed to answer"):
            first.tick([3.0, 0.0, 0.0])
        assert second.tick([0.1, 0.2, 0.3]) == pytest.approx(answer([0.1, 0.2, 0.3]))
        first.start()
        assert first.tick([0.3, 0.2, 0.1]) == pytest.approx(answer([0.3, 0.2, 0.1]))
        first.close()
        second.close()
    assert f"toy: agent {HALVED} has failed, and its episode has ended" in caplog.text
    assert "a mistake of the user" in caplog.text


def test_a_tick_that_does_not_fit_and_a_session_too_many_are_refused() -> None:
    with serving(agent=HALVED, max_sessions=1) as server:
        client, late = (GameClient(f"tcp://127.0.0.1:{server.tcp}", name) for name in ("a", "b"))
        client.start()
        with pytest.raises(RefusedError, match="obs has shape"):
            client.tick([1.0, 2.0])
        assert client.tick([0.1, 0.2, 0.3]) == pytest.approx(answer([0.1, 0.2, 0.3]))
        with pytest.raises(RefusedError, match=r"all 1 sessions are taken \(--max_sessions\)"):
            late.send("start", b"")
        client.stop([0.0, 0.0, 0.0], 1.0)
        client.close()
        late.close()


@pytest.mark.alone
def test_a_session_that_is_silent_for_long_ends_and_its_memory_with_it(tmp_path: Path) -> None:
    with serving("memory", agent=HALVED, idle_seconds=2.0, collect=tmp_path) as server:
        client = GameClient(f"tcp://127.0.0.1:{server.tcp}", "a")
        client.start()
        first = [client.tick([0.1, 0.2, 0.3], 1.0 if step else None) for step in range(3)]
        until(lambda: not len(server.endpoint.sessions))
        assert server.endpoint.expired == 1
        client.start()
        assert [client.tick([0.1, 0.2, 0.3], 1.0 if step else None) for step in range(3)] == first
        client.close()
    one, two = (np.load(path) for path in list_episodes(tmp_path))
    assert one["vanished"]
    assert two["vanished"]
    assert one["obs"].tolist() == two["obs"].tolist() == np.float32([[0.05, 0.1, 0.15]] * 3).tolist()


def test_an_episode_that_is_open_at_the_end_of_the_server_is_kept_as_vanished(tmp_path: Path) -> None:
    with serving(agent=HALVED, collect=tmp_path) as server:
        client = GameClient(f"tcp://127.0.0.1:{server.tcp}", "a")
        client.start()
        for step in range(3):
            client.tick([0.1 * step, 0.2, 0.3], 2.0 if step else None)
    (path,) = list_episodes(tmp_path)
    with np.load(path) as episode:
        assert episode["vanished"]
        assert episode["reward"].tolist() == [2.0, 2.0]
        assert episode["obs"][:, 0].tolist() == pytest.approx([0.0, 0.05, 0.1])
    client.close()
