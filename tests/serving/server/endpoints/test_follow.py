"""A server that goes on with newer checkpoints, under load; and one that rolls back what fails."""

import asyncio
import itertools
import json
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

from penstock.errors import BundleError, CheckpointError
from penstock.serving.bundle import DamagedBundleError
from penstock.serving.server.endpoints.follow import Follower
from penstock.serving.server.policy.source import Source
from tests.serving.server.harness import (
    DEADLY,
    TRAP,
    Game,
    Run,
    Running,
    call,
    observations,
    policy_of,
    serving,
    source_of,
)


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def asked(game: Game, session: str, obs) -> list[float]:
    return json.loads(game.ask(session, "tick", tick(obs)))["action"]


def answer_of(version: int, obs) -> list[float]:
    """What a version of the policy `plain` answers."""
    return policy_of("plain", 1 if version == 7 else version)(obs).tolist()


def loaded(server: Running) -> list[str]:
    """The versions that are loaded, once those without a task have ended."""
    call(server, server.endpoint.sweep)
    return list(server.endpoint.versions)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_newer_checkpoint_takes_over_without_a_lost_request(workers: int) -> None:
    row = observations(1)[0]
    over, found = threading.Event(), []

    def tick_on(port: int) -> None:
        with Game(port) as game:
            game.ask("g", "start")
            while not over.is_set():
                found.append(asked(game, "g", row))

    with serving("plain", workers=workers) as server:
        run = Run(server)
        thread = threading.Thread(target=tick_on, args=(server.tcp,))
        thread.start()
        while not found:
            time.sleep(0.005)
        run.publish(7)
        assert server.endpoint.stable.number == 7
        run.publish(8)
        assert server.endpoint.stable.number == 8
        with Game(server.tcp) as game:
            assert json.loads(game.ask("", "", tick(row)))["action"] == answer_of(8, row)
        while found[-1] != answer_of(8, row):
            time.sleep(0.005)
        over.set()
        thread.join()
        assert loaded(server) == ["8"]
    changes = sum(one != other for one, other in itertools.pairwise(found))
    assert found[0] == answer_of(7, row)
    assert found[-1] == answer_of(8, row)
    assert changes == 1


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (13, "checkpoint 13 has been altered"),
        (14, "NaN or infinity"),
        (16, "version 16 has other spaces"),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_said_once_counted_and_not_tried_again(version, why, caplog) -> None:
    row = observations(1)[0]
    with serving("plain") as server, Game(server.tcp) as game:
        run = Run(server)
        for _ in range(3):
            run.publish(version)
        assert json.loads(game.ask("", "", tick(row)))["action"] == answer_of(7, row)
        page = server.server._service.metrics.page("")[0].decode()
        assert 'penstock_versions_refused_total{policy="toy"} 1.0' in page
        assert 'penstock_policy_version{policy="toy"} 7.0' in page
        run.publish(17)
        assert server.endpoint.stable.number == 17
    lines = [record.getMessage() for record in caplog.records if "goes on" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("toy: version 7 goes on: ")
    assert why in lines[0]
    assert "\n" not in lines[0]


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (CheckpointError("run x has no checkpoint"), 0),
        (BundleError("there is no folder x"), 0),
        (DamagedBundleError("bundle x cannot be used: policy.onnx has been altered"), 1),
    ],
)
def test_what_cannot_be_read_is_said_once_and_counted_if_it_is_a_damaged_version(error, counted: int, caplog) -> None:
    def newest() -> Source:
        raise error

    with serving("plain") as server:
        follower = Follower(server.endpoint, newest, server.start, server.endpoint.switch)
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(follower.look(), server.loop).result(120.0)
        assert server.endpoint.refused == counted
    assert caplog.text.count(str(error)) == 1


def test_an_older_version_is_said_once(caplog) -> None:
    with serving("plain") as server:
        run = Run(server)
        run.publish(8)
        for _ in range(2):
            run.publish(7)
        assert server.endpoint.stable.number == 8
    lines = [record.getMessage() for record in caplog.records if "goes on" in record.getMessage()]
    assert lines == ["toy: version 8 goes on: version 7, which is there now, is older; a new start would serve it"]


