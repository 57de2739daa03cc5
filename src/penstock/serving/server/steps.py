"""Steps: what a Gamecore request asks for, whatever transport brought it. The protocols call it and know no bodies.

Served policies answer with `PolicySteps`. While a run trains from games, `penstock.games` answers.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from penstock.serving.server.codecs import Codec
from penstock.serving.server.endpoint import Endpoint
from penstock.serving.server.endpoints import Endpoints
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

    def stateless(self, policy: str, body: bytes, reply: StepReply) -> None:
        """A request of no session, to the policy of this name; empty: the client names none."""
        ...

    def start(self, key: SessionKey, policy: str, body: bytes, reply: StepReply) -> None:
        """A session begins, with the policy of this name; empty: the client names none."""
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


class _Desk(NamedTuple):
    """An endpoint, and how its requests hold observations."""

    endpoint: Endpoint
    codec: Codec


class PolicySteps:
    """Answers with the actions of served policies. The name of a session is unique among all of them.

    Args:
        endpoints: of the policies.
        make_codec: makes the codec for an endpoint.
    """

    def __init__(self, endpoints: Endpoints, make_codec: Callable[[Endpoint], Codec]) -> None:
        self._endpoints = endpoints
        self._desks = {endpoint.name: _Desk(endpoint, make_codec(endpoint)) for endpoint in endpoints}
        self._first = self._desks[endpoints.find("").name]
        self._at: dict[SessionKey, _Desk] = {}
        """Where each session has begun."""
        for endpoint in endpoints:
            endpoint.on_end = self._forget

    def stateless(self, policy: str, body: bytes, reply: StepReply) -> None:
        """The action for one observation, or a batch of them."""
        endpoint, codec = self._desk(policy)
        fields, batched = codec.decode(body)
        endpoint.ask(fields, _Asker(reply, codec, batched=batched))

    def start(self, key: SessionKey, policy: str, body: bytes, reply: StepReply) -> None:  # noqa: ARG002 - may be empty
        """Begin a session."""
        desk = self._desk(policy)
        if key in self._at:
            raise Refusal(HTTPStatus.CONFLICT, f"session {key[1]!r} has started already; stop it first")
        desk.endpoint.start(key)
        self._at[key] = desk
        _done(desk, reply)

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The next action of a session."""
        # The first endpoint says that it has no such session.
        endpoint, codec = self._at.get(key, self._first)
        fields, batched = codec.decode(body)
        endpoint.tick(key, fields, _Asker(reply, codec, batched=batched))

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:  # noqa: ARG002 - it may be empty
        """End a session, once all that it asked before is answered."""
        desk = self._at.get(key, self._first)
        desk.endpoint.stop(key, lambda: _done(desk, reply))

    def parted(self, key: SessionKey) -> None:
        """Nothing: a session outlives its connection until it is idle for too long."""

    def _desk(self, policy: str) -> _Desk:
        return self._desks[self._endpoints.find(policy).name] if policy else self._first

    def _forget(self, key: SessionKey) -> None:
        self._at.pop(key, None)


def _done(desk: _Desk, reply: StepReply) -> None:
    reply.answer(desk.codec.content_type, desk.codec.empty)
