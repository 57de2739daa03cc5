"""A worker process: answers the batches that come over its socket, one after the other. It keeps nothing between them.

Run as ``python -m penstock.serving.server.engines.worker FD MAX_BATCH PAD_BATCHES SOURCE``, the last two as JSON. It
ends with its socket.
"""

import contextlib
import json
import logging
import signal
import sys
from socket import MSG_WAITALL, socket

from penstock.errors import PenstockError
from penstock.policies.batch_sizes import BatchSizes
from penstock.serving.server.engines.frames import HEAD, Layout, packed, size_of, unpacked
from penstock.serving.server.policy.answering import Answerer, Questions
from penstock.serving.server.policy.source import Source

__all__ = ["main"]

log = logging.getLogger("penstock.serve")


def main() -> int:
    """Answer until the socket is closed."""
    # A Ctrl-C of the terminal is the server's: it ends its workers when all is answered.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, format="penstock serve: worker: %(message)s", level=logging.WARNING)
    descriptor, max_batch, pad_batches, source = sys.argv[1:]
    sizes = json.loads(pad_batches)
    with socket(fileno=int(descriptor)) as server:
        try:
            policy = Source(**json.loads(source)).policy()
        except PenstockError as error:
            log.error("%s", error)  # noqa: TRY400 - one line says it all
            return 1
        answerer = Answerer(policy, int(max_batch), BatchSizes(tuple(sizes) if isinstance(sizes, list) else sizes))
        answerer.warm_up()
        # The server is gone: nobody wants an answer.
        with contextlib.suppress(ConnectionError):
            server.sendall(HEAD.pack(0, 0))
            _serve(server, Layout.of(policy), answerer)
    return 0


def _serve(server: socket, layout: Layout, answerer: Answerer) -> None:
    """Answer batches until the socket is closed."""
    while True:
        head = server.recv(HEAD.size, MSG_WAITALL)
        if len(head) < HEAD.size:
            return
        number, rows = HEAD.unpack(head)
        size = size_of(layout.questions, rows)
        body = server.recv(size, MSG_WAITALL)
        if len(body) < size:
            return
        arrays = unpacked(layout.questions, rows, body)
        carry = {spec.name: arrays.pop(spec.name) for spec in layout.answers[1:]}
        first = arrays.pop("first")
        try:
            answer = answerer.answer(Questions(arrays, first, carry))
        except Exception:  # a policy may hold a user's own module, which may raise anything
            log.exception("the policy failed for a batch of %d rows", rows)
            server.sendall(HEAD.pack(number, 0))
        else:
            server.sendall(packed(layout.answers, number, rows, {"action": answer.action, **answer.carry}))


if __name__ == "__main__":
    raise SystemExit(main())
