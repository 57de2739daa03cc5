"""The steps of a server whose policies answer alone: a Gamecore request's body becomes a question to an endpoint."""

import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import orjson

from penstock.serving.description import Description
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.endpoints.recording import OpenEpisode, Recorder
from penstock.serving.server.engines.batcher import Asker
from penstock.serving.server.protocols.gamecore.codecs import Codec, Heard
from penstock.serving.server.sessions import SessionKey, no_session
from penstock.serving.server.steps import StepReply
from penstock.types import Array, ArraySpec

__all__ = ["PolicySteps"]


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


class _Recording:
    """Waits for the answer to a tick whose episode is kept."""

    __slots__ = ("_asker", "_episode", "_heard")

    def __init__(self, asker: _Asker, episode: OpenEpisode, heard: Heard) -> None:
        self._asker = asker
        self._episode = episode
        self._heard = heard

    def answered(self, action: Array, version: int) -> None:
        self._asker.answered(self._episode.add(self._heard.fields, action, self._heard.reward), version)

    def refused(self, refusal: Refusal) -> None:
        self._asker.refused(refusal)


class _Desk(NamedTuple):
    """An endpoint, how its requests hold observations, and what keeps its episodes."""

    endpoint: Endpoint
    codec: Codec
    recorder: Recorder | None


class PolicySteps:
    """Answers with the actions of served policies. The name of a session is unique among all of them.

    Args:
        endpoints: of the policies.
        make_codec: makes the codec for an endpoint.
        recorders: keep the episodes of policies, by their names.
    """

    def __init__(
        self, endpoints: Endpoints, make_codec: Callable[[Endpoint], Codec], recorders: Mapping[str, Recorder]
    ) -> None:
        self._endpoints = endpoints
        self._desks = {one.name: _Desk(one, make_codec(one), recorders.get(one.name)) for one in endpoints}
        self._first = self._desks[endpoints.find("").name]
        self._at: dict[SessionKey, _Desk] = {}
        """Where each session has begun."""
        self._parted: set[SessionKey] = set()
        """Sessions that have lost their connection, and have asked nothing since."""
        self._episodes: dict[SessionKey, OpenEpisode] = {}
        """Of sessions whose episodes are kept."""
        for endpoint in endpoints:
            endpoint.on_end = self._forget

    def stateless(self, policy: str, body: bytes, reply: StepReply) -> None:
        """The action for one observation, or a batch of them. Or what the policy is like, if the body asks that."""
        endpoint, codec, _ = self._desk(policy)
        if codec.asks_for_description(body):
            reply.answer(codec.content_type, orjson.dumps(_description_of(endpoint).to_json()))
            return
        heard = codec.decode(body)
        endpoint.ask(heard.fields, _Asker(reply, codec, batched=heard.batched))

    def start(self, key: SessionKey, policy: str, body: bytes, reply: StepReply) -> None:  # noqa: ARG002 - may be empty
        """Begin a session. One of this name that has lost its connection ends: its game has crashed and is back."""
        desk = self._desk(policy)
        if self.has_parted(key):
            self.drop(key)
        if key in self._at:
            raise Refusal(HTTPStatus.CONFLICT, f"session {key[1]!r} has started already; stop it first")
        desk.endpoint.start(key)
        self._at[key] = desk
        if desk.recorder is not None:
            self._episodes[key] = desk.recorder.begin(str(key[1]))
        _done(desk, reply)

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The next action of a session."""
        desk = self._at.get(key)
        if desk is None:
            raise no_session(key)
        self._parted.discard(key)
        endpoint, codec, _ = desk
        heard = codec.decode(body)
        asker = _Asker(reply, codec, batched=heard.batched)
        episode = self._episodes.get(key)
        asks: Asker = asker if episode is None else _Recording(asker, episode, heard)
        endpoint.tick(key, heard.fields, asks)

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """End a session, once all that it asked before is answered. Its body counts only if episodes are kept."""
        desk = self._at.get(key)
        if desk is None:
            raise no_session(key)
        if key not in self._episodes:
            desk.endpoint.stop(key, lambda: _done(desk, reply))
            return
        heard = _last_words(desk.codec, body)
        # Take the episode out first: when a session ends, `_forget` treats an episode that is still here as one whose
        # client has vanished.
        episode = self._episodes.pop(key)

        def ended() -> None:
            episode.end(heard.fields, heard.reward, heard.terminated)
            _done(desk, reply)

        desk.endpoint.stop(key, ended)

    def parted(self, key: SessionKey) -> None:
        """A session outlives its connection until it is idle for too long, or begins anew."""
        if key in self._at:
            self._parted.add(key)

    def has(self, key: SessionKey) -> bool:
        """Whether this session lives."""
        return key in self._at

    def has_parted(self, key: SessionKey) -> bool:
        """Whether this session has lost its connection, and has asked nothing since."""
        return key in self._parted

    def drop(self, key: SessionKey) -> None:
        """End a session whose client is gone. Its name is free at once."""
        self._at[key].endpoint.stop(key, _nothing)

    def sweep(self) -> None:
        """See `Endpoint.sweep`."""
        for endpoint in self._endpoints:
            endpoint.sweep()

    def _desk(self, policy: str) -> _Desk:
        return self._desks[self._endpoints.find(policy).name] if policy else self._first

    def close(self) -> None:
        """The server ends: open episodes end as if their clients had vanished."""
        for episode in self._episodes.values():
            episode.vanish()
        self._episodes.clear()

    def _forget(self, key: SessionKey) -> None:
        self._at.pop(key, None)
        self._parted.discard(key)
        episode = self._episodes.pop(key, None)
        if episode is not None:
            episode.vanish()


def _description_of(endpoint: Endpoint) -> Description:
    policy = endpoint.policy
    carry = tuple(ArraySpec(name, row.shape[1:], row.dtype.name) for name, row in policy.session(1).carry.items())
    limits = endpoint.limits
    return Description(endpoint.name, endpoint.stable.number, policy.spaces, carry, limits.max_batch, limits.max_body)


def _last_words(codec: Codec, body: bytes) -> Heard:
    """What a client says at the end: nothing, if it does not fit. Its session ends all the same."""
    with contextlib.suppress(Refusal):
        heard = codec.decode_end(body)
        if all(len(values) == 1 for values in heard.fields.values()):
            return heard
    return Heard({}, batched=False)


def _nothing() -> None:
    """Nobody waits for the end of this session."""


def _done(desk: _Desk, reply: StepReply) -> None:
    reply.answer(desk.codec.content_type, desk.codec.empty)
