"""The idle share of each node, over counters of made-up busy and idle times."""

from penstock.metrics.idle_shares import IdleShares

MS = 1_000_000


class Node:
    """The counters of one node, and the shares that are found from them."""

    def __init__(self, *, again: bool = False) -> None:
        self.counts = {"busy_ns": 0, "idle_ns": 0}
        self.shares = IdleShares({"env.0": dict(self.counts)}, again=again)

    def share(self, busy_ms: int, idle_ms: int, now: float = 100.0) -> float | None:
        """The share after the node was busy and idle so long."""
        self.counts["busy_ns"] += busy_ms * MS
        self.counts["idle_ns"] += idle_ms * MS
        return self.shares.update({"env.0": dict(self.counts)}, now).get("idle/env.0")


def test_a_share_is_found_over_a_tenth_of_a_second_however_often_it_is_asked_for() -> None:
    node = Node()
    assert node.share(0, 0) is None
    # The last two: 20 + 75 of 5 + 20 + 75.
    times = ((30, 90), (0, 2), (0, 1), (97, 0), (5, 20), (0, 75))
    assert [node.share(busy, idle) for busy, idle in times] == [0.75, 0.75, 0.75, 0.03, 0.03, 0.95]


def test_a_node_whose_counters_stand_still_for_two_seconds_has_no_share() -> None:
    node = Node()
    assert node.share(100, 100, 100.0) == 0.5
    # It has counted a little more before its machine was lost.
    assert node.share(50, 0, 102.0) == 0.5
    assert [node.share(0, 0, 102.1) for _ in range(2)] == [None, None]
    # The 50 ms from before count, too: 50 of 200.
    assert node.share(100, 50, 102.1) == 0.25


def test_an_earlier_life_may_have_found_the_first_share_so_the_next_needs_a_tenth_of_a_second() -> None:
    node = Node(again=True)
    assert node.share(1, 0) is None
    assert node.share(24, 75) == 0.75


def test_a_node_that_comes_later_has_a_share_from_its_first_counters_on() -> None:
    shares = IdleShares({}, again=False)
    assert shares.update({"env.1": {"busy_ns": 3, "idle_ns": 1}}, 5.0) == {"idle/env.1": 0.25}
