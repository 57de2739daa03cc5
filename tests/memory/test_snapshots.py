import signal

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.action_log import ActionLog, Position
from penstock.memory.snapshots import GENERATIONS, Snapshot, Snapshots
from penstock.types import ArraySpec


def make(segment, lanes: int = 2, nbytes: int = 64) -> Snapshots:
    return Snapshots(segment(Snapshots.required(lanes, nbytes)).bytes, lanes, nbytes)


def at(steps: int, episode: int = 0, first_step: int = 0) -> Position:
    return Position(episode, first_step, steps, 7 * steps)


def taken(steps: int, episode: int = 0, first_step: int = 0) -> Snapshot:
    return Snapshot(at(steps, episode, first_step), steps / 2, np.full(steps % 64, steps, np.uint8))


def found(snapshots: Snapshots, position: Position, lane: int = 0) -> int | None:
    """The steps at which the base was taken."""
    base = snapshots.base(lane, position)
    return None if base is None else base.position.steps


def test_the_base_is_the_latest_snapshot_that_is_not_behind_the_position(segment) -> None:
    snapshots = make(segment)
    assert found(snapshots, at(100)) is None
    for steps in (10, 20, 30):
        snapshots.add(0, taken(steps))
    assert [found(snapshots, at(steps)) for steps in (9, 10, 19, 20, 30, 99)] == [None, 10, 10, 20, 30, 30]
    base = snapshots.base(0, at(25))
    assert base is not None
    assert (base.position, base.episode_return, base.content.tolist()) == (at(20), 10.0, [20] * 20)
    assert found(snapshots, at(100), lane=1) is None


def test_snapshots_of_other_episodes_are_no_base(segment) -> None:
    snapshots = make(segment)
    snapshots.add(0, taken(10, episode=3, first_step=50))
    assert found(snapshots, at(20, episode=3, first_step=50)) == 10
    assert found(snapshots, at(20, episode=4, first_step=50)) is None
    assert found(snapshots, at(20, episode=3, first_step=40)) is None


def test_the_oldest_snapshot_makes_room(segment) -> None:
    snapshots = make(segment)
    for steps in range(10, 10 * (GENERATIONS + 2), 10):
        snapshots.add(0, taken(steps))
    assert [found(snapshots, at(steps)) for steps in (10, 20, 40)] == [None, 20, 40]


def test_the_same_snapshot_again_pushes_none_out(segment) -> None:
    snapshots = make(segment)
    snapshots.add(0, taken(10))
    for _ in range(2 * GENERATIONS):
        snapshots.add(0, taken(20))
    assert found(snapshots, at(15)) == 10


def test_a_lane_that_goes_on_from_before_forgets_what_came_after(segment) -> None:
    snapshots = make(segment)
    snapshots.add(0, taken(10))
    snapshots.forget_after(0, at(12))
    assert found(snapshots, at(40)) == 10
    snapshots.add(0, taken(20))
    snapshots.forget_after(0, at(12))
    assert found(snapshots, at(40)) == 10
    snapshots.add(0, taken(25))
    assert found(snapshots, at(40)) == 25
    # A committed position may still be in an earlier episode.
    snapshots.forget_after(0, at(5, episode=1, first_step=60))
    assert found(snapshots, at(40)) == 25


def test_a_snapshot_that_is_too_large_changes_nothing(segment) -> None:
    snapshots = make(segment, nbytes=8)
    snapshots.add(0, taken(5))
    with pytest.raises(ResourceError, match="9 bytes; 8 is the most"):
        snapshots.add(0, taken(9))
    assert found(snapshots, at(20)) == 5


ACTION = ArraySpec("action", (), "int64")


def log_of(segment, capacity: int = 8) -> ActionLog:
    needed = ActionLog.required(1, ACTION, capacity, 64)
    return ActionLog(segment(needed).bytes, 1, ACTION, ["obs"], capacity, snapshot_bytes=64)


def play(log: ActionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.append_lane(0, np.int64(number), {"obs": np.array([number])})


def test_a_log_restores_a_long_episode_from_its_base(segment) -> None:
    log = log_of(segment)
    assert log.snapshot_every == 4
    log.begin_episode(0, 2, {"obs": np.array([0])})
    play(log, 0, 20)
    assert log.past(0, log.position(0)) is None
    base = Snapshot(log.position(0), 1.5, np.ones(3, np.uint8))
    log.add_snapshot(0, base)
    play(log, 20, 3)
    past = log.past(0, log.position(0))
    assert past is not None
    assert past.base is not None
    assert (past.base.position, past.base.episode_return, past.actions.tolist()) == (base.position, 1.5, [20, 21, 22])
    # At the base itself there is nothing to play.
    at_base = log.past(0, base.position)
    assert at_base is not None
    assert at_base.actions.shape == (0,)
    # A new log that begins there is at the same position after the same actions.
    new = log_of(segment)
    new.rewind(0, base.position._replace(steps=0))
    new.begin_episode(0, 2, {"obs": np.array([0])})
    new.begin_at(0, past.base)
    again = new.past(0, new.position(0))
    assert again is not None
    assert again.actions.shape == (0,)
    play(new, 20, 3)
    assert new.position(0) == log.position(0)
    play(log, 23, 6)
    assert log.past(0, log.position(0)) is None


def test_a_log_without_room_for_snapshots_has_none(segment) -> None:
    log = ActionLog(segment(ActionLog.required(1, ACTION, 8)).bytes, 1, ACTION, ["obs"], 8)
    assert log.snapshot_bytes == 0
    log.forget_snapshots(0, at(3))
    with pytest.raises(ResourceError, match="keeps no snapshots"):
        log.add_snapshot(0, taken(3))


WRITER = """
import numpy as np
from penstock.memory.snapshots import Snapshot, Snapshots
from penstock.memory.position import Position

snapshots = Snapshots(memory, 1, 1 << 20)
steps = snapshots._table.written(0)
while True:
    steps += 1
    snapshots.add(0, Snapshot(Position(0, 0, steps, steps), float(steps), np.full(1 << 20, steps % 256, np.uint8)))
"""


@pytest.mark.nightly  # Six seconds of kills. Shorter: one in ``tests/chaos/test_exact_kills.py``.
def test_a_death_at_any_moment_leaves_whole_snapshots(segment, program) -> None:
    shared = segment(Snapshots.required(1, 1 << 20))
    snapshots, last = Snapshots(shared.bytes, 1, 1 << 20), 0
    for life in range(12):
        writer = program(WRITER, shared)
        while snapshots._table.written(0) < last + 1 + life % 3:
            pass
        # While the other process writes, a copy is whole or there is none.
        for _ in range(20):
            base = snapshots.base(0, at(1 << 40))
            assert base is None or (base.content == base.position.steps % 256).all()
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        base = snapshots.base(0, at(1 << 40))
        assert base is not None
        assert (base.content == base.position.steps % 256).all()
        assert base.position.steps >= last
        last = snapshots._table.written(0)
