"""Games of Godot RL Agents, as ``godot://:11008`` or ``godot://path/to/game``. Each agent of a game is a lane.

The protocol is that of the package ``godot-rl``, version 0.7 (https://github.com/edbeeching/godot_rl_agents). The game
connects to the trainer. A message is 4 bytes with its length, little-endian, then JSON. The trainer asks, the game
answers: ``handshake`` (no answer), ``env_info``, ``reset``, ``action``, ``close`` (no answer).

The game itself begins the next episode of an agent that is done, and does not say whether a time limit was the reason.
So each end counts as terminated, and episodes cannot be restored.
"""

import contextlib
import json
import logging
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.envs.engines import whole
from penstock.envs.fields import one_line
from penstock.envs.rows import in_dtype
from penstock.errors import BadDataError, EnvError, SpaceError
from penstock.types import Array, EnvFactory

__all__ = ["agents_at"]

log = logging.getLogger("penstock.envs")

_HOST = "127.0.0.1"
_LARGEST = 1 << 28
"""Bytes of a message. A game that says more speaks another protocol."""
_END_S = 5.0
_VERSION = ("0", "7")


def agents_at(address: str) -> EnvFactory:
    """A factory of vector environments whose lanes are the agents of games.

    Args:
        address: ``:PORT``, to wait there for games; or the path of a game to start.

    Raises:
        EnvError: it is neither.
    """
    port = address.removeprefix(":")
    waits = address.startswith(":") and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not waits and not Path(address).is_file():
        raise EnvError(
            f"godot://{address} is neither a port nor a game: write godot://:11008 to wait for games there, or "
            "godot://path/to/game.x86_64 to start one"
        )

    def make(
        num_envs: int,
        seed: int,
        *,
        wait: float = 240.0,
        show_window: bool = False,
        speedup: int | None = None,
        action_repeat: int | None = None,
        framerate: int | None = None,
    ) -> _Agents:
        if waits:
            return _Agents(num_envs, int(port), wait, ())
        flags = {"speedup": speedup, "action_repeat": action_repeat}
        command = (
            str(Path(address).resolve()),
            f"--env_seed={seed % (1 << 31)}",
            *(() if show_window else ("--disable-render-loop", "--headless")),
            *(() if framerate is None else ("--fixed-fps", str(framerate))),
            *(f"--{name}={value}" for name, value in flags.items() if value is not None),
        )
        return _Agents(num_envs, 0, wait, command)

    return make


class _Game:
    """The connection of one game.

    Attributes:
        agents: how many it has.
        action: name -> space of each action of an agent.
        seen: name -> space of each part of an agent's observation.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        major, minor = _VERSION
        self._send({"type": "handshake", "major_version": major, "minor_version": minor})
        info = self.ask({"type": "env_info"}, "env_info")
        try:
            self.agents = int(info["n_agents"])
            self.action = {name: _action(one) for name, one in _of_all(info["action_space"], "actions").items()}
            self.seen = {name: _seen(name, one) for name, one in _of_all(info["observation_space"], "obs").items()}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise EnvError(f"the game describes its agents in another form: {one_line(error, 200)}") from None
        if self.agents < 1:
            raise EnvError("the game has no agent that trains")

    def ask(self, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Send a message, and return the answer of this type.

        Raises:
            EnvError: the game is gone, or says something else.
        """
        self._send(message)
        found = self._receive()
        if found.get("type") != answer:
            raise EnvError(f"the game answers {message['type']} with {one_line(found.get('type'))}, not {answer}")
        return found

    def end(self) -> None:
        """Let the game end."""
        with contextlib.suppress(EnvError):
            self._send({"type": "close"})
        self._connection.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode()
        try:
            self._connection.sendall(len(data).to_bytes(4, "little") + data)
        except OSError as error:
            raise EnvError(f"the game is gone: {error.strerror or error}") from None

    def _receive(self) -> dict[str, Any]:
        size = int.from_bytes(self._exactly(4), "little")
        if size > _LARGEST:
            raise EnvError(f"the game announces a message of {size:,} bytes: it speaks another protocol")
        try:
            found = json.loads(self._exactly(size))
        except ValueError:
            raise EnvError("the game sends what is no JSON") from None
        if not isinstance(found, dict):
            raise EnvError(f"the game sends {one_line(found)}, which is no message")
        return found

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more = self._connection.recv(min(1 << 20, size - len(data)))
            except OSError as error:
                raise EnvError(f"the game is gone: {error.strerror or error}") from None
            if not more:
                raise EnvError("the game has closed its connection")
            data += more
        return bytes(data)


