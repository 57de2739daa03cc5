"""A game that drives itself: the physics of CartPole (Barto, Sutton and Anderson, 1983) inside a client.

    penstock train --algo appo --env gamecore://cart_agent:CartAgent --tcp_port 8001 &
    python cart_game.py tcp://localhost:8001 --games 8

It plays episode after episode until the run has ended. A game of your own does the same: `start`, `tick` with what it
sees and the reward of the action before, `stop` with what came of the last action.
"""

import argparse
import asyncio
import math
import random

from penstock.clients import AsyncGameClient, EpisodeLostError, RefusedError

STEP_LIMIT = 500


class Cart:
    """A pole on a cart. A step takes 0.02 s of the game's time."""

    def __init__(self, random_numbers: random.Random) -> None:
        self.state = [random_numbers.uniform(-0.05, 0.05) for _ in range(4)]

    def push(self, action: int) -> bool:
        """Push left (0) or right (1). True: the pole has fallen, or the cart has left the track."""
        x, speed, angle, turning = self.state
        force = 10.0 if action == 1 else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        inner = (force + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        accelerates = inner - 0.05 * turn * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * accelerates, angle + 0.02 * turning, turning + 0.02 * turn]
        return abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180


async def episode(client: AsyncGameClient, cart: Cart) -> int:
    """Play one episode; return how long the pole stood."""
    await client.start()
    action = await client.tick(cart.state)
    for step in range(1, STEP_LIMIT + 1):
        fallen = cart.push(action)
        if fallen or step == STEP_LIMIT:
            await client.stop(cart.state, reward=1.0, terminated=fallen)
            return step
        action = await client.tick(cart.state, reward=1.0)
    return STEP_LIMIT


async def play(url: str, number: int, patience: float) -> None:
    """One game: episodes until the server is gone."""
    numbers = random.Random(number)
    async with AsyncGameClient(url, f"cart-{number}", patience=patience) as client:
        while True:
            try:
                await episode(client, Cart(numbers))
            except (EpisodeLostError, RefusedError) as error:
                # The connection broke, or the run has ended: try another episode, or end if nobody answers any more.
                if isinstance(error, RefusedError) and not error.may_retry:
                    return
                try:
                    await client.start()
                except (EpisodeLostError, RefusedError):
                    return


async def main() -> None:
    """Play so many games side by side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", help="tcp://localhost:8001 or http://localhost:8000")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for the run")
    given = parser.parse_args()
    await asyncio.gather(*(play(given.url, number, given.patience) for number in range(given.games)))


if __name__ == "__main__":
    asyncio.run(main())