def test_workers_that_do_not_start_leave_the_present_version(caplog) -> None:
    with serving("plain", workers=1) as server, Game(server.tcp) as game:
        row = observations(1)[0]

        def start(source, policy, returns):
            # The workers load a checkpoint that is damaged; this process does not.
            return server.start(source._replace(checkpoint="update-00000013"), policy, returns)

        newest = source_of("plain")._replace(checkpoint="update-00000008", version=8)
        follower = Follower(server.endpoint, lambda: newest, start, server.endpoint.switch)
        asyncio.run_coroutine_threadsafe(follower.look(), server.loop).result(120.0)
        assert json.loads(game.ask("", "", tick(row)))["action"] == answer_of(7, row)
        assert loaded(server) == ["7"]
    assert "version 7 goes on: a worker process ended before it was ready" in caplog.text


def test_sessions_keep_their_memory_over_a_switch(caplog) -> None:
    obs = observations(6)
    old, new = policy_of("memory").session(1), policy_of("memory", 8).session(1)
    wanted = [old.act(row[None])[0] for row in obs[:3]]
    new.carry = old.carry
    wanted += [new.act(row[None])[0] for row in obs[3:]]
    with serving("memory") as server, Game(server.tcp) as game:
        game.ask("g", "start")
        found = [asked(game, "g", row) for row in obs[:3]]
        Run(server, "memory").publish(8)
        found += [asked(game, "g", row) for row in obs[3:]]
    assert caplog.messages == ["toy: version 8 answers in place of version 7"]
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)


def test_a_canary_answers_its_share_of_sessions_and_other_requests() -> None:
    row = observations(1)[0]
    with serving("plain") as server, Game(server.tcp) as game:
        Run(server, share=0.25).publish(8)
        for number in range(8):
            game.ask(f"s{number}", "start")
        of_sessions = [asked(game, f"s{number}", row) for number in range(8)]
        of_others = [json.loads(game.ask("", "", tick(row)))["action"] for _ in range(8)]
        for found in (of_sessions, of_others):
            assert found.count(answer_of(8, row)) == 2
            assert found.count(answer_of(7, row)) == 6
        page = server.server._service.metrics.page("")[0].decode()
    for line in (
        'penstock_version_share{policy="toy",version="7"} 0.75',
        'penstock_version_share{policy="toy",version="8"} 0.25',
        'penstock_sessions{policy="toy",version="7"} 6.0',
        'penstock_sessions{policy="toy",version="8"} 2.0',
        'penstock_batch_rows_sum{policy="toy",version="7"} 12.0',
        'penstock_batch_seconds_count{policy="toy",version="8"} 4.0',
    ):
        assert line in page


def test_sessions_with_memory_stay_with_their_version_until_they_end() -> None:
    obs = observations(8)
    alone = {7: policy_of("memory").session(1), 8: policy_of("memory", 8).session(1)}
    with serving("memory") as server, Game(server.tcp) as game:
        run = Run(server, "memory", share=0.5)
        game.ask("old", "start")
        run.publish(8)
        game.ask("stable", "start")
        game.ask("new", "start")
        for number, row in enumerate(obs):
            if number == 4:
                call(server, server.endpoint.promote)
            wanted = {version: session.act(row[None])[0] for version, session in alone.items()}
            np.testing.assert_array_equal(np.float32(asked(game, "old", row)), wanted[7])
            np.testing.assert_array_equal(np.float32(asked(game, "stable", row)), wanted[7])
            np.testing.assert_array_equal(np.float32(asked(game, "new", row)), wanted[8])
        game.ask("later", "start")
        first = policy_of("memory", 8).session(1).act(obs[:1])[0]
        np.testing.assert_array_equal(np.float32(asked(game, "later", obs[0])), first)
        game.ask("old", "stop")
        assert loaded(server) == ["7", "8"]
        run.publish(9)  # two versions are loaded, so it waits
        assert loaded(server) == ["7", "8"]
        game.ask("stable", "stop")
        assert loaded(server) == ["8"]
        run.publish(9)
        assert loaded(server) == ["8", "9"]


