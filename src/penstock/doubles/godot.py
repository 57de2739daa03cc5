"""FakeGodot: a headless game that speaks the protocol of Godot RL Agents. It shows a symbol, which agents must name."""

import contextlib
import json
import socket
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["FakeGodot"]

SYMBOLS = 3
LENGTH = 4
"""Steps of an episode. Naming each symbol returns 4; guessing 4 / 3."""
_PAUSE_S = 0.01


class FakeGodot:
    """Plays in a thread while its ``with`` block lasts. After each end it connects again, as a game that is restarted.

    An agent sees ``obs``, one-hot, and a picture ``view_2d`` of the same; it acts by ``name``, a choice of 3, and is
    paid 1 for the right one.

    Args:
        port: of the trainer.
        agents: how many agents it has.

    Attributes:
        games: how many connections it has had.
        messages: the types of the messages that it has got, in order.
    """

    def __init__(self, port: int, agents: int = 1) -> None:
        self.games = 0
        self.messages: list[str] = []
        self._port = port
        self._agents = agents
        self._numbers = np.random.default_rng(0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._connection: socket.socket | None = None

    def __enter__(self) -> "FakeGodot":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port)) as connection:
                    self._connection = connection
                    self.games += 1
                    self._play(connection)
            except OSError:
                time.sleep(_PAUSE_S)

    def _play(self, connection: socket.socket) -> None:
        with connection.makefile("rwb") as line:
            while not self._is_over.is_set():
                size = line.read(4)
                if len(size) < 4:
                    return
                message = json.loads(line.read(int.from_bytes(size, "little")))
                self.messages.append(message["type"])
                answer = self._answer(message)
                if message["type"] == "close":
                    return
                if answer is not None:
                    data = json.dumps(answer).encode()
                    line.write(len(data).to_bytes(4, "little") + data)
                    line.flush()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        match message["type"]:
            case "env_info":
                return {
                    "type": "env_info",
                    "n_agents": self._agents,
                    "action_space": [{"name": {"size": SYMBOLS, "action_type": "discrete"}}] * self._agents,
                    "observation_space": [
                        {
                            "obs": {"size": [SYMBOLS], "space": "box"},
                            "view_2d": {"size": [1, 1, SYMBOLS], "space": "box"},
                        }
                    ]
                    * self._agents,
                }
            case "reset":
                self._left = [LENGTH] * self._agents
                return {"type": "reset", "obs": self._shown()}
            case "action":
                named = [one["name"] for one in message["action"]]
                reward = [float(name == symbol) for name, symbol in zip(named, self._symbols, strict=True)]
                self._left = [left - 1 for left in self._left]
                done = [left == 0 for left in self._left]
                self._left = [left or LENGTH for left in self._left]
                return {"type": "step", "obs": self._shown(), "reward": reward, "done": done}
        return None

    def _shown(self) -> list[dict[str, Any]]:
        """New symbols for all agents."""
        self._symbols = self._numbers.integers(0, SYMBOLS, self._agents).tolist()
        rows = [[int(place == symbol) for place in range(SYMBOLS)] for symbol in self._symbols]
        return [{"obs": [float(one) for one in row], "view_2d": bytes(255 * one for one in row).hex()} for row in rows]
