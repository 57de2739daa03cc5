"""What nodes on hosts have filled is delivered in order, each node's by itself, and only in the life that filled it."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.cluster.deliveries import Deliveries
from penstock.cluster.fetches import Fetches
from penstock.cluster.messages import FilledSlot, FreeSlot
from tests.cluster.handing import spread_program

A: Any = "a machine"
B: Any = "another machine"


class Node:
    """A stand-in that finds no free slot for these rollouts."""

    def __init__(self, life: int = 1, no_room: Collection[int] = (), *, freed_on_delivery: bool = True) -> None:
        self.life = life
        self.no_room = no_room
        self.freed_on_delivery = freed_on_delivery
        self.delivered: list[int] = []

    def next_needs(self) -> int:
        return 4

    def deliver(self, filled: FilledSlot) -> bool:
        if filled.sequence in self.no_room:
            return False
        self.delivered.append(filled.sequence)
        return True


def filled(group: str, sequence: int, life: int = 1) -> FilledSlot:
    return FilledSlot(group, life, sequence % 2, sequence, np.zeros(1, np.uint8), {}, {})


@pytest.fixture
def deliveries() -> Deliveries:
    publications: Any = SimpleNamespace()
    return Deliveries(Fetches(spread_program()), publications)


def deliver(deliveries: Deliveries, **nodes: Any) -> None:
    deliveries.deliver({name.replace("_", "."): node for name, node in nodes.items()})


def test_what_finds_no_room_keeps_its_place_and_holds_up_no_other_node(deliveries: Deliveries) -> None:
    full, free = Node(no_room={2}), Node()
    deliveries.take(A, [filled("env.0", 1), filled("env.0", 2), filled("env.1", 7), filled("env.0", 3)])
    deliver(deliveries, env_0=full, env_1=free)
    # The third one would find room, but comes after the second.
    assert (full.delivered, free.delivered) == ([1], [7])
    assert [(machine, one.sequence) for machine, one in deliveries.waiting] == [(A, 2), (A, 3)]
    deliveries.take(A, [filled("env.0", 4)])
    full.no_room = ()
    deliver(deliveries, env_0=full, env_1=free)
    assert full.delivered == [1, 2, 3, 4]
    assert not deliveries.waiting


def test_nothing_of_a_life_that_is_over_is_delivered(deliveries: Deliveries) -> None:
    node = Node(life=2)
    deliveries.take(A, [filled("env.0", 1, life=1), filled("env.1", 1), filled("env.0", 1, life=2)])
    deliver(deliveries, env_0=node)
    assert node.delivered == [1]
    assert not deliveries.waiting
    assert list(deliveries.freed()) == [(A, [FreeSlot("env.0", 2, 1, 4)])]


def test_a_host_is_told_once_which_of_its_slots_are_free(deliveries: Deliveries) -> None:
    deliveries.take(A, [filled("env.0", 1), filled("env.0", 2)])
    deliveries.take(B, [filled("env.1", 1), filled("learner.1", 1)])
    deliver(deliveries, env_0=Node(no_room={2}), env_1=Node(), learner_1=Node(freed_on_delivery=False))
    assert deliveries.freed_on(A) == [FreeSlot("env.0", 1, 1, 4)]
    assert deliveries.freed_on(A) == []
    # The gradient stays in its slot until it is settled.
    assert list(deliveries.freed()) == [(B, [FreeSlot("env.1", 1, 1, 4)])]
    assert list(deliveries.freed()) == []
