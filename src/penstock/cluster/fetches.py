"""Fetches: notes where the observations of waiting rollouts are, and which host is to fetch them.

1. A rollout comes home without its observations. They stay in their slot on the host of the environment node.
2. The host of the learner fetches them.
3. Only then home delivers the rest of the rollout. So a rollout that is lost with its host before this was never
   counted.

Home fetches the observations itself in these cases:

- The learner is starting anew, or runs at home.
- The two hosts do not reach each other.
- An object store had no room for the answer to the other host. Then home fetches once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from penstock.cluster.crossing import sampled
from penstock.cluster.fetched import RolloutName, WantedRollout
from penstock.cluster.machines import Machine
from penstock.cluster.messages import FilledSlot
from penstock.cluster.observation_fields import observation_bytes, readers_apart
from penstock.cluster.rings import PART_BYTES
from penstock.program.graph import Program
from penstock.types import Array

__all__ = ["Call", "Fetches"]


class Call(NamedTuple):
    """A call to a host that is to be made."""

    number: int
    machine: Machine
    method: str
    arguments: tuple[Any, ...]


class _Fetch(NamedTuple):
    """Observations that are on their way."""

    source: Machine
    target: Machine | None
    """``None``: home."""
    wanted: Sequence[WantedRollout]


class Fetches:
    """The observations that do not come home with their rollouts.

    Args:
        program: of home.
    """

    def __init__(self, program: Program) -> None:
        self._readers = {program.node(node).group: reader for node, reader in readers_apart(program).items()}
        """Group of an environment node -> the learner of its shard."""
        table = sampled(program)
        names = () if table is None else table.writers
        self._writers = {program.node(name).group: number for number, name in enumerate(names)}
        self._most = max(1, PART_BYTES // max(1, observation_bytes(program)))
        """Most rollouts of one call."""
        self._numbers = count()
        self._under_way: dict[int, _Fetch] = {}
        self._at: dict[tuple[str, RolloutName], Machine] = {}
        """Waiting rollout -> the host of the learner, which has fetched its observations."""
        self._here: dict[tuple[str, RolloutName], Array] = {}
        """Waiting rollout -> its observations, which home has fetched."""
        self._severed: set[tuple[Machine, Machine]] = set()
        """Pairs of hosts of which the second one does not reach the first."""
        self._full: set[tuple[Machine, Machine]] = set()
        """Pairs of hosts of which the first one had no room for its answer to the second. Home asks it next: then home
        hears of the full store, and the pair may try again once that has room."""

    def apart(self, group: str) -> bool:
        """Whether the observations of an environment node stay on its host until they are fetched."""
        return group in self._readers

    def due(self, waiting: Iterable[tuple[Machine, FilledSlot]], placed: Mapping[str, Machine]) -> Iterator[Call]:
        """The calls that are to be made now. They count as made. One at a time for each pair of machines.

        Args:
            waiting: all rollouts that wait at home, with their hosts.
            placed: node -> the host that runs it.
        """
        apart = {_key(filled): (source, filled) for source, filled in waiting if filled.apart}
        self._at = {key: machine for key, machine in self._at.items() if key in apart}
        self._here = {key: parcel for key, parcel in self._here.items() if key in apart}
        wanted: dict[tuple[Machine, Machine | None], list[WantedRollout]] = {}
        for key, (source, filled) in apart.items():
            if key not in self._at and key not in self._here:
                target = placed.get(self._readers[filled.group])
                if target is not None and (source, target) in self._severed | self._full:
                    target = None
                one = WantedRollout(filled.group, filled.slot, self._writers[filled.group], key[1])
                wanted.setdefault((source, target), []).append(one)
        busy = {(fetch.source, fetch.target) for fetch in self._under_way.values()}
        for (source, target), rollouts in wanted.items():
            if (source, target) in busy:
                continue
            number, part = next(self._numbers), rollouts[: self._most]
            self._under_way[number] = _Fetch(source, target, part)
            if target is None:
                yield Call(number, source, "observations", (part,))
            else:
                yield Call(number, target, "fetch", (None if source is target else source.actor, part))

    def answered(self, number: int, answer: Sequence[bool] | Sequence[Array | None] | None) -> None:
        """A host has answered a call, as ``fetch`` or ``observations`` of `penstock.cluster.host.Host` do."""
        fetch = self._under_way.pop(number, None)
        if fetch is None:
            # The host that had the observations was lost meanwhile.
            return
        source, target, wanted = fetch
        if answer is None:
            if target is not None:
                self._severed.add((source, target))
            return
        if target is None:
            self._full = {pair for pair in self._full if pair[0] is not source}
        elif not answer:
            self._full.add((source, target))
            return
        for one, found in zip(wanted, answer, strict=True):
            # What is not found is of a life that is over.
            if target is None and isinstance(found, np.ndarray):
                self._here[one.group, one.name] = found
            elif target is not None and found is True:
                self._at[one.group, one.name] = target

    def complete(self, filled: FilledSlot) -> FilledSlot | None:
        """A rollout as it can be delivered; ``None`` if its observations are not where they are needed."""
        key = _key(filled)
        if not filled.apart or key in self._at:
            return filled
        return filled._replace(observations=self._here[key]) if key in self._here else None

    def host_of(self, filled: FilledSlot) -> Machine | None:
        """The host that has fetched the observations of a waiting rollout; ``None``: none has."""
        return self._at.get(_key(filled)) if filled.apart else None

    def lose(self, machine: Machine) -> None:
        """A host is given up. What it had fetched is fetched anew, to where the learner runs next."""
        self._at = {key: host for key, host in self._at.items() if host is not machine}
        self._severed = {pair for pair in self._severed if machine not in pair}
        self._full = {pair for pair in self._full if machine not in pair}
        kept = {
            number: fetch for number, fetch in self._under_way.items() if machine not in {fetch.source, fetch.target}
        }
        self._under_way = kept


def _key(filled: FilledSlot) -> tuple[str, RolloutName]:
    return filled.group, RolloutName(filled.life, filled.sequence)
