"""Agents for the tests."""

import asyncio
import contextlib
import struct
import weakref
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import penstock
from penstock.errors import BadDataError
from penstock.games.agent import Told


class Counter(penstock.Agent):
    """Sees a number, chooses one of four."""

    observation_space = Box(-1000, 1000, (1,), np.float32)
    action_space = Discrete(4)
    seen: ClassVar[list] = []

    def on_episode(self, episode, final):
        self.seen.append(
            (
                self.game.name,
                self.name,
                [state.obs for state in episode],
                final.obs,
                final.terminated,
                final.truncated,
                final.vanished,
            )
        )


class Plain(penstock.Agent):
    """Says nothing but its spaces. The observation is one flat array, so its ticks are answered at once."""

    observation_space = Box(-1000, 1000, (1,), np.float32)
    action_space = Discrete(4)


class Paired(Plain):
    """Sees a Tuple."""

    observation_space = Tuple((Box(-9, 9, (2,), np.float32), Discrete(3)))


class Misspelt(Plain):
    def on_tik(self, state):
        """Nobody calls it."""


class Doubling(Counter):
    """Waits inside its coroutines, changes what it sees and what it is paid, and replies in its own way."""

    async def on_tick(self, state):
        await asyncio.sleep(0.001)
        state.obs = [2 * state.obs[0]]
        state.reward *= 10
        action = await state.act()
        state.reply = b'{"action": [%d, 7]}' % action

    async def on_episode(self, episode, final):
        await asyncio.sleep(0.001)
        final.obs = [2 * final.obs[0]]
        final.reward += 0.5


class Talking(penstock.Agent):
    """Tells the other agents of its game what it sees, and sees their sum."""

    observation_space = Box(-1000, 1000, (2,), np.float32)
    action_space = Discrete(2)

    async def on_tick(self, state):
        told = await self.game.exchange(self, state.obs[0])
        state.obs = [state.obs[0], sum(told.values())]


class Hasty(Talking):
    """Waits for the other agents of its game for a moment only."""

    async def on_tick(self, state):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.game.exchange(self, state.obs[0]), 0.01)


class Binary(Counter):
    """Has bodies of its own: two floats. Wants more than one step of each episode."""

    def decode(self, body):
        seen, reward = struct.unpack("<ff", body)
        return Told([seen], reward)

    def on_episode(self, episode, final):
        super().on_episode(episode, final)
        if len(episode) < 2:
            raise BadDataError("an episode of one step")


class Stacking(Counter):
    """Sees the last two numbers, in one array that it uses for every tick."""

    observation_space = Box(-1000, 1000, (2,), np.float32)

    def __init__(self):
        self.stack = np.zeros(2, np.float32)

    def on_tick(self, state):
        self.stack[:] = self.stack[1], state.obs
        state.obs = self.stack

    def on_episode(self, episode, final):
        self.on_tick(final)


class Flaky(Counter):
    """Cannot be made at times."""

    fails: ClassVar[bool] = False

    def __init__(self):
        if self.fails:
            raise RuntimeError("not now")


class Counted(Counter):
    """Knows which objects of its class there are."""

    alive: ClassVar[weakref.WeakSet] = weakref.WeakSet()

    def __init__(self):
        self.alive.add(self)

    def on_episode(self, episode, final):
        """Nothing."""


class Structured(penstock.Agent):
    observation_space = Dict({"a": Box(0, 1, (2,), np.float32), "b": Discrete(3)})
    action_space = Dict({"go": Discrete(2), "how": Box(-1, 1, (2,), np.float32)})


class Masked(penstock.Agent):
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(3)
    action_mask = True


class Failing(Counter):
    def on_tick(self, state):
        raise RuntimeError("a mistake of the user")


class Wordy(Plain):
    """Replies with something that is no bytes."""

    async def on_tick(self, state):
        state.reply = {"action": await state.act()}


class Blind(Plain):
    """Sees more than its space holds."""

    def on_tick(self, state):
        state.obs = [1, 2, 3]


class Rich(Plain):
    """Is paid more than a float holds."""

    def on_tick(self, state):
        state.reward = 10**400


class NoSpaces(penstock.Agent):
    pass


class Unborn(Plain):
    def __init__(self):
        raise KeyError("a map")


class Numbered(penstock.Agent):
    """Sees the numbers of its game, its episode and its step."""

    observation_space = Box(0, 1000, (3,), np.float32)
    action_space = Discrete(4)


class Cart(penstock.Agent):
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)


class Scaled(penstock.Agent):
    """Has bodies of its own: two floats and a reward, and a float as the reply. Sees them in another unit."""

    observation_space = Box(-1000, 1000, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, factor=1.0):
        self.factor = factor

    def decode(self, body):
        first, second, reward = struct.unpack("<fff", body)
        return Told([first, second], reward)

    def encode(self, action):
        return struct.pack("<f", action[0])

    def on_tick(self, state):
        state.obs = [self.factor * number for number in state.obs]

    def on_episode(self, episode, final):
        self.on_tick(final)


class Halved(penstock.Agent):
    """Sees half of what clients send, and fails when it sees 3."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))

    def on_tick(self, state):
        if state.obs[0] == 3:
            raise RuntimeError("a mistake of the user")
        state.obs = [number / 2 for number in state.obs]

    def on_episode(self, episode, final):
        if final.obs is not None and not final.vanished:
            self.on_tick(final)
