"""Steps: what a Gamecore request asks for, whatever transport brought it. The protocols call it and know no bodies.

A served policy answers with `PolicySteps`. While a run trains from games, `penstock.games` answers.
"""

from typing import Protocol

from penstock.serving.server.codecs import Codec
from penstock.serving.server.endpoint import Endpoint
from penstock.serving.server.refusal import Refusal
from penstock.serving.server.sessions import SessionKey
from penstock.types import Array

__all__ = ["PolicySteps", "StepReply", "Steps"]


class StepReply(Protocol):
    """The reply to one request. One of its methods is called, once."""

    def answer(self, content_type: str, body: bytes) -> None:
        """Send this body."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """There is no answer."""
        ...


class Steps(Protocol):
    """Answers requests, now or later. Each method may raise `Refusal`."""

    def stateless(self, body: bytes, reply: StepReply) -> None:
        """A request of no session."""
        ...

    def start(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """A session begins."""
        ...

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """A session wants its next action."""
        ...

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """A session ends."""
        ...

    def parted(self, key: SessionKey) -> None:
        """The connection is gone over which this session asked. It may come back over another one."""
        ...


class _Asker:
    """Waits for the answer to one request."""

    __slots__ = ("_batched", "_codec", "_reply")

    def __init__(self, reply: StepReply, codec: Codec, *, batched: bool) -> None:
        self._reply = reply
        self._codec = codec
        self._batched = batched

    def answered(self, action: Array, version: int) -> None:  # noqa: ARG002 - the protocol has no place for it
        self._reply.answer(self._codec.content_type, self._codec.encode(action, batched=self._batched))

    def refused(self, refusal: Refusal) -> None:
        self._reply.refused(refusal)


class PolicySteps:
    """Answers with the actions of a served policy."""

    def __init__(self, endpoint: Endpoint, codec: Codec) -> None:
        self._endpoint = endpoint
        self._codec = codec

    def stateless(self, body: bytes, reply: StepReply) -> None:
        """The action for one observation, or a batch of them."""
        fields, batched = self._codec.decode(body)
        self._endpoint.ask(fields, _Asker(reply, self._codec, batched=batched))

    def start(self, key: SessionKey, body: bytes, reply: StepReply) -> None:  # noqa: ARG002 - it may be empty
        """Begin a session."""
        self._endpoint.start(key)
        self._done(reply)

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The next action of a session."""
        fields, batched = self._codec.decode(body)
        self._endpoint.tick(key, fields, _Asker(reply, self._codec, batched=batched))

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:  # noqa: ARG002 - it may be empty
        """End a session, once all that it asked before is answered."""
        self._endpoint.stop(key, lambda: self._done(reply))

    def parted(self, key: SessionKey) -> None:
        """Nothing: a session outlives its connection until it is idle for too long."""

    def _done(self, reply: StepReply) -> None:
        reply.answer(self._codec.content_type, self._codec.empty)
