"""CartPole that takes its time until a file exists. So a test can do something while a run goes on, however slow."""

import time
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

SLOW_S = 0.02


class GatedCartPole(gymnasium.Wrapper):
    """Steps take ``SLOW_S`` until ``gate`` exists."""

    def __init__(self, gate: str) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._gate = Path(gate)
        self._open = False

    def step(self, action: Any) -> Any:
        self._open = self._open or self._gate.exists()
        if not self._open:
            time.sleep(SLOW_S)
        return super().step(action)


def make_gated_carts(num_envs: int, gate: str) -> SyncVectorEnv:
    """The same, stepped together. Each lane is reset by penstock."""
    return SyncVectorEnv([lambda: GatedCartPole(gate)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
