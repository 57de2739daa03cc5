"""The game: balls fall, and a paddle catches them. It connects to a run that trains, or to a server.

    python catch_game.py tcp://localhost:8001 --games 8

It needs nothing of penstock but the client, which is Python's standard library alone. A game of your own does the same:
``start``, then ``tick`` after ``tick``, then ``stop``.
"""

import argparse
import asyncio
import random

from catch_body import BODY

from penstock.clients import AsyncGameClient, EpisodeLostError, RefusedError

__all__ = ["Field", "play"]

BALLS = 5
"""Balls of an episode."""


class Field:
    """A ball that falls, and a paddle. Places are -1 to 1."""

    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.paddle = 0.0
        self.caught = 0
        self.fallen = 0
        self.drop()

    def drop(self) -> None:
        """The next ball begins to fall."""
        self.ball, self.height = self.numbers.uniform(-1.0, 1.0), 1.0

    def move(self, action: int) -> float:
        """One frame; return the reward: 1 for a ball that is caught, -1 for one that is not, else 0."""
        self.paddle = min(1.0, max(-1.0, self.paddle + 0.2 * (action - 1)))
        self.height -= 0.1
        if self.height > 0.05:
            return 0.0
        caught = abs(self.ball - self.paddle) <= 0.2
        self.caught += caught
        self.fallen += 1
        self.drop()
        return 1.0 if caught else -1.0

    def body(self, reward: float) -> bytes:
        """What the agent reads."""
        packed: bytes = BODY.pack(self.ball, self.height, self.paddle, reward, self.is_over)
        return packed

    @property
    def is_over(self) -> bool:
        """Whether the last ball has fallen."""
        return self.fallen == BALLS


async def episode(client: AsyncGameClient, field: Field) -> None:
    """Play one episode that has begun. A reply is one byte: the action."""
    reward = 0.0
    while not field.is_over:
        reply = await client.send("tick", field.body(reward))
        reward = field.move(reply[0])
    await client.send("stop", field.body(reward))


async def play(url: str, number: int, patience: float, episodes: int | None = None) -> list[int]:
    """One game: so many episodes, or until the run has ended. Returns the caught balls of each episode."""
    numbers = random.Random(number)
    caught: list[int] = []
    async with AsyncGameClient(url, f"catch-{number}", patience=patience) as client:
        while len(caught) != episodes:
            try:
                await client.start()
            except (EpisodeLostError, RefusedError):
                # Nobody has begun an episode for so long: the run has ended.
                break
            field = Field(numbers)
            try:
                await episode(client, field)
            except EpisodeLostError:
                # The connection broke, or the run has ended. The next start shows which.
                continue
            except RefusedError as error:
                # The server has no time, or does not know the episode any more. Anything else is a mistake.
                if error.may_retry or error.has_ended:
                    continue
                raise
            caught.append(field.caught)
    return caught


async def main() -> None:
    """Play so many games side by side, and print how many balls were caught."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", help="where a run or a server listens: tcp://localhost:8001")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--episodes", type=int, help="episodes of each game; left out: until the run has ended")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for the run or the server")
    given = parser.parse_args()
    games = (play(given.url, number, given.patience, given.episodes) for number in range(given.games))
    caught = [count for one in await asyncio.gather(*games) for count in one]
    if caught:
        mean = sum(caught) / len(caught)
        print(f"{len(caught)} episodes; of {BALLS} balls, {mean:.1f} were caught on average")


if __name__ == "__main__":
    asyncio.run(main())
