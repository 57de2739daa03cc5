"""Finds where the lanes of an EnvNode begin: as the run says, or after the last rollout that an earlier life pushed."""

from dataclasses import replace
from typing import NamedTuple

from penstock.memory.action_log import Position
from penstock.nodes.contract import LaneStart, Ports
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.ports import ActionLogPort, StreamWriter
from penstock.types import Array, Arrays

__all__ = ["lane_starts", "note_earlier_rows"]


class _HandedOver(NamedTuple):
    """The last rollout that is with the learner or committed, and the state of the lanes after it."""

    rollout: int
    carry: Arrays
    """Name -> ``[lanes, ...]``; empty for a policy without memory."""
    position: Array
    """``[lanes, 4]``"""
    collected: Array
    """``[lanes]``"""
    spoilt: Array
    """``[lanes]``"""


def note_earlier_rows(settings: EnvSettings, ports: Ports) -> None:
    """Note the rows that the lanes gave before this start of the run. Call it before anything that takes time.

    The rate limiter counts the rows of all environment nodes, and a learner may release a row as soon as it is counted.
    """
    rows = sum(start.collected - start.spoilt for start in settings.starts)
    # An earlier life has noted as many or more, unless it died before it came here.
    if ports.counters()[ports.name]["collected"] < rows:
        ports.note("collected", rows)


def lane_starts(
    settings: EnvSettings, ports: Ports, stream: StreamWriter, log: ActionLogPort, *, restorable: bool
) -> tuple[LaneStart, ...]:
    """One start for each lane. A lane whose episode cannot be restored is counted and begins its next episode."""
    handed_over = _handed_over(settings, ports, stream) if ports.former else None
    if handed_over is None or handed_over.rollout < settings.starts[0].rollout:
        for lane, start in enumerate(settings.starts):
            _number_actions(log, lane, start)
        return settings.starts
    rollout, starts = handed_over.rollout + 1, []
    for lane, row in enumerate(handed_over.position):
        position = Position(*map(int, row))
        start = LaneStart(
            position.episode,
            rollout * settings.num_steps,
            rollout,
            collected=int(handed_over.collected[lane]),
            spoilt=int(handed_over.spoilt[lane]),
        )
        past = log.past(lane, position) if restorable else None
        if past is None:
            ports.count("not_restored")
            starts.append(replace(start, episode=position.episode + 1))
        else:
            # Restoring logs the same actions again.
            log.rewind(lane, position._replace(steps=0))
            carry = {name: values[lane] for name, values in handed_over.carry.items()}
            starts.append(replace(start, position=position, actions=past.actions, base=past.base, carry=carry))
    return tuple(starts)


def _number_actions(log: ActionLogPort, lane: int, start: LaneStart) -> None:
    """Give the actions of a lane the numbers that they have in a run without interruption.

    A record of an earlier life, or of the run before a resume, names the lane's actions by these numbers.
    """
    begin = Position(start.episode, 0, 0, 0) if start.position is None else start.position
    log.rewind(lane, begin._replace(steps=0))


def _handed_over(settings: EnvSettings, ports: Ports, stream: StreamWriter) -> _HandedOver | None:
    """Find the last rollout that is with the learner or committed."""
    record = ports.record("learner")
    own = {
        sequence: index
        for sequence, index in stream.written().items()
        if sequence % settings.num_workers == settings.worker
    }
    slots = {index: stream.slot(index) for index in own.values()}
    seen = {index: _left_by(slot, slice(None), int(slot["rollout"])) for index, slot in slots.items()}
    # Race: the learner goes on meanwhile. It commits a rollout before it releases the rollout's slot. So:
    # 1. Read the slots.
    # 2. Count only slots that are still not released. What was read from the others may belong to a later rollout.
    # 3. Read the record: it has the rollouts whose slots are released.
    still = stream.written()
    found = [seen[index] for sequence, index in own.items() if still.get(sequence) == index]
    committed = record.copy()
    while committed is None and record.number() >= 0:
        committed = record.copy()
    if committed is not None:
        lanes = slice(settings.first_lane, settings.first_lane + settings.lanes)
        rollout = int(committed.arrays["lane_rollout"][settings.first_lane]) - 1
        found.append(_left_by(committed.arrays, lanes, rollout))
    return max(found, key=lambda last: last.rollout, default=None)


def _left_by(arrays: Arrays, lanes: slice, rollout: int) -> _HandedOver:
    """Copy the state of the lanes after a rollout, from its slot or from the learner's record."""
    names = ("lane_position", "lane_collected", "lane_spoilt")
    carried = {name: values for name, values in arrays.items() if name.startswith("lane_carry.")}
    carry = {name.removeprefix("lane_"): values[lanes].copy() for name, values in carried.items()}
    return _HandedOver(rollout, carry, *(arrays[name][lanes].copy() for name in names))
