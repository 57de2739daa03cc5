"""A server that goes on with newer checkpoints, under load."""

import asyncio
import itertools
import json
import threading

import numpy as np
import pytest

from penstock.serving.server.follow import Follower
from penstock.serving.server.source import Source
from tests.serving.server.harness import FIRST, Game, Running, observations, policy_of, serving


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def follow(server: Running, follower: Follower) -> None:
    asyncio.run_coroutine_threadsafe(follower.look(), server.loop).result(60.0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_newer_checkpoint_takes_over_without_a_lost_request(workers: int) -> None:
    newest = [FIRST]
    row = observations(1)[0]
    first, second = (policy_of("plain", seed)(row).tolist() for seed in (1, 8))
    assert first != second
    over, found = threading.Event(), []

    def tick_on(port: int) -> None:
        with Game(port) as game:
            game.ask("g", "start")
            while not over.is_set():
                found.append(json.loads(game.ask("g", "tick", tick(row)))["action"])

    with serving("plain", workers=workers) as server:
        source = Source.of_checkpoint("tests.serving.server.harness:load", "plain", FIRST)
        follower = Follower(server.endpoint, source, lambda: newest[0])
        thread = threading.Thread(target=tick_on, args=(server.tcp,))
        thread.start()
        follow(server, follower)
        assert server.endpoint.version == 7
        newest[0] = "update-00000008"
        follow(server, follower)
        assert server.endpoint.version == 8
        newest[0] = "update-00000013"  # it is damaged
        follow(server, follower)
        assert server.endpoint.version == 8
        with Game(server.tcp) as game:
            assert json.loads(game.ask("", "", tick(row)))["action"] == second
        over.set()
        thread.join()
    changes = sum(one != other for one, other in itertools.pairwise(found))
    assert found[0] == first
    assert found[-1] == second
    assert changes == 1


def test_sessions_keep_their_memory_over_a_switch() -> None:
    obs = observations(6)
    old, new = policy_of("memory").session(1), policy_of("memory", 8).session(1)
    wanted = [old.act(row[None])[0] for row in obs[:3]]
    new.carry = old.carry
    wanted += [new.act(row[None])[0] for row in obs[3:]]
    with serving("memory") as server, Game(server.tcp) as game:
        source = Source.of_checkpoint("tests.serving.server.harness:load", "memory", FIRST)
        game.ask("g", "start")
        found = [json.loads(game.ask("g", "tick", tick(row)))["action"] for row in obs[:3]]
        follow(server, Follower(server.endpoint, source, lambda: "update-00000008"))
        found += [json.loads(game.ask("g", "tick", tick(row)))["action"] for row in obs[3:]]
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)
