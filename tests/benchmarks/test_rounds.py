"""Asking a peer round by round. The peers here are lines of Python, in this interpreter."""

import sys

import pytest

from benchmarks.peers.rounds import Peer

SCRIPT = """
from benchmarks.peers.answers import answer
calls = []
print("a warning")
answer({"draw": lambda: calls.append(1), "count": lambda: print(len(calls))}, {"rank": "no tree"})
"""


def test_a_peer_times_as_many_calls_as_are_asked_for() -> None:
    peer = Peer([sys.executable, "-c", SCRIPT])
    try:
        assert (peer.ways, peer.missing) == (["draw", "count"], {"rank": "no tree"})
        draw, count = peer.each_call("draw", 5), peer.each_call("count", 1)
        assert [len(seconds) for seconds in (draw(), count(), draw())] == [5, 1, 5]
        assert (draw() >= 0).all()
    finally:
        peer.close()


def test_a_peer_that_fails_is_told() -> None:
    with pytest.raises(ValueError, match="the peer has ended"):
        Peer([sys.executable, "-c", "raise SystemExit(1)"])


def test_a_round_that_fails_is_told() -> None:
    peer = Peer([sys.executable, "-c", SCRIPT])
    try:
        with pytest.raises(ValueError, match="the peer has ended"):
            peer.each_call("rank", 1)()
    finally:
        peer.close()
