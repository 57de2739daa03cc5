"""An environment that takes 200 µs of a processor a step: as `benchmarks.busy:Busy`, and as games that dial in.

    penstock train --env benchmarks.busy:Busy
    penstock train --algo appo --env gamecore://benchmarks.busy:BusyAgent --tcp_port 8001 &
    python -m benchmarks.busy localhost 8001 --sessions 8

Nothing can be learned in it.
"""

import argparse
import asyncio
import time
from typing import Any

import gymnasium
import numpy as np
import uvloop
from gymnasium.spaces import Box, Discrete

import penstock
from penstock.clients import AsyncGameClient, EpisodeLostError, RefusedError

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


async def main() -> None:
    """Play so many sessions side by side in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host", help="where the run listens")
    parser.add_argument("port", type=int)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--name", default="busy", help="of the process; those of its sessions begin with it")
    given = parser.parse_args()
    url = f"tcp://{given.host}:{given.port}"
    await asyncio.gather(*(play(url, f"{given.name}-{number}") for number in range(given.sessions)))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
