"""Feeds what reads the messages of a game of ML-Agents, without a connection: a target of ``make fuzz-frames``.

An input is a list of messages, each behind its size. Imports penstock in functions only, see `fuzz_seeds.py`.
"""

import io
from collections.abc import Callable
from struct import Struct

import numpy as np

STEPS = 3
_SIZE = Struct("!H")


class Told:
    """A game that says these messages, and then is gone."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def reset(self) -> object:
        return self.act({})

    def act(self, actions: object) -> object:
        from google.protobuf.message import DecodeError

        from penstock.envs.mlagents.messages import Message
        from penstock.errors import EnvError

        size = _SIZE.unpack_from(self._rest.ljust(_SIZE.size, b"\0"))[0]
        one, self._rest = self._rest[_SIZE.size : _SIZE.size + size], self._rest[_SIZE.size + size :]
        if not one:
            raise EnvError("the game has ended")
        try:
            return Message.FromString(one).unity_output
        except DecodeError:
            raise EnvError("gRPC has refused the call") from None

    def close(self) -> None:
        """Nothing: nobody listens."""


def play(data: bytes) -> int:
    """Step one lane of the game that says this, and return how often it was stepped."""
    from penstock.envs.mlagents.agents import Agents
    from penstock.envs.mlagents.lanes import GameLanes

    lanes = GameLanes(Told(data))
    env = Agents(1, iter([lanes]), masks=False)
    kind = lanes.kind
    action = {"continuous": np.zeros((1, kind.continuous)), "discrete": np.zeros((1, len(kind.branches)), np.int64)}
    env.reset()
    for _ in range(STEPS):
        obs, *_ = env.step(action)
        rows = obs.values() if isinstance(obs, dict) else [obs]
        # NaN is no mistake here: the run looks for it.
        assert {part.shape for part in rows} == {(1, *shape) for _, shape in kind.seen}
    return STEPS


def target() -> Callable[[bytes], None]:
    """The target: every error is one that names what is wrong."""
    # All that `play` needs: what is imported here is instrumented.
    from penstock.envs.mlagents import agents, lanes, messages  # noqa: F401
    from penstock.errors import BadDataError, EnvError, SpaceError

    def mlagents(data: bytes) -> None:
        try:
            play(data)
        except (BadDataError, EnvError, SpaceError):
            return

    return mlagents


def seeds() -> list[bytes]:
    """Games that are played to the end."""
    from PIL import Image

    from penstock.envs.mlagents.messages import PNG

    picture = io.BytesIO()
    Image.new("RGB", (4, 5), (10, 20, 30)).save(picture, "PNG")
    numbers = {"name": "numbers", "shape": [3], "float_data": {"data": [0.5, -1.0, 2.0]}}
    camera = {"name": "camera", "shape": [3, 5, 4], "compression_type": PNG, "compressed_data": picture.getvalue()}
    tiny = {"shape": [1, 2, 2], "float_data": {"data": [0.0, 1.0, 0.5, 0.25]}}
    return [
        game([numbers], {"num_continuous_actions": 2}),
        game([numbers, camera], {"num_discrete_actions": 2, "discrete_branch_sizes": [2, 3]}),
        game([tiny], {"num_continuous_actions": 1, "num_discrete_actions": 1, "discrete_branch_sizes": [4]}),
    ]


def game(observations: list[object], action: object) -> bytes:
    """A game of one agent that sees this and acts so."""
    from penstock.envs.mlagents.messages import Message

    described = {"brain_parameters": [{"brain_name": "b", "action_spec": action}]}
    parts = []
    for turn in range(STEPS + 1):
        infos = {"b": {"value": [{"id": 1, "reward": 1.0, "observations": observations}]}}
        begins = {"rl_initialization_output": described} if turn == 0 else {}
        output = {"rl_output": {"agentInfos": infos}, **begins}
        said = Message(header={"status": 200}, unity_output=output).SerializeToString()
        parts.append(_SIZE.pack(len(said)) + said)
    return b"".join(parts)
