"""Sessions of games: their rows are compared with rollouts written by hand."""

import contextlib
import gc
import http.client
import math
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.clients import AgentsClient, EpisodeLostError, GameClient, RefusedError
from penstock.doubles import FakeGame, Script, rehearse
from penstock.errors import PenstockError
from penstock.games.sessions import GameSteps
from penstock.saved_runs.episodes import EpisodeFiles
from tests.games import agents

AGENT = "tests.games.agents:Counter"
PLAIN = "tests.games.agents:Plain"
both_agents = pytest.mark.parametrize("agent", [AGENT, PLAIN])
DEEP = 1000 * b"[" + 1000 * b"]"
WIDE = b'{"obs": ["%s"%s]}' % (100_000 * b"A", 4000 * b", 0")
"""JSON that is nested too deeply to be written as text."""


def until(condition, seconds: float = 90.0) -> None:
    """Wait until something that another thread does has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def rows(rollout, *names):
    """The rows of the one lane: name -> list."""
    return {name: rollout[name][:, 0].reshape(len(rollout[name]), -1)[:, 0].tolist() for name in names}


@pytest.fixture(autouse=True)
def _forget():
    agents.Counter.seen.clear()


@pytest.mark.parametrize(
    ("scheme", "more"), [("http", {}), ("tcp", {"version": 1}), ("tcp", {"version": 2}), ("tcp", {"delta": True})]
)
@both_agents
def test_an_episode_is_written_row_by_row(agent, scheme, more):
    """T = 4, one episode of three steps, then the first step of the next: one row lies between them."""
    chosen = {"act": lambda obs: obs["obs"][0] % 4, "value": lambda obs: obs["obs"][0, 0]}
    with rehearse(agent, num_steps=4, num_envs=1, **chosen) as stage:
        game = FakeGame(GameClient(getattr(stage, scheme), "g", **more))
        assert game.play(Script([[1], [2], [3], [9]], [10.0, 20.0, 30.0])) == [1, 2, 3]
        game.play(Script([[5], [6]], [40.0]))
        until(lambda: stage.learner.rollouts)
        found = stage.learner.rollouts[0]
    assert rows(found, "obs", "action", "reward", "terminated", "truncated", "valid", "value") == {
        "obs": [1, 2, 3, 9, 5],
        "action": [1, 2, 3, 1, 0],
        "reward": [10, 20, 30, 0, 0],
        "terminated": [False, False, True, False, False],
        "truncated": [False] * 5,
        # Row 3 holds the last observation of the ended episode; its outcome is the reset.
        "valid": [True, True, True, False, False],
        # Row 4 begins the next rollout as well. Its value is the bootstrap.
        "value": [1, 2, 3, 9, 5],
    }
    assert found["episode_count"] == 1
    assert (found["episode_return"][0], found["episode_length"][0]) == (60, 3)
    assert found["lane_collected"] == [3]


def test_ticks_of_a_plain_agent_are_answered_at_once(monkeypatch):
    """Its class is asked only where an episode or a rollout begins, for other bodies, and at the end."""
    decoded, decode = [], penstock.Agent.decode
    monkeypatch.setattr(penstock.Agent, "decode", lambda agent, body: (decoded.append(body), decode(agent, body))[1])
    with rehearse(PLAIN, num_steps=4, num_envs=1) as stage, GameClient(stage.tcp, "g") as client:
        client.start()
        client.send("tick", b'{"obs": [0.0]}')
        for number in (1, 2, 3, 4, 5):
            client.send("tick", b'{"obs": [%d], "reward": %d.0}' % (number, number))
        client.send("tick", b'{"obs": [6.0], "reward": 6, "terminated": false}')
        client.stop(terminated=True)
        until(lambda: len(stage.learner.rollouts) == 1)
        assert stage.learner.rollouts[0]["reward"][:4, 0].tolist() == [1, 2, 3, 4]
    assert [body[:11] for body in decoded] == [b'{"obs": [0.', b'{"obs": [4]', b'{"obs": [6.', b'{"terminate']


def test_waiting_in_vain_for_games_ends_with_a_line():
    def wait() -> None:
        with rehearse(AGENT, num_steps=4, num_envs=1, patience=0.0) as stage:
            port = int(stage.tcp.rpartition(":")[2])
            until(lambda: is_closed(port))

    with pytest.raises(
        PenstockError, match=r"no game has asked for .* s: connect one to http://.* or tcp://127\.0\.0\.1:\d+"
    ):
        wait()


def test_a_rehearsal_that_has_failed_says_why_also_if_its_body_fails():
    def play() -> None:
        with rehearse(AGENT, num_envs=1, patience=0.0) as stage:
            until(lambda: is_closed(int(stage.tcp.rpartition(":")[2])))
            GameClient(stage.tcp, "g", patience=0.0).start()

    with pytest.raises(PenstockError, match="no game has asked") as failed:
        play()
    assert isinstance(failed.value.__context__, EpisodeLostError)


def is_closed(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return False
    return True


@both_agents
def test_an_unfinished_rollout_has_the_value_of_its_last_state(agent):
    with rehearse(agent, num_steps=2, num_envs=1, value=lambda obs: 100 + obs["obs"][0, 0]) as stage:
        game = FakeGame(GameClient(stage.tcp, "g"))
        game.begin(Script([[1], [2], [3], [4]], [1.0, 1.0, 1.0]), 4)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "value", "valid")["obs"] == [1, 2, 3]
    assert found["value"][2, 0] == 103
    assert not found["terminated"].any()
    assert not found["truncated"].any()


def test_stop_tells_terminated_and_truncated_apart():
    with rehearse(AGENT, num_steps=2, num_envs=1) as stage:
        client = GameClient(stage.http, "g")
        FakeGame(client).play(Script([[1], [2], [3]], [1.0, 2.0], terminated=False))
        until(lambda: stage.learner.rollouts)
        FakeGame(client).play(Script([[1], [2], [3]], [1.0, 2.0], terminated=True))
        until(lambda: len(stage.learner.rollouts) == 2)
        cut_off, ended = stage.learner.rollouts
    assert rows(cut_off, "terminated", "truncated") == {"terminated": [False] * 3, "truncated": [False, True, False]}
    assert rows(ended, "terminated", "truncated") == {"terminated": [False, True, False], "truncated": [False] * 3}
    # The rollouts ended with their episodes, so no row lies between them.
    assert cut_off["valid"][:2].all()
    assert ended["valid"][:2].all()


@pytest.fixture
def vanishes(monkeypatch: pytest.MonkeyPatch):
    """Plays some ticks with a client that is not seen again, and waits until the node ends its episode.

    The node looks for sessions that have vanished only meanwhile, so a slow machine takes no other for vanished.
    """
    sweep_s = "penstock.games.node._SWEEP_S"
    monkeypatch.setattr(sweep_s, math.inf)

    def play(client: GameClient, script: Script, ticks: int) -> None:
        FakeGame(client).begin(script, ticks)
        client.close()
        monkeypatch.setattr(sweep_s, 0.0)
        until(lambda: agents.Counter.seen)
        monkeypatch.setattr(sweep_s, math.inf)

    return play


@pytest.mark.parametrize(("idle_seconds", "reconnect_s"), [(0.0, 1000.0), (1000.0, 0.0)], ids=["idle", "parted"])
def test_a_client_that_vanishes_ends_its_episode_as_truncated_and_loses_no_row(
    vanishes, monkeypatch, idle_seconds, reconnect_s
):
    """T = 4: rows 0 and 1 have an outcome, row 2 has none. It becomes the row between the episodes."""
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", reconnect_s)
    with rehearse(AGENT, num_steps=4, num_envs=1, idle_seconds=idle_seconds) as stage:
        vanishes(GameClient(stage.tcp, "g"), Script([[1], [2], [3]], [10.0, 20.0]), 3)
        FakeGame(GameClient(stage.tcp, "h")).begin(Script([[7], [8]], [30.0]), 2)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "reward", "terminated", "truncated", "valid") == {
        "obs": [1, 2, 3, 7, 8],
        "reward": [10, 20, 0, 30, 0],
        "terminated": [False] * 5,
        "truncated": [False, True, False, False, False],
        "valid": [True, True, False, True, False],
    }
    assert found["episode_count"] == 1
    assert (found["episode_return"][0], found["episode_length"][0]) == (30, 2)
    assert found["lane_collected"] == [3]
    (name, _, seen, last, terminated, truncated, vanished) = agents.Counter.seen[0]
    assert (name, seen, last) == ("g", [[1], [2], [3]], [3])
    assert (terminated, truncated, vanished) == (False, True, True)


def test_a_game_that_crashed_starts_its_session_again_at_once(monkeypatch):
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", 1000.0)
    with rehearse(AGENT, num_steps=4, num_envs=1, idle_seconds=1000.0) as stage:
        crashed = GameClient(stage.tcp, "g", version=1)
        FakeGame(crashed).begin(Script([[1], [2], [3]], [10.0, 20.0]), 3)
        crashed.close()
        # Of version 1: it has no session to go on with, and no other name.
        again = GameClient(stage.tcp, "g", version=1)
        again.start()
        with pytest.raises(EpisodeLostError), GameClient(stage.tcp, "g", version=1, patience=0.2) as other:
            other.start()
        again.tick([7])
        again.tick([8], 30.0)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "valid") == {"obs": [1, 2, 3, 7, 8], "valid": [True, True, False, True, False]}
    (_, _, _, _, terminated, truncated, vanished) = agents.Counter.seen[0]
    assert (terminated, truncated, vanished) == (False, True, True)


def test_a_client_that_vanishes_at_the_beginning_of_a_rollout_leaves_no_trace_in_it(vanishes):
    with rehearse(AGENT, num_steps=2, num_envs=1, idle_seconds=0.0) as stage:
        vanishes(GameClient(stage.tcp, "g"), Script([[1], [2], [3]], [10.0, 20.0]), 3)
        FakeGame(GameClient(stage.tcp, "h")).play(Script([[7], [8], [9]], [30.0, 40.0]))
        until(lambda: len(stage.learner.rollouts) == 2)
        whole, following = stage.learner.rollouts
    assert rows(whole, "obs", "reward", "valid") == {
        "obs": [1, 2, 3],
        "reward": [10, 20, 0],
        "valid": [True, True, False],
    }
    assert rows(following, "obs", "reward", "valid") == {
        "obs": [7, 8, 9],
        "reward": [30, 40, 0],
        "valid": [True, True, False],
    }
    assert (following["episode_count"], following["episode_return"][0]) == (1, 70)


@both_agents
def test_a_client_that_vanishes_at_its_first_tick_gives_its_row_away(agent):
    with rehearse(agent, num_steps=3, num_envs=1) as stage:
        client = GameClient(stage.tcp, "g")
        game = FakeGame(client)
        game.play(Script([[1], [2]], [10.0]))
        game.begin(Script([[5]], []), 1)
        client.stop()
        game.begin(Script([[7], [8]], [30.0]), 2)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "reward", "valid", "truncated") == {
        "obs": [1, 2, 7, 8],
        "reward": [10, 0, 30, 0],
        "valid": [True, False, True, False],
        "truncated": [False] * 4,
    }


def test_a_client_of_an_agent_with_bodies_of_its_own_may_vanish_or_stop_without_a_word(vanishes, monkeypatch):
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", 0.0)
    with rehearse("tests.games.agents:Binary", num_steps=8, num_envs=1) as stage:
        client = GameClient(stage.tcp, "g")
        client.start()
        for step in range(2):
            client.send("tick", struct.pack("<ff", step, step))
        client.stop()
        assert agents.Counter.seen.pop()[-1]
        # Whatever the agent says to it: nobody asks a vanished client again.
        client.start()
        client.send("tick", struct.pack("<ff", 7, 0))
        client.close()
        monkeypatch.setattr("penstock.games.node._SWEEP_S", 0.0)
        until(lambda: agents.Counter.seen)
        later = GameClient(stage.tcp, "later", patience=90.0)
        later.start()


def test_a_session_that_has_come_back_does_not_part_with_its_old_connection(monkeypatch):
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", 0.0)
    sweep, sweeps = GameSteps.sweep, []

    def counted(steps: GameSteps) -> None:
        sweep(steps)
        sweeps.append(time.monotonic())

    monkeypatch.setattr(GameSteps, "sweep", counted)
    with rehearse(AGENT, num_steps=8, num_envs=1) as stage:
        old, new = GameClient(stage.tcp, "g"), GameClient(stage.tcp, "g")
        old.start()
        old.tick([1])
        new.send("tick", b'{"obs": [2], "reward": 1.0}')
        old.close()
        # By the second sweep the node has seen that the connection is closed. The third one would end the session.
        before = len(sweeps)
        until(lambda: len(sweeps) >= before + 3)
        new.send("tick", b'{"obs": [3], "reward": 1.0}')


@both_agents
def test_a_terminated_episode_needs_no_last_observation(agent):
    with rehearse(agent, num_steps=1, num_envs=1) as stage:
        client = GameClient(stage.http, "g")
        FakeGame(client).begin(Script([[1]], []), 1)
        with pytest.raises(RefusedError, match='stop needs "obs"') as refused:
            client.stop(reward=3.0)
        assert refused.value.status == 400
        client.stop(reward=4.0, terminated=True)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "reward", "terminated") == {"reward": [4, 0], "terminated": [True, False]}


def test_coroutines_encode_pay_and_reply_as_they_like():
    with rehearse(f"{AGENT.partition(':')[0]}:Doubling", num_steps=2, num_envs=1, act=lambda _: 3) as stage:
        client = GameClient(stage.tcp, "g")
        assert FakeGame(client).play(Script([[1], [2], [3]], [1.0, 2.0])) == [[3, 7], [3, 7]]
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "reward") == {"obs": [2, 4, 6], "reward": [10, 2.5, 0]}


def test_agents_of_one_game_exchange_what_they_see_within_a_tick():
    def play(client, number):
        client.tick([number, 0])
        client.tick([10 * number, 0], 1.0)
        client.tick([0, 0], 1.0)

    with rehearse("tests.games.agents:Talking", num_steps=2, num_envs=2) as stage:
        clients = [GameClient(stage.tcp, f"match-agent-{name}") for name in ("red", "blue")]
        for client in clients:
            client.start()
        threads = [threading.Thread(target=play, args=pair) for pair in zip(clients, (1, 2), strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(stage.learner.rollouts) == 2)
        seen = sorted(rollout["obs"][:2, 0].tolist() for rollout in stage.learner.rollouts)
        # Who leaves is not waited for.
        clients[0].stop([0, 0], 1.0)
        clients[1].tick([5, 0], 1.0)
    assert seen == [[[1, 3], [10, 30]], [[2, 3], [20, 30]]]


def test_an_agent_that_gives_up_waiting_takes_the_round_from_nobody():
    with rehearse("tests.games.agents:Hasty", num_steps=8, num_envs=2) as stage:
        clients = [GameClient(stage.tcp, f"g-agent-{number}") for number in range(2)]
        for client in clients:
            client.start()
        for step in range(3):
            for client in clients:
                client.tick([step, 0])


def test_an_agent_that_cannot_be_made_keeps_no_lane(monkeypatch):
    with rehearse("tests.games.agents:Flaky", num_envs=1) as stage:
        client = GameClient(stage.http, "g", patience=0.0)
        monkeypatch.setattr(agents.Flaky, "fails", True)
        with pytest.raises(RefusedError, match="failed"):
            client.start()
        monkeypatch.setattr(agents.Flaky, "fails", False)
        client.start()


def test_structured_observations_and_actions():
    def act(obs):
        assert obs["obs.b"] == 2
        return [1, 0.5, -0.25]

    with rehearse("tests.games.agents:Structured", act=act) as stage:
        client = GameClient(stage.http, "g")
        client.start()
        assert client.tick({"a": [0.5, 1.0], "b": 2}) == {"go": 1, "how": [0.5, -0.25]}


@pytest.mark.parametrize("agent", [agents.Masked, "tests.games.agents:Masked"], ids=["class", "name"])
def test_masks_reach_the_rollout(agent):
    with rehearse(agent, num_steps=1, act=lambda obs: obs["action_mask"].argmax()) as stage:
        client = GameClient(stage.http, "g")
        client.start()
        assert client.tick([0.5], action_mask=[0, 1, 1]) == 1
        with pytest.raises(RefusedError, match="mask"):
            client.tick([0.5], 1.0)
        assert client.tick([0.5], 1.0, action_mask=[0, 0, 1]) == 2
        until(lambda: stage.learner.rollouts)
        assert stage.learner.rollouts[0]["action_mask"][0, 0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("mask", [None, [0, 0, 0], [1, 0, 0]])
def test_the_last_observation_needs_no_possible_choice(mask):
    with rehearse("tests.games.agents:Masked", num_steps=1, act=lambda obs: obs["action_mask"].argmax()) as stage:
        client = GameClient(stage.http, "g")
        client.start()
        client.tick([0.5], action_mask=[0, 1, 1])
        client.stop([0.75], 1.0, terminated=mask is None, action_mask=mask)
        until(lambda: stage.learner.rollouts)
        assert stage.learner.rollouts[0]["reward"][0, 0] == 1.0


def test_a_tuple_comes_as_an_array_of_json():
    seen = []

    def act(obs):
        seen.append({name: values.tolist() for name, values in obs.items()})
        return 1

    with rehearse("tests.games.agents:Paired", act=act) as stage:
        client = GameClient(stage.http, "g")
        client.start()
        assert client.tick([[1.0, 2.0], 2]) == 1
    assert seen == [{"obs.0": [[1.0, 2.0]], "obs.1": [2]}]


@both_agents
def test_a_stop_and_the_next_start_may_be_asked_for_together(agent):
    with rehearse(agent, num_steps=2, num_envs=1, act=lambda obs: 1) as stage:
        client = AgentsClient(stage.tcp, "g", ["a"])
        client.start()
        stop = b'{"obs": [2], "reward": 1, "terminated": true}'
        start, tick = ("start", "a", b""), ("tick", "a", b'{"obs": [3]}')
        replies = client.send([tick, ("stop", "a", stop), start, tick])
        assert not [reply for reply in replies if isinstance(reply, RefusedError)]
        # The start behind a stop that is refused is refused, too, and the episode goes on.
        wrong, late, last = client.send([("stop", "a", b'{"obs": [1, 2]}'), start, tick])
        assert (wrong.status, late.status) == (400, 409)
        assert not isinstance(last, RefusedError)


@both_agents
@pytest.mark.parametrize("scheme", ["http", "tcp"])
@pytest.mark.parametrize(
    ("send", "status", "text"),
    [
        (lambda client: client.send("tick", b'{"obs": [1, 2]}'), 400, "obs has shape"),
        (lambda client: client.send("tick", b'{"obs": [1], "reward": "x"}'), 400, "reward"),
        (lambda client: client.send("tick", b'{"obs": [1], "reward": NaN}'), 400, "no JSON"),
        (lambda client: client.send("tick", b'{"obs": [1], "reward": 1e60}'), 400, "not finite"),
        (lambda client: client.send("tick", b"[1]"), 400, "no JSON object"),
        (lambda client: client.send("tick", b""), 400, "obs"),
        (lambda client: client.send("stop", b'{"obs": [1], "terminated": 1}'), 400, "terminated"),
        (lambda client: client.send("tick", b'{"obs": %s}' % DEEP), 400, "obs is"),
        (lambda client: client.send("tick", WIDE), 400, "no array of numbers"),
        (lambda client: client.send("tick", b'{"obs": [1], "reward": %s}' % DEEP), 400, "reward is"),
        (lambda client: client.send("stop", b'{"obs": [1], "terminated": %s}' % DEEP), 400, "terminated is"),
        (
            lambda client: client.send("stop", b'{"obs": [1], "info": [1]}'),
            400,
            r"info is '\[1\]', which is no JSON object",
        ),
        (lambda client: client.send("stop", b'{"obs": [1], "info": %s}' % DEEP), 400, "info is"),
        (lambda client: client.stop(info={"won": 1}), 400, 'stop needs "obs"'),
        (lambda client: client.send("jump", b""), 400, "step_kind"),
        (lambda client: client.send("", b""), 400, "this server trains"),
        (lambda client: client.send("start", b""), 409, "has started already"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(agent, scheme, send, status, text):
    with rehearse(agent, num_steps=2, num_envs=1) as stage:
        client = GameClient(getattr(stage, scheme), "g")
        client.start()
        client.tick([1])
        with pytest.raises(RefusedError, match=text) as refused:
            send(client)
        assert refused.value.status == status
        client.tick([2], 5.0)
        client.stop([3], 6.0, terminated=True)
        until(lambda: stage.learner.rollouts)
        assert rows(stage.learner.rollouts[0], "obs", "reward") == {"obs": [1, 2, 3], "reward": [5, 6, 0]}


def test_num_envs_bounds_the_sessions():
    with rehearse(AGENT, num_envs=2) as stage:
        clients = [GameClient(stage.http, f"g{number}", patience=0.0) for number in range(3)]
        clients[0].start()
        clients[1].start()
        with pytest.raises(RefusedError, match="all 2 sessions are taken") as refused:
            clients[2].start()
        assert refused.value.status == 429
        clients[0].stop()
        clients[2].start()


@both_agents
def test_a_lost_connection_goes_on_with_its_session_or_begins_anew(agent):
    with rehearse(agent, num_steps=2, num_envs=1) as stage:
        first = GameClient(stage.tcp, "g")
        FakeGame(first).begin(Script([[1]], []), 1)
        first.close()
        second = GameClient(stage.tcp, "g")
        second.send("tick", b'{"obs": [2], "reward": 1.0}')
        second.close()
        # The same name begins anew: what was open ends as truncated.
        third = GameClient(stage.http, "g")
        third.start()
        third.tick([7])
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert rows(found, "obs", "truncated", "valid") == {
        "obs": [1, 2, 7],
        "truncated": [True, False, False],
        "valid": [True, False, False],
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_whose_stop_is_refused_parts_with_its_connection(monkeypatch, version):
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", 0.0)
    with rehearse(AGENT, num_envs=1, idle_seconds=1000.0) as stage:
        with GameClient(stage.tcp, "g", version=version) as client:
            client.start()
            client.tick([1])
            with pytest.raises((RefusedError, EpisodeLostError)):
                client.stop(reward=3.0)
        GameClient(stage.tcp, "other", patience=90.0).start()
        assert agents.Counter.seen[-1][-1]


def test_a_stop_that_is_refused_after_its_connection_is_lost_parts_with_it(monkeypatch):
    monkeypatch.setattr("penstock.games.sessions._RECONNECT_S", 0.0)
    with rehearse(AGENT, num_envs=1, num_steps=1, idle_seconds=1000.0) as stage:
        stage.learner.hold = True
        client = GameClient(stage.tcp, "g", version=1, timeout=3.0)
        client.start()
        client.tick([1])
        # The learner is busy: this tick waits, and the stop waits behind it.
        for call in (lambda: client.tick([2], 1.0), lambda: client.tick([3], 1.0)):
            with contextlib.suppress(EpisodeLostError):
                call()
        with pytest.raises(EpisodeLostError):
            client.stop(reward=3.0)
        stage.learner.hold = False
        GameClient(stage.tcp, "other", patience=90.0).start()


@both_agents
def test_back_pressure_a_busy_learner_makes_games_wait(agent):
    with rehearse(agent, num_steps=1, num_envs=1) as stage:
        stage.learner.hold = True
        patient, hasty = (GameClient(stage.tcp, "g", timeout=timeout_s) for timeout_s in (90.0, 0.3))
        patient.start()
        patient.tick([1])
        patient.tick([2], 1.0)
        with pytest.raises(EpisodeLostError, match="no reply"):
            hasty.tick([3], 1.0)
        stage.learner.hold = False
        patient.start()
        patient.tick([4])


@both_agents
def test_kept_episodes_are_files_and_the_oldest_go(agent, tmp_path):
    with rehearse(agent, keep_episodes=2, num_envs=1) as stage:
        game = FakeGame(GameClient(stage.tcp, "g"))
        for number in range(3):
            game.play(Script([[number], [5], [6]], [1.0, 2.0]))
        game.begin(Script([[8], [9]], [3.0]), 2)
        GameClient(stage.tcp, "g").send("stop", b"")
        files = sorted(Path(stage.episodes).glob("*"))
        assert [path.name for path in files] == ["episode-00000003.npz", "episode-00000004.npz"]
        whole, cut = (dict(np.load(path)) for path in files)
    assert whole["obs"][:, 0].tolist() == [2, 5, 6]
    assert (whole["action"].tolist(), whole["reward"].tolist()) == ([0, 0], [1, 2])
    assert (bool(whole["terminated"]), bool(whole["vanished"]), str(whole["session"])) == (True, False, "g")
    assert (cut["obs"][:, 0].tolist(), cut["reward"].tolist(), bool(cut["vanished"])) == ([8, 9], [3], True)


@both_agents
def test_an_episode_that_is_open_at_the_end_is_kept(agent, monkeypatch):
    kept = []
    monkeypatch.setattr(EpisodeFiles, "add", lambda _, episode: kept.append(episode))
    with rehearse(agent, keep_episodes=1) as stage:
        FakeGame(GameClient(stage.tcp, "g")).begin(Script([[1], [2], [3]], [10.0, 20.0]), 3)
    (episode,) = kept
    assert (episode.session, episode.vanished, episode.terminated) == ("g", True, False)
    assert (episode.obs["obs"][:, 0].tolist(), episode.reward.tolist(), len(episode.action)) == ([1, 2, 3], [10, 20], 3)


def test_an_episode_that_is_open_at_the_end_takes_the_place_of_none_that_has_ended(monkeypatch):
    written, add = [], EpisodeFiles.add
    monkeypatch.setattr(EpisodeFiles, "add", lambda files, one: written.append(one.vanished) or add(files, one))
    with rehearse(AGENT, keep_episodes=1, num_envs=2) as stage:
        FakeGame(GameClient(stage.tcp, "ended")).play(Script([[1], [2]], [1.0]))
        FakeGame(GameClient(stage.tcp, "open")).begin(Script([[1], [2]], [1.0]), 2)
    assert written == [False]


def test_kept_episodes_hold_what_an_agent_saw_at_each_tick(tmp_path):
    with rehearse("tests.games.agents:Stacking", keep_episodes=1, num_envs=1) as stage:
        FakeGame(GameClient(stage.tcp, "g")).play(Script([1, 2, 3, 9], [1.0, 1.0, 1.0]))
        (path,) = Path(stage.episodes).glob("*")
        assert np.load(path)["obs"].tolist() == [[0, 1], [1, 2], [2, 3], [3, 9]]


def test_a_kept_episode_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    # A row has 12 bytes: one of float32 and one of int64.
    monkeypatch.setattr("penstock.games.kept_rows._EPISODE_BYTES", 30)
    with rehearse(AGENT, keep_episodes=9, num_envs=1) as stage:
        FakeGame(GameClient(stage.tcp, "g")).play(Script([[1], [2], [3], [4], [5]], [1.0, 2.0, 3.0, 4.0]))
        first, last = (dict(np.load(path)) for path in sorted(Path(stage.episodes).glob("*")))
    assert (first["obs"][:, 0].tolist(), first["reward"].tolist(), bool(first["vanished"])) == ([1, 2, 3], [1, 2], True)
    assert (last["obs"][:, 0].tolist(), last["reward"].tolist(), bool(last["vanished"])) == ([4, 5], [4], False)


def test_agents_that_play_no_more_are_forgotten():
    with rehearse("tests.games.agents:Counted", num_envs=2) as stage:
        GameClient(stage.tcp, "world-agent-0").start()
        for number in range(1, 30):
            with GameClient(stage.tcp, f"world-agent-{number}") as client:
                client.start()
                client.stop()
        gc.collect()
        assert len(agents.Counted.alive) <= 4 * 2 + 1


def test_an_episode_that_cannot_be_written_ends_nothing(caplog: pytest.LogCaptureFixture):
    with rehearse(AGENT, keep_episodes=1, num_envs=1) as stage:
        Path(stage.episodes).write_text("no folder")
        game = FakeGame(GameClient(stage.tcp, "g"))
        for _ in range(2):
            game.play(Script([[1], [2]], [1.0]))
    assert caplog.text.count("an episode is not kept: ") == 2


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("Failing", "a mistake of the user"),
        ("Wordy", r"agent Wordy replies with a dict; encode and state\.reply are bytes"),
    ],
)
def test_a_mistake_in_an_agent_ends_the_run_with_its_text(agent: str, text: str):
    def play():
        with rehearse(f"tests.games.agents:{agent}") as stage:
            client = GameClient(stage.tcp, "g")
            client.start()
            with pytest.raises(EpisodeLostError):
                client.tick([1])

    with pytest.raises(penstock.PenstockError, match=text):
        play()


def test_a_run_whose_games_are_only_refused_says_why(caplog: pytest.LogCaptureFixture):
    def play():
        with rehearse("tests.games.agents:Blind", patience=0.5) as stage, GameClient(stage.tcp, "g") as client:
            client.start()
            refused = pytest.raises(RefusedError, match=r"obs has shape \[3\]")
            with contextlib.suppress(EpisodeLostError):
                while True:
                    with refused:
                        client.tick([1])
                    time.sleep(0.01)

    why = r"no tick of a game has fitted for \d+ s; the latest was refused: obs has shape \[3\], wanted \[1\]"
    with pytest.raises(PenstockError, match=why):
        play()
    # It is said once.
    assert caplog.text.count("a request of session g is refused: obs has shape [3]") == 1


def test_one_refused_tick_after_a_long_silence_does_not_end_the_run():
    agent = "tests.games.agents:Plain"
    with rehearse(agent, num_envs=1, patience=2.0) as stage, GameClient(stage.tcp, "g") as client:
        client.start()
        client.tick([1])
        # A game loads its next level: it begins and ends episodes, and asks for no action.
        for _ in range(25):
            time.sleep(0.1)
            client.stop([1])
            client.start()
        with pytest.raises(RefusedError):
            client.tick([1, 2, 3])
        # The node looks for games a few times a second.
        time.sleep(0.5)
        client.tick([1])


def test_a_game_that_crashes_at_each_refused_tick_and_comes_back_counts_as_refused():
    def play():
        with rehearse("tests.games.agents:Blind", patience=5.0) as stage:

            def is_over() -> bool:
                with GameClient(stage.tcp, "g", patience=0.0) as client:
                    try:
                        client.start()
                        client.tick([1])
                    except RefusedError:
                        return False
                    except EpisodeLostError:
                        return True
                raise AssertionError("the tick was not refused")

            until(is_over)

    with pytest.raises(PenstockError, match="no tick of a game has fitted for"):
        play()


def test_a_reward_that_no_float_can_hold_is_refused():
    with rehearse("tests.games.agents:Rich", num_envs=1) as stage, GameClient(stage.http, "g") as client:
        client.start()
        with pytest.raises(RefusedError, match="reward is a whole number too large for a float") as refused:
            client.tick([1])
        assert refused.value.status == 400


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tests.games.agents:NoSpaces", "has no observation_space and no action_space"),
        ("tests.games.agents:Misspelt", "has a method on_tik, which nothing calls; did you mean on_tick"),
        ("tests.games.agents:Countr", "did you mean Counter"),
        ("nowhere", "names no"),
    ],
)
def test_a_wrong_agent_is_one_line(name, text):
    with pytest.raises(penstock.EnvError, match=text), rehearse(name):
        pass


def test_the_rehearsal_of_the_docs_fills_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "games.md").read_text()
    (example,) = [part.partition("```")[0] for part in text.split("```python\n") if "rehearse(" in part]
    # This agent sees one number, not four.
    exec(example.replace("my_game:GameAgent", AGENT).replace("] * 4", "]"), {})
    assert "'reward': array" in capsys.readouterr().out


def test_those_who_watch_over_a_run_find_its_health_and_what_was_asked():
    with rehearse(PLAIN) as stage:
        game = FakeGame(GameClient(stage.http, "g"))
        game.play(Script([[1], [2]], [1.0]))

        def get(path: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection(stage.http.removeprefix("http://"), timeout=90.0)
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

        assert get("/v2/health/live") == (200, '{"live":true}')
        assert get("/v2/health/ready") == (200, '{"ready":true}')
        status, page = get("/metrics")
        assert status == 200
        # A start, a tick and a stop.
        assert 'penstock_requests_total{protocol="gamecore-http",status="200"} 3.0' in page
        status, text = get("/v2/models/policy")
        assert status == 404
        assert "a run that trains has /step, /metrics and /v2/health only" in text


@both_agents
def test_the_info_of_a_stop_gives_the_metrics_of_the_episode(agent):
    """T = 8: an episode of two steps with an info, one without, and one whose client vanishes. A row lies between."""
    names = ("won", "laps")
    with rehearse(agent, num_steps=8, num_envs=1, episode_metrics=names) as stage, GameClient(stage.tcp, "g") as client:
        game = FakeGame(client)
        game.begin(Script([[1], [2]], [10.0]), 2)
        with pytest.raises(RefusedError, match=r"won in the last info of lane 0 of .* is yes, which is no number"):
            client.stop([9], 1.0, terminated=True, info={"won": "yes"})
        client.stop([9], 1.0, terminated=True, info={"won": True, "laps": 2.5, "other": [1]})
        game.play(Script([[3], [9]], [5.0]))
        game.begin(Script([[4], [5]], [6.0]), 2)
        client.stop()
        game.begin(Script([[6], [7]], [2.0]), 2)
        until(lambda: stage.learner.rollouts)
        (found,) = stage.learner.rollouts
    assert found["episode_count"] == 3
    assert found["episode_return"][:3].tolist() == [11.0, 5.0, 6.0]
    np.testing.assert_array_equal(found["episode_metric.won"][:3], [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(found["episode_metric.laps"][:3], [2.5, np.nan, np.nan])


@both_agents
def test_text_in_an_info_takes_no_memory_and_is_refused(agent):
    with rehearse(agent, num_envs=1, episode_metrics=("won",)) as stage, GameClient(stage.tcp, "g") as client:
        FakeGame(client).begin(Script([[1]], []), 1)
        # As one array of NumPy, this would take 1.6 GB.
        for won in (["A" * 100_000, *[0] * 4000], [[1], [2, 3]]):
            with pytest.raises(RefusedError, match=r"won in the last info of .* which is no number") as refused:
                client.stop([9], 1.0, info={"won": won})
            assert refused.value.status == 400
        client.stop([9], 1.0, info={"won": [1]})
