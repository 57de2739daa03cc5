"""Processes that step together, learn nothing and write down their state after each step. They import no torch."""

import hashlib
import time

import numpy as np

from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.memory.rounds import Rounds
from penstock.types import ArraySpec

COUNT = 3
STATE = (ArraySpec("critic", (64,), "float32"), ArraySpec("gradient_steps", (), "int64"))
NOTED = 1 << 20
"""Steps of each learner, at most."""
NBYTES = Rounds.required(COUNT, STATE) + 8 * (1 + COUNT * NOTED)


def notes(memory):
    """The memory behind the rounds: the last wanted step; each learner's latest step, and its state after each step."""
    words = memory[-8 * (1 + COUNT * NOTED) :].view(np.int64)
    return words[:1], words[1:].reshape(COUNT, NOTED)


class Copied:
    """A state, and its next."""

    def __init__(self, state):
        self._state = state

    def state(self):
        """As an updater's."""
        return self._state

    def step(self, team, number):
        """Two phases of which the second depends on the first."""
        step = int(self._state["gradient_steps"])
        gradients = {"critic": np.random.default_rng((step, number)).normal(size=64).astype(np.float32)}
        for phase in ("first", "second"):
            gradients = {name: values.copy() for name, values in team(phase, gradients, 1.0 + number).items()}
        return {"critic": self._state["critic"] + gradients["critic"], "gradient_steps": np.array(step + 1)}


def learn(memory, number):
    """The life of a learner, up to the last step."""
    last, noted = notes(memory)
    team = AllReduce(Rounds(memory, COUNT, STATE, number), me=number, alive=lambda: False)
    state = team.join({part.name: np.zeros(part.shape, part.dtype) for part in STATE})
    while state["gradient_steps"] < last[0]:
        copied = Copied(state)
        while not team.begin(copied):
            time.sleep(0.001)
        state = copied.step(team, number)
        team.end()
        step = int(state["gradient_steps"])
        noted[number, step] = int.from_bytes(hashlib.sha256(state["critic"].tobytes()).digest()[:7], "little") + 1
        noted[number, 0] = step
    team.leave()
