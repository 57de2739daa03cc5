"""Steps: what a Gamecore request asks for, whatever transport brought it. The protocols call it and know no bodies.

Served policies answer with `PolicySteps`; with an agent, and while a run trains from games, `penstock.games` answers.
"""

from typing import Protocol

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.sessions import SessionKey

__all__ = ["StepReply", "Steps"]


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

    def has(self, key: SessionKey) -> bool:
        """Whether this session lives."""
        ...

    def parted(self, key: SessionKey) -> None:
        """The connection is gone over which this session asked. It may come back over another one."""
        ...

    def sweep(self) -> None:
        """Look after what is idle, hangs or is over. Called several times a second."""
        ...
