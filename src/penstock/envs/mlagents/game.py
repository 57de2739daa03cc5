"""One game of ML-Agents: a gRPC server that the game calls. Does not know what its agents see and do."""

import logging
import queue
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc

from penstock.envs.fields import one_line
from penstock.envs.mlagents.messages import CONTINUES, ENDS, METHOD, RESET, VERSION, Message
from penstock.errors import EnvError

__all__ = ["Action", "Game"]

log = logging.getLogger("penstock.envs")

_HOST = "127.0.0.1"
_END_S = 5.0
_LOOK_S = 0.5
_MOST_MESSAGE = 128 << 20
"""Bytes of one call of the game, which holds what all its agents see in a step."""
_CALLS = 2
"""Calls at one time: one of a game that is gone, and one of its successor."""
_OLDEST = (1, 3)
"""The first version whose actions are numbers and choices side by side."""
_TRAINER = "penstock"
"""Sent instead of a version of ML-Agents' own trainer. Unity refuses some versions, but accepts any other word."""


class Action(NamedTuple):
    """What one agent does."""

    continuous: Sequence[float]
    discrete: Sequence[int]


class Game:
    """A game that connects, or that is started here.

    Args:
        port: to listen at; 0: a free one.
        wait: longest time for the game to connect, and for each of its answers, in seconds.
        seed: of the game, at least 0.
        packets: for its side channels.
        command: starts the game; empty: somebody else does.

    Raises:
        EnvError: the port is taken, no game connects, or it speaks another version.
    """

    def __init__(self, port: int, wait: float, seed: int, packets: bytes, command: Sequence[str]) -> None:
        self._wait = wait
        self._packets = packets
        self._process: subprocess.Popen[bytes] | None = None
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """What the game says; ``None``: it has broken its call off."""
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._server, port = self._listening(port)
        self._where = f"{_HOST}:{port}"
        try:
            if command:
                self._process = subprocess.Popen([*command, "--mlagents-port", str(port)], stdin=subprocess.DEVNULL)
            else:
                log.warning("waiting for a game at %s, for %g s (--env_args wait)", self._where, wait)
            self._begin(seed)
        except BaseException:
            self.close()
            raise

    def reset(self) -> Any:
        """Begin everything anew. Returns a ``UnityOutputProto``.

        Raises:
            EnvError: the game is gone.
        """
        message = _message()
        message.unity_input.rl_input.command = RESET
        return self._ask(message)

    def act(self, actions: Mapping[str, Sequence[Action]]) -> Any:
        """Let agents act, and the game go on until one of them asks again or ends. Returns a ``UnityOutputProto``.

        Args:
            actions: behavior -> actions of all agents that have asked, in the order in which they did.

        Raises:
            EnvError: the game is gone.
        """
        message = _message()
        given = message.unity_input.rl_input
        given.SetInParent()
        for behavior, rows in actions.items():
            listed = given.agent_actions[behavior].value
            for row in rows:
                listed.add(continuous_actions=row.continuous, discrete_actions=row.discrete)
        return self._ask(message)

    def close(self) -> None:
        """Let the game end. One that was started here and goes on is killed."""
        message = _message()
        message.header.status = ENDS
        for _ in range(_CALLS):
            self._answers.put(message)
        self._server.stop(_END_S).wait()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _listening(self, port: int) -> tuple[Any, int]:
        sizes = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", _MOST_MESSAGE)]
        server = grpc.server(ThreadPoolExecutor(_CALLS), options=[*sizes, ("grpc.so_reuseport", 0)])
        service, method = METHOD.strip("/").split("/")
        called = grpc.unary_unary_rpc_method_handler(self._exchange, Message.FromString, Message.SerializeToString)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: called})])
        try:
            port = server.add_insecure_port(f"{_HOST}:{port}")
        except RuntimeError:
            raise EnvError(
                f"a game cannot connect to {_HOST}:{port}: the port is in use; one process at a time can wait there: "
                "give --num_workers 1, and no --eval_interval"
            ) from None
        server.start()
        return server, port

    def _exchange(self, request: Any, context: Any) -> Any:
        """One call of the game, in a thread of gRPC. It waits until the agents' actions are there."""
        waits = [True]
        context.add_callback(lambda: self._said.put(None) if waits else None)
        self._said.put(request)
        answer = self._answers.get()
        waits.clear()
        return answer

    def _begin(self, seed: int) -> None:
        what = f"no game of ML-Agents has connected to {self._where}"
        found = self._receive(what).unity_output.rl_initialization_output
        version = found.communication_version
        if not _is_spoken(version):
            raise EnvError(
                f"the game speaks version {one_line(version)} of ML-Agents' protocol, and penstock 1.3 to {VERSION}: "
                "build it with another version of the Unity package com.unity.ml-agents"
            )
        message = _message()
        begin = message.unity_input.rl_initialization_input
        begin.seed, begin.communication_version, begin.package_version = seed, VERSION, _TRAINER
        begin.num_areas = 1
        # Several pictures in one observation are not among them: the game then sends numbers instead.
        can = begin.capabilities
        can.baseRLCapabilities = can.hybridActions = can.variableLengthObservation = can.multiAgentGroups = True
        self._answers.put(message)
        self._receive(what)

    def _ask(self, message: Any) -> Any:
        message.unity_input.rl_input.side_channel, self._packets = self._packets, b""
        self._answers.put(message)
        return self._receive("the game has not answered").unity_output

    def _receive(self, what: str) -> Any:
        until = time.monotonic() + self._wait
        while True:
            try:
                said = self._said.get(timeout=_LOOK_S)
                break
            except queue.Empty:
                if self._process is not None and self._process.poll() is not None:
                    raise EnvError(f"the game has ended with code {self._process.returncode}") from None
                if time.monotonic() > until:
                    raise EnvError(f"{what} within {self._wait:g} s") from None
        if said is None or said.header.status != CONTINUES:
            raise EnvError("the game has ended or lost its connection")
        return said


def _message() -> Any:
    return Message(header={"status": CONTINUES})


def _is_spoken(version: str) -> bool:
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return False
    major, minor = int(parts[0]), int(parts[1])
    return major == _OLDEST[0] and minor >= _OLDEST[1]
