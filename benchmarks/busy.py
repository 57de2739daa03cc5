"""An environment that takes 200 µs of a processor a step: as `benchmarks.busy:Busy`, and as games that dial in.

    penstock train --env benchmarks.busy:Busy
    penstock train --algo appo --env gamecore://benchmarks.busy:BusyAgent --tcp_port 8001 &
    python -m benchmarks.busy localhost 8001 --sessions 8                   # eight games of one agent
    python -m benchmarks.busy localhost 8001 --sessions 8 --agents 8        # one game of eight agents

Nothing can be learned in it.
"""

import argparse
import asyncio
import threading
import time
from typing import Any

import gymnasium
import numpy as np
import uvloop
from gymnasium.spaces import Box, Discrete

import penstock
from benchmarks.arguments import positive_int
from penstock.clients import AgentsClient, AsyncGameClient, EpisodeLostError, RefusedError

STEP_NS = 200_000
EPISODE = 64
_OBS = np.zeros(4, np.float32)


def work() -> None:
    """One step's work. Time in which the processor does something else does not count."""
    until = time.thread_time_ns() + STEP_NS
    while time.thread_time_ns() < until:
        pass


class Busy(gymnasium.Env[Any, Any]):
    """Works in each step. Every episode ends after 64 steps."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, without work."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return _OBS, {}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Work; the action changes nothing."""
        work()
        self._steps += 1
        return _OBS, 1.0, self._steps == EPISODE, False, {}


class BusyAgent(penstock.Agent):
    """The agent of games that do the same work."""

    observation_space = Busy.observation_space
    action_space = Busy.action_space


async def play(url: str, name: str) -> None:
    """One session: episodes until the run has ended."""
    obs = _OBS.tolist()
    async with AsyncGameClient(url, name) as client:
        while True:
            try:
                await client.start()
                await client.tick(obs)
                for _ in range(EPISODE - 1):
                    work()
                    await client.tick(obs, 1.0)
                work()
                await client.stop(obs, 1.0, terminated=True)
            except RefusedError as error:
                if not error.may_retry:
                    return
            except EpisodeLostError:
                return


async def play_all(url: str, name: str, sessions: int) -> None:
    """So many sessions side by side, each with a connection of its own."""
    await asyncio.gather(*(play(url, f"{name}-{number}") for number in range(sessions)))


def play_together(url: str, name: str, count: int) -> None:
    """One game with so many agents, which act together: episodes until the run has ended."""
    agents = [str(number) for number in range(count)]
    obs, reward = dict.fromkeys(agents, _OBS.tolist()), dict.fromkeys(agents, 1.0)

    def work_all() -> None:
        for _ in agents:
            work()

    with AgentsClient(url, name, agents) as client:
        while True:
            try:
                client.start()
                client.tick(obs)
                for _ in range(EPISODE - 1):
                    work_all()
                    client.tick(obs, reward)
                work_all()
                client.stop(obs, reward, terminated=agents)
            except RefusedError as error:
                if not error.may_retry:
                    return
            except EpisodeLostError:
                return


def main() -> None:
    """Play so many sessions side by side in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host", help="where the run listens")
    parser.add_argument("port", type=int)
    parser.add_argument("--sessions", type=positive_int, default=8)
    parser.add_argument("--agents", type=positive_int, default=1, help="of each game; they share a connection")
    parser.add_argument("--name", default="busy", help="of the process; those of its sessions begin with it")
    given = parser.parse_args()
    url = f"tcp://{given.host}:{given.port}"
    if given.agents == 1:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(play_all(url, given.name, given.sessions))
        return
    games = [
        threading.Thread(
            target=play_together, args=(url, f"{given.name}-{first}", min(given.agents, given.sessions - first))
        )
        for first in range(0, given.sessions, given.agents)
    ]
    for game in games:
        game.start()
    for game in games:
        game.join()


if __name__ == "__main__":
    main()