def test_a_rollback_by_hand_loses_neither_requests_nor_memory() -> None:
    obs = observations(6)
    new, old = policy_of("memory", 8).session(1), policy_of("memory").session(1)
    wanted = [new.act(row[None])[0] for row in obs[:3]]
    old.carry = new.carry
    wanted += [old.act(row[None])[0] for row in obs[3:]]
    with serving("memory") as server, Game(server.tcp) as game:
        run = Run(server, "memory", share=1.0)
        run.publish(8)
        game.ask("g", "start")
        found = [asked(game, "g", row) for row in obs[:3]]
        call(server, lambda: server.endpoint.roll_back("the test wants it"))
        found += [asked(game, "g", row) for row in obs[3:]]
        assert loaded(server) == ["7"]
        run.publish(8)
        assert loaded(server) == ["7"]
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_canary_that_fails_is_rolled_back_and_the_request_is_answered(workers: int, caplog) -> None:
    row, trap = observations(1)[0], np.full(3, TRAP)
    with serving("plain", workers=workers) as server, Game(server.tcp) as game:
        Run(server, share=1.0).publish(15)
        game.ask("g", "start")
        assert asked(game, "g", row) == answer_of(15, row)
        assert asked(game, "g", trap) == answer_of(7, trap)
        assert asked(game, "g", row) == answer_of(7, row)
        assert loaded(server) == ["7"]
        page = server.server._service.metrics.page("")[0].decode()
        assert 'penstock_rollbacks_total{policy="toy"} 1.0' in page
    lines = [line for line in caplog.messages if "rolled back" in line]
    assert lines == ["toy: version 15 was rolled back, and version 7 goes on: the policy failed"]


@pytest.mark.nightly  # Six seconds. Shorter: a canary that refuses a request, above.
def test_a_canary_whose_workers_die_of_a_request_is_rolled_back() -> None:
    deadly = np.full(3, DEADLY)
    with serving("plain", workers=1) as server, Game(server.tcp) as game:
        Run(server, share=1.0).publish(15)
        game.ask("g", "start")
        assert asked(game, "g", deadly) == answer_of(7, deadly)
        assert server.endpoint.rollbacks == 1
        assert server.endpoint.stable.number == 7


def test_kill_9_of_a_canarys_worker_is_no_reason_to_roll_it_back() -> None:
    rows = observations(60)
    alone = policy_of("memory", 8).session(1)
    wanted = [alone.act(row[None])[0] for row in rows]
    with serving("memory", workers=1) as server, Game(server.tcp) as game:
        Run(server, "memory", share=1.0).publish(8)
        game.ask("g", "start")
        found = []
        for number, row in enumerate(rows):
            if number == 20:
                os.kill(server.endpoint.versions["8"].engine._workers[0].process.pid, signal.SIGKILL)
            found.append(asked(game, "g", row))
        assert server.endpoint.rollbacks == 0
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)


def test_requests_that_wait_for_a_canary_are_answered_when_it_is_rolled_back() -> None:
    rows = observations(20)
    with serving("plain") as server, Game(server.tcp) as game:
        Run(server, share=1.0).publish(8)
        canary = server.endpoint.versions["8"]
        call(server, lambda: setattr(canary.engine, "is_free", lambda: False))
        for number in range(20):
            game.ask(f"s{number}", "start")
        for number, row in enumerate(rows):
            game.send(f"s{number}", "tick", tick(row))
        while canary.queued < 20:
            time.sleep(0.01)
        call(server, lambda: server.endpoint.roll_back("the test wants it"))
        found = [json.loads(game.receive()[1])["action"] for _ in rows]
    assert found == [answer_of(7, row) for row in rows]


def test_metrics_count_a_version_by_its_number_only_while_it_is_loaded() -> None:
    with serving("plain") as server:
        run = Run(server)
        for version in range(8, 12):
            run.publish(version)
        assert loaded(server) == ["11"]
        page = server.server._service.metrics.page("")[0].decode()
    assert set(re.findall(r'version="(\d+)"', page)) == {"11"}