class _Agents:
    """The agents of one game or several, as a vector environment that resets them in the same step.

    Args:
        num_envs: lanes. Games are taken until they have as many agents; those beyond get zeros as actions.
        port: to listen at; 0: a free one.
        wait: longest time for a game to connect, in seconds.
        command: starts a game; empty: somebody else does.
    """

    metadata: Mapping[str, Any] = {"autoreset_mode": "SameStep"}
    gives_final_obs = False
    """A game sends no last observation: with the end comes the first observation of the next episode."""

    def __init__(self, num_envs: int, port: int, wait: float, command: Sequence[str]) -> None:
        self.num_envs = num_envs
        self._games: list[_Game] = []
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            with _listening(port) as listener:
                listener.settimeout(wait)
                while sum(game.agents for game in self._games) < num_envs:
                    if command:
                        own = f"--port={listener.getsockname()[1]}"
                        self._started.append(subprocess.Popen([*command, own], stdin=subprocess.DEVNULL))
                    else:
                        log.warning("waiting for a game at %s:%d, for %g s (--env_args wait)", _HOST, port, wait)
                    self._games.append(_accepted(listener, wait))
        except BaseException:
            self.close()
            raise
        first = self._games[0]
        if any((game.action, game.seen) != (first.action, first.seen) for game in self._games):
            self.close()
            raise SpaceError("the games have agents of different kinds: all lanes need the same spaces")
        self._action, self._seen = first.action, first.seen
        self.single_action_space = whole(first.action)
        self.single_observation_space = whole(first.seen)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes. There is no way to give a seed."""
        del seed, options
        answers = [game.ask({"type": "reset"}, "reset") for game in self._games]
        return self._observed(answers), {}

    def step(self, action: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all agents."""
        actions = self._per_agent(action)
        answers = []
        for game in self._games:
            own, actions = actions[: game.agents], actions[game.agents :]
            answers.append(game.ask({"type": "action", "action": own}, "step"))
        reward = np.array(self._numbers(answers, "reward"), np.float32)
        terminated = np.array(self._numbers(answers, "done"), np.bool_)
        return self._observed(answers), reward, terminated, np.zeros(self.num_envs, np.bool_), {}

    def close(self) -> None:
        """Let the games end. Those that were started here and go on are killed."""
        for game in self._games:
            game.end()
        for process in self._started:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._games, self._started = [], []

    def _per_agent(self, action: Any) -> list[dict[str, Any]]:
        """The actions of all agents, as messages have them."""
        given = {next(iter(self._action)): action} if len(self._action) == 1 else action
        found = [{name: given[name][lane].tolist() for name in self._action} for lane in range(self.num_envs)]
        idle = {name: np.zeros(space.shape, space.dtype).tolist() for name, space in self._action.items()}
        return found + [idle] * (sum(game.agents for game in self._games) - self.num_envs)

    def _of_lanes(self, answers: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
        """One value for each lane, from the answers of all games."""
        found: list[Any] = []
        for game, answer in zip(self._games, answers, strict=True):
            values = answer.get(key)
            if not isinstance(values, list) or len(values) != game.agents:
                raise BadDataError(f"the game sends {one_line(values)} as {key} of {game.agents} agents")
            found += values
        return found[: self.num_envs]

    def _numbers(self, answers: Sequence[Mapping[str, Any]], key: str) -> list[float]:
        """One number for each lane; true counts as 1."""
        values = self._of_lanes(answers, key)
        # Text would be read as a number.
        with contextlib.suppress(OverflowError):
            if all(isinstance(value, int | float) for value in values):
                return [float(value) for value in values]
        raise BadDataError(f"the game sends {one_line(values)} as {key} of its agents: not all are numbers")

    def _observed(self, answers: Sequence[Mapping[str, Any]]) -> Any:
        rows = self._of_lanes(answers, "obs")
        found = {}
        for name, space in self._seen.items():
            try:
                found[name] = np.stack([_fitting(_value(row[name], space, name), space) for row in rows])
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise BadDataError(f"{name} of an agent does not fit its space: {one_line(error, 200)}") from None
        return next(iter(found.values())) if len(found) == 1 else found


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise EnvError(
                f"games cannot connect to {_HOST}:{port}: {error.strerror}; one process at a time can wait there: give "
                "--num_workers 1, and no --eval_interval"
            ) from None
        listener.listen()
        yield listener


def _accepted(listener: socket.socket, wait: float) -> _Game:
    """The next game that connects."""
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        host, port = listener.getsockname()
        raise EnvError(f"no game of Godot has connected to {host}:{port} within {wait:g} s") from None
    connection.settimeout(None)
    try:
        return _Game(connection)
    except BaseException:
        connection.close()
        raise


def _of_all(spaces: Any, what: str) -> Mapping[str, Any]:
    """The description of one agent's spaces. Older games give one for all, newer ones a list."""
    if isinstance(spaces, list):
        if any(one != spaces[0] for one in spaces):
            raise SpaceError(f"the game's agents have different {what}: all lanes need the same spaces")
        spaces = spaces[0]
    return dict(spaces)


def _action(described: Mapping[str, Any]) -> Any:
    from gymnasium.spaces import Box, Discrete  # noqa: PLC0415 - takes 70 ms

    size = int(described["size"])
    match described["action_type"]:
        case "discrete":
            return Discrete(size)
        case "continuous":
            return Box(-1.0, 1.0, (size,), np.float32)
        case other:
            raise SpaceError(f"the game has an action of type {one_line(other)}: penstock knows discrete, continuous")


def _seen(name: str, described: Mapping[str, Any]) -> Any:
    from gymnasium.spaces import Box, Discrete  # noqa: PLC0415

    if described["space"] == "discrete":
        return Discrete(int(described["size"]))
    if described["space"] != "box":
        raise SpaceError(f"the game shows {name} as {one_line(described['space'])}: penstock knows box and discrete")
    shape = tuple(int(size) for size in described["size"])
    if "2d" in name:
        return Box(0, 255, shape, np.uint8)
    # Without `low` and `high`, the protocol's range is -1 to 1. Many games exceed it, so it is not taken as a bound.
    return Box(described.get("low", -np.inf), described.get("high", np.inf), shape, np.float32)


def _fitting(given: Any, space: Any) -> Array:
    """The numbers in the dtype and the shape of their space.

    Raises:
        TypeError: these are no numbers.
        ValueError: the dtype does not hold them, or there are fewer or more.
    """
    numbers = np.array(given)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(f"{one_line(given)} holds no numbers")
    return in_dtype(numbers, space.dtype).reshape(space.shape)


def _value(given: Any, space: Any, name: str) -> Any:
    """One part of an observation. Images come as text, two signs a byte."""
    if "2d" in name and isinstance(given, str):
        return np.frombuffer(bytes.fromhex(given), np.uint8).reshape(space.shape)
    return given
