import signal

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.action_log import CAPACITY, ActionLog, Position
from penstock.types import ArraySpec

ACTION = ArraySpec("action", (3,), "float32")
FIELDS = ["obs.camera", "obs.speed"]


def make(segment, lanes: int = 2, capacity: int = 8) -> ActionLog:
    return ActionLog(segment(ActionLog.required(lanes, ACTION, capacity)).bytes, lanes, ACTION, FIELDS, capacity)


def step(number: int, lanes: int = 2) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Action and observations of a vector step: lane 1 sees other numbers than lane 0."""
    lane = np.arange(lanes)
    action = np.stack([number + lane * 100] * 3, axis=1).astype(np.float32)
    camera = np.broadcast_to((number + lane)[:, None, None], (lanes, 5, 7)).astype(np.uint8)
    return action, {"obs.camera": camera, "obs.speed": (number + lane).astype(np.float64)}


def append(log: ActionLog, action: np.ndarray, obs: dict[str, np.ndarray]) -> None:
    """Log one vector step, out of a rollout of one."""
    log.bind(
        np.stack([action, action + 7]), {name: np.stack([values + 7, values]) for name, values in obs.items()}
    ).append(0)


def test_an_episode_can_be_read_back(segment) -> None:
    log = make(segment)
    for lane in range(2):
        log.begin_episode(lane, 4, step(0)[1])
    for number in range(5):
        append(log, *step(number))
    position = log.position(1)
    assert position[:3] == (4, 0, 5)
    actions = log.content(1, position)
    assert actions.shape == (5, 3)
    assert actions.dtype == np.float32
    assert actions[:, 0].tolist() == [100, 101, 102, 103, 104]
    log.begin_episode(1, 5, step(9)[1])
    assert log.position(1)[:3] == (5, 5, 0)
    assert log.content(1, log.position(1)).shape == (0, 3)
    assert log.position(0)[:3] == (4, 0, 5)


def test_positions_fit_the_commit_record(segment) -> None:
    log = make(segment)
    log.begin_episode(0, 1, step(0)[1])
    append(log, *step(1))
    table = np.zeros((2, 4), np.int64)
    log.positions(table)
    assert table[0].tolist() == list(log.position(0))
    assert Position(*map(int, table[0])) == log.position(0)


def test_a_ring_that_has_come_round_says_so(segment) -> None:
    log = make(segment)
    log.begin_episode(0, 0, step(0)[1])
    for number in range(8):
        append(log, *step(number))
    early = Position(0, 0, 3, 0)
    assert log.content(0, early)[:, 0].tolist() == [0, 1, 2]
    append(log, *step(8))
    assert log.content(0, early) is None
    assert log.content(0, log.position(0)) is None


def test_the_ring_holds_ten_thousand_actions_by_default() -> None:
    assert CAPACITY == 10_000
    # A lane: one cache line, and an action of three floats in two words.
    assert ActionLog.required(8, ACTION) == 8 * (64 + 10_000 * 2 * 8)


def test_the_hash_tells_episodes_apart(segment) -> None:
    log = make(segment)
    hashes = set()
    for change in (None, "obs.camera", "obs.speed"):
        _, first = step(0)
        log.begin_episode(0, 0, first)
        action, obs = step(1)
        if change is not None:
            obs[change][0] += 1
        append(log, action, obs)
        hashes.add(log.position(0).hash)
    assert len(hashes) == 3


def test_strided_arrays_hash_as_what_they_hold(segment) -> None:
    log = make(segment)
    action, obs = step(3)
    hashes = []
    for camera in (obs["obs.camera"], np.asfortranarray(obs["obs.camera"])):
        log.begin_episode(0, 0, obs | {"obs.camera": camera})
        log.append_lane(0, action[0], obs | {"obs.camera": camera})
        hashes.append(log.position(0).hash)
    assert hashes[0] == hashes[1]


def test_a_lane_is_restored_in_a_new_log(segment) -> None:
    log = make(segment)
    for lane in range(2):
        log.begin_episode(lane, 6, step(0)[1])
    for number in range(1, 5):
        append(log, *step(number))
    saved, actions = log.position(1), log.content(1, log.position(1))

    new = make(segment)
    new.begin_episode(1, saved.episode, step(0)[1])
    for number, action in enumerate(actions, start=1):
        new.append_lane(1, action, step(number)[1])
    assert new.position(1) == saved
    assert new.position(0).steps == 0


def test_a_lane_is_restored_in_the_log_of_a_dead_writer(segment) -> None:
    log = make(segment)
    log.begin_episode(1, 6, step(0)[1])
    for number in range(1, 4):
        append(log, *step(number))
    boundary = log.position(1)
    append(log, *step(90))  # after the last rollout that was pushed
    actions = log.content(1, boundary)

    log.rewind(1, boundary._replace(steps=0))
    log.begin_episode(1, boundary.episode, step(0)[1])
    for number, action in enumerate(actions, start=1):
        log.append_lane(1, action, step(number)[1])
    assert log.position(1) == boundary
    assert (log.content(1, boundary) == actions).all()


def test_a_rollouts_rows_are_logged_and_begin_episodes(segment) -> None:
    log, plain = make(segment), make(segment)
    steps = [step(number) for number in range(4)]
    actions = np.stack([action for action, _ in steps])
    rollout = log.bind(actions, {name: np.stack([obs[name] for _, obs in steps]) for name in FIELDS})
    for lane in range(2):
        rollout.begin_episode(lane, 2, 0)
        plain.begin_episode(lane, 2, steps[0][1])
    for t in range(3):
        rollout.append(t)
        for lane in range(2):
            plain.append_lane(lane, actions[t, lane], steps[t + 1][1])
    assert log.position(1) == plain.position(1)
    assert log.position(0) == plain.position(0)
    np.testing.assert_array_equal(log.content(1, log.position(1)), actions[:3, 1])
    rollout.begin_episode(1, 3, 3)
    plain.begin_episode(1, 3, steps[3][1])
    assert log.position(1) == plain.position(1)
    for t in (-1, 3):
        with pytest.raises((IndexError, TypeError)):
            rollout.append(t)
    with pytest.raises(IndexError, match="row 4 of 4"):
        rollout.begin_episode(0, 0, 4)
    with pytest.raises(IndexError, match="lane 2 of 2"):
        rollout.begin_episode(2, 0, 0)


def test_what_is_logged_must_fit(segment) -> None:
    log = make(segment)
    action, obs = step(0)
    with pytest.raises(ValueError, match="action has 24 bytes, not 48"):
        append(log, action[:1], obs)
    with pytest.raises(ValueError, match="an observation field has 32 bytes"):
        append(make(segment, lanes=3), step(0, 3)[0], obs | {"obs.camera": obs["obs.speed"]})
    with pytest.raises(KeyError, match=r"obs\.speed"):
        append(log, action, {"obs.camera": obs["obs.camera"]})
    with pytest.raises(IndexError, match="lane 2 of 2"):
        log.begin_episode(2, 0, obs)
    with pytest.raises(ResourceError, match="needs at least 1 lane and 1 action"):
        ActionLog(np.zeros(0, np.uint8), 0, ACTION, FIELDS)


def test_another_process_copies_while_this_one_appends(segment, program) -> None:
    shared = segment(ActionLog.required(1, ACTION, 64))
    log = ActionLog(shared.bytes, 1, ACTION, [], 64)
    child = program(
        """
import numpy as np
from penstock.memory.action_log import ActionLog
from penstock.types import ArraySpec
log = ActionLog(memory, 1, ArraySpec("action", (3,), "float32"), [], 64)
log.begin_episode(0, 0, {})
actions = np.zeros((2, 1, 3), np.float32)
rollout = log.bind(actions, {})
number = 0
while True:
    actions[0] = number
    rollout.append(0)
    number += 1
    if number == 100:
        print("ring is full", flush=True)
""",
        shared,
    )
    assert child.stdout.readline() == "ring is full\n"
    whole = 0
    for _ in range(3000):
        end = log.position(0).steps
        actions = log.content(0, Position(0, end - 40, 40, 0))
        if actions is not None:
            whole += 1
            assert (actions == np.arange(end - 40, end, dtype=np.float32)[:, None]).all()
    assert whole > 0
    child.kill()
    assert child.wait() == -signal.SIGKILL
