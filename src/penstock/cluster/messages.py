"""What home and hosts tell each other, as values. Knows no cluster."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from penstock import __version__
from penstock.cluster.own_source import own_digest
from penstock.cluster.rings import News
from penstock.kernels.level import instruction_set
from penstock.memory.action_log import Past, Position
from penstock.memory.snapshots import Snapshot
from penstock.processes.log_lines import LogLine
from penstock.program.graph import NodeSpec
from penstock.supervision.lives import Exit
from penstock.types import Array

__all__ = ["Batch", "Facts", "FilledSlot", "FreeSlot", "Publication", "SlotCopy", "Task", "Vitals", "facts"]


class Facts(NamedTuple):
    """What must be the same on all machines of a run."""

    penstock: str
    python: str
    instruction_set: str
    code: str
    """See `penstock.cluster.own_source`."""


def facts() -> Facts:
    """The facts of this machine."""
    return Facts(__version__, ".".join(map(str, sys.version_info[:2])), instruction_set(), own_digest())


class SlotCopy(NamedTuple):
    """The content of a slot of a stream at home."""

    sequence: int
    parcel: Array


class Task(NamedTuple):
    """A node that a host is to run."""

    node: NodeSpec
    """The settings of an environment node say where its lanes begin."""
    life: int
    positions: tuple[Position, ...]
    """For each lane of an environment node: where the actions of this life go on in the action log."""
    threads: int
    imports: tuple[str, ...]
    handed_on: tuple[SlotCopy, ...] = ()
    """Gradients that earlier lives of a learner have handed on, and that are not settled."""
    rollouts: tuple[SlotCopy, ...] = ()
    """Rollouts from which a learner has still to learn, if it looks for new ones by itself."""
    publication: int = 0
    """The host starts the node only after this publication of the parameters. It settles all gradients and rollouts of
    earlier lives that are in neither ``handed_on`` nor ``rollouts``. 0: the host need not wait."""
    apart: bool = False
    """The observations of an environment node's rollouts do not go home: the machine of their learner fetches them."""


class Publication(NamedTuple):
    """A publication of a board, for the nodes of a host that read it."""

    number: int
    """Of the publication at home. A version that is published again, with other values, has another number."""
    version: int
    parcel: Array
    news: News | None = None
    """New slots of the shards whose learners run there."""


class FilledSlot(NamedTuple):
    """A slot that a node of a host has filled: a rollout, or the gradients of a step."""

    group: str
    life: int
    slot: int
    sequence: int
    parcel: Array
    """The whole slot; ``apart``: without the observations."""
    pasts: dict[int, Past]
    """Lane -> what restores it to the end of this rollout. Only for lanes with a dropped rollout before this one: home
    lacks the actions of the dropped rollout."""
    bases: dict[int, Snapshot]
    """Lane -> a snapshot that home has not got yet."""
    apart: bool = False
    """The observations are still in the slot of the host."""
    known: Array | None = None
    """``apart``: the `penstock.replay.priorities.known_priorities` of its rows; ``None`` if rows are not ranked."""
    observations: Array | None = None
    """``apart``: the observations, if home has fetched them itself."""


class FreeSlot(NamedTuple):
    """A slot of a host whose content is at home: the node that has filled it may fill it anew."""

    group: str
    life: int
    slot: int
    publication: int = 0
    """It is not free before the host has this publication of the policy; 0: it is free at once."""


class Vitals(NamedTuple):
    """Signs of life of one node, and its counters."""

    life: int
    silent_ns: int
    """Time since its loop last began a round."""
    busy_ns: int
    """Time that its announced work may still take."""
    sign: int
    handed_on: int
    """What its life has handed on."""
    counters: dict[str, int]


class Batch(NamedTuple):
    """What a host tells home at once."""

    filled: list[FilledSlot]
    exits: list[tuple[int, Exit]]
    """The life that has ended, and how."""
    vitals: dict[str, Vitals]
    log_lines: Sequence[LogLine]
    """What its processes have logged since the batch before."""
