"""Which worker process answers a session, by ``--balance``."""

import json
import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.config.commands import ServeOptions
from penstock.config.flags import options_from_arguments
from penstock.errors import ConfigError
from penstock.serving.server.command import serve
from penstock.serving.server.engines.balance import RoundRobin, Shortest, Sticky
from tests.serving.server.harness import Game, Running, observations, policy_of, serving


@dataclass
class Worker:
    place: int
    rows: int = 0
    has_room: bool = True


class Ask:
    def __init__(self, name: str | None) -> None:
        self.session = None if name is None else self
        self.key = ("gamecore", name)


def test_the_shortest_queue_is_that_with_the_fewest_rows_where_there_is_room() -> None:
    workers = [Worker(0, 5), Worker(1, 2, has_room=False), Worker(2, 3)]
    assert Shortest(3).choose(workers, [Ask("g")]).place == 2


def test_round_robin_takes_one_after_the_other_and_leaves_out_who_has_no_room() -> None:
    workers = [Worker(0, 9), Worker(1), Worker(2, 4)]
    balance = RoundRobin(3)
    assert [balance.choose(workers, [Ask("g")]).place for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    workers[1].has_room = False
    assert [balance.choose(workers, [Ask("g")]).place for _ in range(3)] == [0, 2, 2]


def test_a_sticky_session_stays_with_its_worker_and_moves_on_while_that_is_away() -> None:
    workers, balance = [Worker(place) for place in range(4)], Sticky(4)
    asks = [Ask(str(number)) for number in range(64)]
    homes = {ask.key: balance.choose(workers, [ask]).place for ask in asks}
    assert set(homes.values()) == {0, 1, 2, 3}
    assert homes == {ask.key: Sticky(4).choose(workers, [ask]).place for ask in reversed(asks)}
    left = [worker for worker in workers if worker.place != 2]
    for ask in asks:
        home = homes[ask.key]
        assert balance.choose(left, [ask]).place == (3 if home == 2 else home)


def test_a_batch_is_cut_by_the_workers_of_its_sessions() -> None:
    workers, balance = [Worker(0, 7), Worker(1, 1), Worker(2, 4)], Sticky(3)
    asks = [Ask(None if number % 8 == 0 else str(number)) for number in range(32)]
    parts = balance.parts(asks)
    assert sorted(asks, key=id) == sorted((ask for part in parts for ask in part), key=id)
    assert len(parts) == 4
    for part in parts:
        chosen = {balance.choose(workers, [ask]).place for ask in part}
        assert len(chosen) == 1
        if part[0].session is None:
            assert chosen == {1}


def placed(server: Running) -> dict[int, int]:
    """Place of each worker -> its process."""
    return {worker.place: worker.process.pid for worker in server.endpoint.stable.engine._workers}


@pytest.mark.parametrize("balance", ["round_robin", "sticky"])
def test_answers_and_memory_are_those_of_the_policy_also_when_a_worker_dies(balance: str) -> None:
    rows = observations(24)
    alone = policy_of("memory").session(4)
    wanted = [alone.act(np.repeat(row[None], 4, 0)) for row in rows]
    with serving("memory", workers=2, balance=balance) as server, Game(server.tcp) as game:
        before = placed(server)
        for number in range(4):
            game.ask(f"s{number}", "start")
        found = []
        for t, row in enumerate(rows):
            if t == 8:
                os.kill(before[0], signal.SIGKILL)
            for number in range(4):
                game.send(f"s{number}", "tick", json.dumps({"obs": row.tolist()}).encode())
            found.append([json.loads(game.receive()[1])["action"] for _ in range(4)])
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)


def test_a_balance_needs_workers() -> None:
    options = options_from_arguments(ServeOptions, ["run", "--balance", "sticky", "--workers", "1"])
    with pytest.raises(ConfigError, match="--balance sticky is for several worker processes; give --workers 2"):
        serve(options, "penstock.run:load_policy", print)
