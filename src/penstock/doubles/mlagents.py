"""FakeUnity: a headless game that speaks the protocol of ML-Agents. It shows a symbol, which agents must name."""

import io
import threading
import time
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from PIL import Image

from penstock.envs.mlagents.messages import CONTINUES, METHOD, PNG, RESET, VERSION, AgentInfo, Message

__all__ = ["FakeUnity"]

SYMBOLS = 3
LENGTH = 4
"""Steps of an episode. Naming each symbol returns 4; guessing 4 / 3."""
_SIDE = 4
_PAUSE_S = 0.01
_GREETING_S = 10.0

_Infos = list[tuple[int, Any]]
"""What agents say: the agent, and its ``AgentInfoProto``."""


class FakeUnity:
    """Plays in a thread while its ``with`` block lasts. After each end it connects again, as a game that is restarted.

    An agent sees ``shown``, one-hot, and ``camera``, a picture whose channels are the same. It acts by a choice of 3,
    and is paid 1 for the right one. Agents belong to two teams in turn. Every second time, the game says in a message
    of its own that episodes have ended. Otherwise it says so in the message in which agents ask again.

    Args:
        port: of the trainer.
        agents: how many agents it has.
        limited: episodes end by a time limit.
        masked: one wrong choice of each agent is forbidden.
        version: of the protocol.

    Attributes:
        games: how many times it was begun.
        begun: the ``UnityRLInitializationInputProto`` of the latest one.
        packets: what its side channels have got.
    """

    def __init__(
        self, port: int, agents: int = 1, *, limited: bool = False, masked: bool = False, version: str = VERSION
    ) -> None:
        self.games = 0
        self.begun: Any = None
        self.packets = b""
        self._address = f"localhost:{port}"
        self._agents = agents
        self._limited = limited
        self._masked = masked
        self._version = version
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._channel: Any = None

    def __enter__(self) -> "FakeUnity":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._channel is not None:
            self._channel.close()
        self._thread.join()

    def play(self) -> None:
        """Play one game, until the trainer ends it.

        Raises:
            grpc.RpcError: there is no trainer, or it is gone.
        """
        with grpc.insecure_channel(self._address) as channel:
            self._channel = channel
            if self._is_over.is_set():
                return
            exchange = channel.unary_unary(METHOD, Message.SerializeToString, Message.FromString)
            first = _message()
            described = first.unity_output.rl_initialization_output
            described.name, described.communication_version = "FakeUnity", self._version
            described.capabilities.baseRLCapabilities = True
            # With a time limit: a trainer that closes at this moment may never answer. The next trainer is then asked.
            answer = exchange(first, timeout=_GREETING_S)
            # A trainer that is closing ends every call, also that of a game which has just come back.
            if answer.header.status != CONTINUES:
                return
            self.begun = answer.unity_input.rl_initialization_input
            self.games += 1
            scene = _Scene(self._agents, limited=self._limited, masked=self._masked)
            reply = exchange(_message())
            while reply.header.status == CONTINUES:
                given = reply.unity_input.rl_input
                self.packets += given.side_channel
                ended = scene.begun() if given.command == RESET else scene.acted(given.agent_actions)
                if ended and scene.episodes % 2 and exchange(scene.says(ended)).header.status != CONTINUES:
                    return
                reply = exchange(scene.says([*([] if scene.episodes % 2 else ended), *scene.asks()]))

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self.play()
            # gRPC raises a ValueError for a call on a channel that is closed.
            except (grpc.RpcError, ValueError):
                time.sleep(_PAUSE_S)


class _Scene:
    """The agents of one game, and what they say.

    Attributes:
        episodes: how many times they have begun together.
    """

    def __init__(self, agents: int, *, limited: bool, masked: bool) -> None:
        self.episodes = 0
        self._count = agents
        self._limited = limited
        self._masked = masked
        self._is_described = False
        self._numbers = np.random.default_rng(0)
        self._symbols: list[int] = []
        self._rewards: list[float] = []
        self._left = LENGTH

    def begun(self) -> _Infos:
        """Begin all episodes. Returns what agents whose episodes have ended say: nothing."""
        self.episodes += 1
        self._left = LENGTH
        self._rewards = [0.0] * self._count
        self._show()
        return []

    def acted(self, actions: Any) -> _Infos:  # noqa: ANN401 - of protobuf
        """Take the actions of all agents. Returns what those say whose episodes have ended."""
        rows = {behavior: iter(listed.value) for behavior, listed in actions.items()}
        named = [next(rows[_behavior(agent)]).discrete_actions[0] for agent in range(self._count)]
        self._rewards = [float(name == symbol) for name, symbol in zip(named, self._symbols, strict=True)]
        self._left -= 1
        self._show()
        if self._left:
            return []
        ended = [(agent, self._info(agent, done=True)) for agent in range(self._count)]
        self.begun()
        return ended

    def asks(self) -> _Infos:
        """What all agents say that ask for an action."""
        return [(agent, self._info(agent, done=False)) for agent in range(self._count)]

    def says(self, infos: _Infos) -> Any:  # noqa: ANN401 - of protobuf
        """The message that holds these infos."""
        message = _message()
        for agent, info in infos:
            message.unity_output.rl_output.agentInfos[_behavior(agent)].value.add().CopyFrom(info)
        if not self._is_described:
            self._is_described = True
            for behavior in sorted({_behavior(agent) for agent in range(self._count)}):
                described = message.unity_output.rl_initialization_output.brain_parameters.add(brain_name=behavior)
                described.action_spec.num_discrete_actions = 1
                described.action_spec.discrete_branch_sizes.append(SYMBOLS)
        return message

    def _show(self) -> None:
        """New symbols for all agents."""
        self._symbols = self._numbers.integers(0, SYMBOLS, self._count).tolist()

    def _info(self, agent: int, *, done: bool) -> Any:  # noqa: ANN401 - of protobuf
        symbol = self._symbols[agent]
        info = AgentInfo(reward=self._rewards[agent], done=done, max_step_reached=done and self._limited)
        # Each episode of an agent has an id of its own.
        info.id = agent + self._count * self.episodes
        if self._masked:
            info.action_mask.extend(choice == (symbol + 1) % SYMBOLS for choice in range(SYMBOLS))
        row = [float(place == symbol) for place in range(SYMBOLS)]
        info.observations.add(name="shown", shape=[SYMBOLS], float_data={"data": row})
        info.observations.add(
            name="camera", shape=[SYMBOLS, _SIDE, _SIDE], compression_type=PNG, compressed_data=_picture(row)
        )
        return info


def _behavior(agent: int) -> str:
    return f"Namer?team={agent % 2}"


def _picture(row: list[float]) -> bytes:
    """A picture of one colour, as PNG."""
    file = io.BytesIO()
    Image.new("RGB", (_SIDE, _SIDE), tuple(int(255 * one) for one in row)).save(file, "PNG")
    return file.getvalue()


def _message() -> Any:  # noqa: ANN401 - of protobuf
    return Message(header={"status": CONTINUES})
