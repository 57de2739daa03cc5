"""A duel: two players race for coins, and each asks its own address for actions. So one side learns against the other.

    penstock train --config duel.toml --tcp_port 8001 --log_dir first &
    python duel_game.py tcp://localhost:8001                            # the rival moves at random

    penstock train --config duel.toml --tcp_port 8001 --log_dir second &
    penstock serve first/RUN --tcp_port 8002 &                          # the rival is the policy of the first run
    python duel_game.py tcp://localhost:8001 tcp://localhost:8002

With ``penstock serve second/RUN --follow`` the rival is the learner's own latest checkpoint, once there is one. A
second ``penstock train`` at the other address learns, too. The game plays until one of the addresses is gone.
"""

import argparse
import asyncio
import random
from collections.abc import Coroutine

from penstock.clients import AsyncGameClient, EpisodeLostError, RefusedError

CELLS = 11
STEPS = 40


class Field:
    """Two players and a coin in a row of cells. Who comes to the coin alone takes it, and another coin appears."""

    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.players = [0, CELLS - 1]
        self.coin = numbers.randrange(1, CELLS - 1)

    def seen(self, side: int) -> list[float]:
        """What this side sees, each 0 to 1. The second player's field is mirrored."""
        places = [self.players[side], self.players[1 - side], self.coin]
        return [(place if side == 0 else CELLS - 1 - place) / (CELLS - 1) for place in places]

    def move(self, actions: list[int]) -> list[float]:
        """Both move at once. Returns the reward of each: 1 for the coin, -1 if the other has taken it."""
        for side, action in enumerate(actions):
            way = action - 1 if side == 0 else 1 - action
            self.players[side] = min(CELLS - 1, max(0, self.players[side] + way))
        there = [player == self.coin for player in self.players]
        if any(there):
            self.coin = self.numbers.randrange(1, CELLS - 1)
        return [float(there[side]) - float(there[1 - side]) for side in (0, 1)]


class Random:
    """A rival without a policy. It has the calls of a client."""

    async def start(self) -> None:
        """Nothing to begin."""

    async def tick(self, obs: list[float], reward: float | None = None) -> int:
        """Any of the three moves."""
        return random.randrange(3)

    async def stop(self, obs: list[float] | None = None, reward: float | None = None) -> None:
        """Nothing to end."""


async def both(*calls: Coroutine) -> list:
    """Ask both sides at once, and wait for both, also if one of them fails."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


async def duel(sides: list[AsyncGameClient | Random], field: Field) -> float:
    """Play one episode of both sides; return the sum of the first side's rewards."""
    actions = await both(*(side.tick(field.seen(place)) for place, side in enumerate(sides)))
    total = 0.0
    for step in range(1, STEPS + 1):
        rewards = field.move(actions)
        total += rewards[0]
        told = [(field.seen(place), rewards[place]) for place in (0, 1)]
        if step == STEPS:
            await both(*(side.stop(*what) for side, what in zip(sides, told, strict=True)))
        else:
            actions = await both(*(side.tick(*what) for side, what in zip(sides, told, strict=True)))
    return total


async def play(urls: list[str], number: int, patience: float, duels: int | None, totals: list[float]) -> None:
    """One game: duel after duel, until there were so many or an address is gone."""
    numbers = random.Random(number)
    sides = [AsyncGameClient(url, f"duel-{number}-{place}", patience=patience) for place, url in enumerate(urls)]
    players = [*sides, Random()][:2]
    played = 0
    try:
        while played != duels:
            await both(*(side.start() for side in players))
            try:
                totals.append(await duel(players, Field(numbers)))
                played += 1
            except (EpisodeLostError, RefusedError):
                # One side is gone, so the duel is over for the other one, too. An empty stop says so.
                await asyncio.gather(*(side.stop() for side in players), return_exceptions=True)
    except (EpisodeLostError, RefusedError):
        return  # A side does not begin again: its run has ended.
    finally:
        for side in sides:
            await side.close()


async def main() -> None:
    """Play so many games side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("learner", help="address of the first side, such as tcp://localhost:8001")
    parser.add_argument("rival", nargs="?", help="address of the second side; left out: it moves at random")
    parser.add_argument("--games", type=int, default=4)
    parser.add_argument("--duels", type=int, help="end each game after so many; left out: when an address is gone")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for an address")
    given = parser.parse_args()
    urls = [given.learner] if given.rival is None else [given.learner, given.rival]
    totals: list[float] = []
    await asyncio.gather(*(play(urls, number, given.patience, given.duels, totals) for number in range(given.games)))
    latest = totals[-100:]
    mean = sum(latest) / max(1, len(latest))
    print(f"{len(totals)} duels; in the last {len(latest)} the first side took {mean:+.1f} coins more than its rival")


if __name__ == "__main__":
    asyncio.run(main())
