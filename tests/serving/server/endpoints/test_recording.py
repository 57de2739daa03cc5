"""Episodes that a server keeps: what a client saw, what it was answered, what it was paid."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from penstock.clients import GameClient
from penstock.config.commands import ServeOptions
from penstock.config.flags import options_from_arguments
from penstock.doubles import FakeGame, Script
from penstock.errors import BadDataError, ConfigError
from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode, list_episodes, read_episode
from penstock.serving.server.command import serve
from penstock.serving.server.endpoints import recording
from penstock.serving.server.endpoints.recording import Recorder
from tests.serving.server.harness import SPACES, Game, make_idle, observations, policy_of, serving, until

PLAIN = SPACES["plain"]


def kept(folder: Path, kind: str = "plain") -> list[KeptEpisode]:
    return [read_episode(path, SPACES[kind]) for path in list_episodes(folder)]


def tick(obs, reward: object = None) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist(), "reward": reward}).encode()


@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_an_episode_is_kept_as_it_was_played(tmp_path, scheme: str) -> None:
    obs = observations(4)
    with serving("plain", collect=tmp_path) as server:
        url = f"{scheme}://127.0.0.1:{getattr(server, scheme)}"
        actions = FakeGame(GameClient(url, "g")).play(Script(obs, (1.0, 0.5, -2.0)))
    (episode,) = kept(tmp_path)
    np.testing.assert_array_equal(episode.obs["obs"], obs)
    np.testing.assert_array_equal(episode.action, np.array(actions, np.float32))
    np.testing.assert_array_equal(episode.action, policy_of("plain")(obs[:3]))
    assert episode.reward.tolist() == [1.0, 0.5, -2.0]
    assert (episode.session, episode.terminated, episode.vanished) == ("g", True, False)


@pytest.mark.parametrize("kind", ["nested", "masked", "parts", "memory"])
def test_all_kinds_of_observations_and_actions_are_kept(tmp_path, kind: str) -> None:
    nested = {"dial": [0.5, 0.5], "which": 2}
    obs = nested if kind == "nested" else [0.1, 0.2, 0.3]
    more = {"action_mask": [1, 0, 0, 1]} if kind == "masked" else {}
    with serving(kind, collect=tmp_path) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        game.ask("g", "tick", json.dumps({"obs": obs, **more}).encode())
        game.ask("g", "tick", json.dumps({"obs": obs, "reward": 1, **more}).encode())
        game.ask("g", "stop", json.dumps({"obs": obs, "reward": 2, **more}).encode())
    (episode,) = kept(tmp_path, kind)
    assert len(episode.action) == 2
    assert {len(values) for values in episode.obs.values()} == {3}
    assert episode.reward.tolist() == [1.0, 2.0]
    assert not episode.terminated


@pytest.mark.parametrize("ending", ["stop", "no JSON", "two rows", "server", "idle", "anew"])
def test_an_episode_whose_client_vanishes_ends_before_its_last_action(tmp_path, ending: str) -> None:
    obs = observations(3)
    with serving("plain", collect=tmp_path) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        for number, row in enumerate(obs):
            game.ask("g", "tick", tick(row, number))
        said = {"stop": b"", "no JSON": b"the end", "two rows": tick(obs[:2], 1.0)}
        if ending in said:
            game.ask("g", "stop", said[ending])
        if ending == "idle":
            make_idle(server)
        while ending == "idle" and not server.endpoint.expired:
            time.sleep(0.01)
        if ending == "anew":
            game.socket.close()
            until(lambda: not server.service.connections)
            with Game(server.tcp) as again:
                again.ask("g", "start")
    (episode,) = kept(tmp_path)
    np.testing.assert_array_equal(episode.obs["obs"], obs)
    assert len(episode.action) == 3
    assert episode.reward.tolist() == [1.0, 2.0]
    assert episode.vanished
    assert not episode.terminated


def test_a_terminated_episode_may_end_without_an_observation(tmp_path) -> None:
    obs = observations(1)
    with serving("plain", collect=tmp_path) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        game.ask("g", "tick", tick(obs[0]))
        game.ask("g", "stop", b'{"reward": 3, "terminated": true}')
    (episode,) = kept(tmp_path)
    np.testing.assert_array_equal(episode.obs["obs"], obs[[0, 0]])
    assert (episode.reward.tolist(), episode.terminated) == ([3.0], True)


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        (None, "holds no reward"),
        ("much", "holds the reward 'much', which is no number of float32"),
        (True, "True"),
        (1e300, "1e"),
    ],
)
def test_without_a_reward_the_client_is_answered_and_nothing_is_kept(
    tmp_path, reward: object, why: str, caplog
) -> None:
    obs = observations(2)
    with serving("plain", collect=tmp_path) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        game.ask("g", "tick", tick(obs[0]))
        found = json.loads(game.ask("g", "tick", tick(obs[1], reward)))["action"]
        game.ask("g", "stop", tick(obs[0], 1.0))
        page = server.server._service.metrics.page("")[0].decode()
    assert np.float32(found).tolist() == policy_of("plain")(obs[1]).tolist()
    assert kept(tmp_path) == []
    assert 'penstock_episodes_lost_total{policy="toy"} 1.0' in page
    assert "an episode of session 'g' is not kept: a tick holds" in caplog.messages[-1]
    assert why in caplog.messages[-1]


def test_exploring_answers_are_kept_as_they_were_sent(tmp_path) -> None:
    obs = observations(33)
    with serving("plain", collect=tmp_path, explore=0.5) as server:
        client = GameClient(f"tcp://127.0.0.1:{server.tcp}", "g")
        actions = FakeGame(client).play(Script(obs, [0.0] * 32))
    (episode,) = kept(tmp_path)
    np.testing.assert_array_equal(episode.action, np.array(actions, np.float32))
    greedy = (episode.action == policy_of("plain")(obs[:32])).all(axis=1)
    assert 0 < greedy.sum() < 32
    assert (episode.action >= (-2.0, 0.0)).all()
    assert (episode.action <= (2.0, 10.0)).all()


def test_exploring_answers_keep_to_the_mask(tmp_path) -> None:
    with serving("masked", collect=tmp_path, explore=1.0) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        body = json.dumps({"obs": [0.1, 0.2, 0.3], "action_mask": [0, 1, 0, 1], "reward": 0}).encode()
        found = {json.loads(game.ask("g", "tick", body))["action"] for _ in range(32)}
    assert found == {1, 3}


def test_requests_outside_of_sessions_and_other_policies_are_not_kept(tmp_path) -> None:
    obs = observations(1)[0]
    with serving("plain", also={"other": "plain"}, collect=tmp_path, explore=1.0) as server, Game(server.tcp) as game:
        found = json.loads(game.ask("", "", tick(obs)))["action"]
        game.ask("g", "start", key="policy=other")
        game.ask("g", "tick", tick(obs))
        game.ask("g", "stop", tick(obs, 1.0))
    assert np.float32(found).tolist() == policy_of("plain")(obs).tolist()
    assert kept(tmp_path) == []


def test_the_oldest_files_go_when_there_are_too_many_bytes(tmp_path) -> None:
    obs = {"obs": observations(101)}
    episode = KeptEpisode("g", obs, np.zeros((100, 2), np.float32), np.zeros(100, np.float32), True, False)
    (tmp_path / "episode-00000009.npz.partial").write_bytes(b"half")
    files = EpisodeFiles(tmp_path, np.inf, 12_000)
    for _ in range(6):
        files.add(episode)
    names = [path.name for path in list_episodes(tmp_path)]
    assert names == [f"episode-{number:08d}.npz" for number in range(7 - len(names), 7)]
    assert 2 <= len(names) < 6
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 12_000
    again = EpisodeFiles(tmp_path, np.inf, 12_000)
    again.add(episode)
    assert list_episodes(tmp_path)[-1].name == "episode-00000007.npz"
    assert len(list_episodes(tmp_path)) == len(names)


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_server_that_begins_takes_no_episode_from_the_one_that_it_replaces(tmp_path, monkeypatch, is_linked) -> None:
    former, link = EpisodeFiles(tmp_path, np.inf), os.link

    def begin_meanwhile(partial, path) -> None:
        monkeypatch.setattr(os, "link", link)
        if is_linked:
            link(partial, path)
        EpisodeFiles(tmp_path, np.inf)
        if not is_linked:
            link(partial, path)

    monkeypatch.setattr(os, "link", begin_meanwhile)
    for _ in range(2):
        former.add(KeptEpisode("a", {"obs": np.zeros((2, 1))}, np.zeros(1), np.zeros(1), True, False))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["episode-00000001.npz", "episode-00000002.npz"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_server_that_is_replaced_overwrites_no_episode_of_its_successor(tmp_path, monkeypatch, has_links) -> None:
    """The former one writes its open episodes at its end. The new one may have begun by then."""
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_: os.open(tmp_path / "none", os.O_RDONLY))
    gone = tmp_path / "episode-00000009.npz"
    monkeypatch.setattr("penstock.saved_runs.episodes.list_episodes", lambda _: [gone])
    former, successor = (EpisodeFiles(tmp_path, np.inf) for _ in range(2))
    for session, files in (("a", former), ("b", successor), ("c", former), ("d", former), ("e", successor)):
        action, reward = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
        files.add(KeptEpisode(session, {"obs": observations(2)}, action, reward, True, False))
    assert [episode.session for episode in kept(tmp_path)] == ["a", "b", "c", "d", "e"]
    assert len(list(tmp_path.iterdir())) == 5


def test_an_episode_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch) -> None:
    def full(file, **arrays) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    episode = KeptEpisode("a", {"obs": np.zeros((2, 1))}, np.zeros(1), np.zeros(1), True, False)
    with pytest.raises(OSError, match="No space left on device"):
        EpisodeFiles(tmp_path, np.inf).add(episode)
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded(tmp_path, monkeypatch) -> None:
    """Of a long episode the front is kept. Rows that would need too much memory are not kept at all."""
    fields, action = {"obs": observations(1)}, np.zeros((1, 2), np.float32)
    # A small row: most of it are Python's objects.
    row = recording._ROW_BYTES + 2 * recording._ARRAY_BYTES + fields["obs"].nbytes + action.nbytes
    assert row > 10 * (fields["obs"].nbytes + action.nbytes)
    monkeypatch.setattr(recording, "EPISODE_BYTES", 5 * row)
    monkeypatch.setattr(recording, "_HELD_BYTES", 50 * row)
    recorder = Recorder("toy", tmp_path, 1e9, PLAIN, 0.0)
    long = recorder.begin("long")
    for _ in range(50):
        long.add(fields, action, 1.0)
    # Its session may last for long. The rows go to the disk at once, and nobody else keeps them.
    assert not long.rows
    many = [recorder.begin(str(number)) for number in range(30)]
    for _ in range(3):
        for episode in many:
            episode.add(fields, action, 1.0)
    for episode in many:
        episode.end(fields, 1.0, True)
    recorder.close()
    found = kept(tmp_path)
    assert (found[0].session, len(found[0].action), found[0].vanished) == ("long", 6, True)
    assert len(found) == recorder.kept
    assert recorder.kept + recorder.lost == 31
    assert recorder.lost > 0
    assert recorder.has_room()


def test_a_full_disk_costs_episodes_and_no_reply(tmp_path, caplog) -> None:
    folder = tmp_path / "no folder"
    folder.write_text("")
    recorder = Recorder("toy", folder / "below", 1e9, PLAIN, 0.0)
    episode = recorder.begin("g")
    fields, action = {"obs": observations(1)}, np.zeros((1, 2), np.float32)
    np.testing.assert_array_equal(episode.add(fields, action, None), action)
    episode.end(fields, 1.0, True)
    recorder.close()
    assert (recorder.kept, recorder.lost) == (0, 1)
    assert "an episode is not kept: Not a directory" in caplog.messages[-1]


def test_after_kill_9_every_file_is_whole(tmp_path) -> None:
    """A process that writes episode after episode is killed at no particular moment."""
    program = (
        "import sys; import numpy as np; from pathlib import Path; "
        "from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode; "
        "files = EpisodeFiles(Path(sys.argv[1]), 50); zeros = np.zeros; "
        "e = KeptEpisode('g', {'obs': zeros((501, 3), 'f4')}, zeros((500, 2), 'f4'), zeros(500, 'f4'), True, False)\n"
        "while True: files.add(e)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    while len(list_episodes(tmp_path)) < 20:
        assert process.poll() is None
        time.sleep(0.001)
    os.kill(process.pid, 9)
    process.wait()
    assert len(kept(tmp_path)) >= 20


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"obs": np.zeros((3, 4), np.float32)}, "its obs is float32 [3, 4], not float32 [3, 3]"),
        ({"reward": np.full(2, np.nan, np.float32)}, "its reward holds NaN"),
        ({"action": np.zeros((2, 2), object)}, "is no kept episode"),
        (
            {"action": np.array([[0, 0], [0, 300]], np.float32)},
            "action 300 of step 1 is not within 0 to 10, as its space is; check its unit",
        ),
        (None, "is no kept episode"),
    ],
)
def test_a_file_that_is_no_episode_of_this_policy_is_named(tmp_path, change, text: str) -> None:
    path = tmp_path / "episode-00000001.npz"
    right = {
        "obs": np.zeros((3, 3), np.float32),
        "action": np.zeros((2, 2), np.float32),
        "reward": np.zeros(2, np.float32),
        "terminated": np.array(True),
        "vanished": np.array(False),
        "session": np.array("g"),
    }
    np.savez(path, **{**right, **(change or {})})
    if change is None:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadDataError, match="episode-00000001") as error:
        read_episode(path, PLAIN)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--collect", "kept", "--codec", "raw"), "--collect needs --codec json"),
        (("--explore", "0.1"), "--explore is for episodes that are kept"),
        (("--collect_bytes", "1e6"), "--collect_bytes is for episodes that are kept"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(arguments: tuple[str, ...], text: str) -> None:
    options = options_from_arguments(ServeOptions, ["run", *arguments])
    with pytest.raises(ConfigError, match=text):
        serve(options, "penstock.run:load_policy", print)
