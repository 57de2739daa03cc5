"""EnvNode with a policy port that answers late, and the rollouts that it writes."""

import itertools
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

import penstock
from penstock.errors import BadDataError
from penstock.memory.action_log import ActionLog, Position
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvNode, EnvSettings
from penstock.program.rollout import fields_beside_return, rollout_specs, table_specs
from penstock.types import Array, Arrays, ArraySpec, Box, Discrete, Spaces, Stack

SPACES = Spaces((("obs", Box((1,), "float32", (0.0,), (1000.0,))),), Discrete(2))
ROW = (ArraySpec("log_prob", (), "float32"), ArraySpec("value", (), "float32"))
STEPS, LANES = 6, 2


class CountingEnv(gymnasium.Env[Array, int]):
    """Observes its own step count; reward is 1; cut after 4 steps; the action must be the one that was answered."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1000.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Array, dict[str, object]]:
        self.count = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, object]]:
        if action != self.count % 2:
            raise ValueError(f"step {self.count} was given action {action}")
        self.count += 1
        return np.array([self.count], np.float32), self.reward(), False, self.count == 4, {}

    def reward(self) -> float:
        return 1.0

    def close(self) -> None: ...


class TellingEnv(CountingEnv):
    """Its info tells the step; every second one also whether it was won."""

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, object]]:
        *others, _ = super().step(action)
        return *others, {"laps": self.count, **({"won": True} if action else {})}  # type: ignore[return-value]


class BrokenEnv(CountingEnv):
    """Its reward is not a number from the third step on."""

    def reward(self) -> float:
        return float("nan") if self.count == 3 else 1.0


class BrokenOnce(CountingEnv):
    """Every other environment gives a NaN reward in the first step of its third episode."""

    episodes = 0
    made = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.breaks = next(self.made) % 2 == 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Array, dict[str, object]]:
        self.episodes += 1
        return super().reset()

    def reward(self) -> float:
        return float("nan") if self.breaks and self.episodes == 3 and self.count == 1 else 1.0


class BrokenLastRow(CountingEnv):
    """Its observation after two steps of its second episode, row T of the first rollout, is NaN."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Array, dict[str, object]]:
        self.episodes += 1
        return super().reset()

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, object]]:
        obs, *rest = super().step(action)
        return np.where(self.broken(), np.float32(np.inf), obs), *rest  # type: ignore[return-value]

    def broken(self) -> bool:
        return self.episodes == 2 and self.count == STEPS - 4


class BrokenLastObservation(BrokenLastRow):
    """The last observation of its first, truncated episode is NaN."""

    def broken(self) -> bool:
        return self.episodes == 1 and self.count == 4


class LatePolicy:
    """Answers each question only after ``late`` calls that ask for the answer."""

    def __init__(self, late: int) -> None:
        self.version = 3
        self.environment_action = np.zeros(LANES, np.int64)
        self.stacks: Arrays = {}
        self.carry: Arrays = {}
        self.late = late
        self.left = 0
        self.slots: list[Arrays] = []
        self.steps: list[int] = []
        self.valued = 0

    def fresh(self, turn: int) -> bool:
        return True

    def refresh(self) -> None: ...

    def bind(self, rows: Arrays) -> int:
        self.slots.append(rows)
        return len(self.slots) - 1

    def ask(self, handle: int, row: int, step: int) -> None:
        slot = self.slots[handle]
        slot["action"][row] = slot["obs"][row, :, 0].astype(np.int64) % 2
        slot["value"][row] = 10 * slot["obs"][row, :, 0]
        slot["log_prob"][row] = -0.5
        self.environment_action[:] = slot["action"][row]
        self.steps.append(step)
        self.left = self.late

    def ask_value(self, obs: Mapping[str, Array], value: Array) -> None:
        value[...] = 10 * obs["obs"][:, 0]
        self.valued += 1
        self.left = self.late

    def answered(self) -> bool:
        self.left -= 1
        return self.left < 0


class WriterEnd:
    """The writing end of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.slots = stream.slots
        self.slot = stream.slot
        self.free = stream.free
        self.written = stream.written

    def claim(self, sequence: int) -> int | None:
        return self.stream.claim(1, sequence)

    def push(self, index: int) -> None:
        self.stream.push(index, 1)


def zeros(nbytes: int) -> Array:
    return Segment.create(nbytes, "test").bytes


class Ports:
    """The ports of one EnvNode."""

    name = "env.0"
    life = 1
    former = ()

    def __init__(self, policy: LatePolicy, specs: tuple[ArraySpec, ...]) -> None:
        self.stream = Stream(zeros(Stream.required(specs, 2)), specs, 2)
        action = SPACES.action_spec()
        self.log = ActionLog(zeros(ActionLog.required(LANES, action, 100)), LANES, action, ["obs"], 100)
        self._policy = policy
        self.counted: dict[str, int] = {}
        self.is_stopping = False
        self.busies: list[str] = []

    def stream_writer(self, edge: str) -> WriterEnd:
        return WriterEnd(self.stream)

    def policy(self, edge: str, first_lane: int, lanes: int) -> LatePolicy:
        return self._policy

    def record(self, edge: str) -> SimpleNamespace:
        return SimpleNamespace(copy=lambda: None, number=lambda: -1)

    def action_log(self, edge: str) -> ActionLog:
        return self.log

    @contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        self.busies.append(name)
        yield

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield

    def sign(self) -> memoryview:
        return memoryview(bytearray(8)).cast("q")

    def count(self, counter: str, amount: int = 1) -> None:
        self.counted[counter] = self.counted.get(counter, 0) + amount

    def note(self, counter: str, value: int) -> None:
        self.counted[counter] = value

    def counters(self) -> dict[str, dict[str, int]]:
        return {self.name: {"collected": 0, **self.counted}}

    def stopping(self) -> bool:
        return self.is_stopping


START = LaneStart(step=100)


def open_node(
    policy: LatePolicy,
    env: str = "CountingEnv",
    starts: tuple[LaneStart, ...] = (START, START),
    specs: tuple[ArraySpec, ...] = rollout_specs(SPACES, ROW, STEPS, LANES, same_step=True),
    bad_numbers: Literal["stop", "skip"] = "stop",
    renew_every: int = 64,
    episode_metrics: tuple[str, ...] = (),
    spaces: Spaces = SPACES,
) -> tuple[EnvNode, Ports]:
    settings = EnvSettings(
        env=f"{__name__}:{env}",
        vector=False,
        ignore_obs=(),
        spaces=spaces,
        worker=0,
        num_workers=1,
        first_lane=4,
        lanes=LANES,
        num_steps=STEPS,
        renew_every=renew_every,
        seed=0,
        starts=starts,
        bad_numbers=bad_numbers,
        work_limit_s=10.0,
        episode_metrics=episode_metrics,
    )
    node, ports = EnvNode(settings), Ports(policy, specs)
    node.open(ports)  # type: ignore[arg-type]
    return node, ports


def collect(node: EnvNode, ports: Ports) -> Arrays:
    for _ in range(1000):
        if ports.stream.ready():
            index = ports.stream.take(9)
            assert index is not None
            return ports.stream.slot(index)
        if node.ready():
            node.step()
    raise AssertionError("no rollout came")


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_rollout_is_the_same_however_late_the_policy_answers(late: int) -> None:
    policy = LatePolicy(late)
    node, ports = open_node(policy)
    slot = collect(node, ports)
    # Four steps to the time limit, then the next episode's first two; row 6 is the bootstrap.
    np.testing.assert_array_equal(slot["obs"][:, 0, 0], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(slot["action"][:STEPS, 1], [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(slot["truncated"][:STEPS, 0], [0, 0, 0, 1, 0, 0])
    assert not slot["terminated"][:STEPS].any()
    assert slot["valid"][:STEPS].all()
    np.testing.assert_array_equal(slot["value"][:, 0], [0, 10, 20, 30, 0, 10, 20])
    np.testing.assert_array_equal(slot["policy_version"][:STEPS], 3)
    # The last observation of the cut episode, 4, is worth 40; both lanes were cut at t = 3.
    assert slot["final_count"] == 2
    np.testing.assert_array_equal(slot["final_t"][:2], [3, 3])
    np.testing.assert_array_equal(slot["final_lane"][:2], [0, 1])
    np.testing.assert_array_equal(slot["final.obs"][:2, 0], [4, 4])
    np.testing.assert_array_equal(slot["final_value"][:2], [40, 40])
    assert slot["episode_count"] == 2
    np.testing.assert_array_equal(slot["episode_return"][:2], [4, 4])
    np.testing.assert_array_equal(slot["episode_length"][:2], [4, 4])
    # The second episode (number 1) began at lane step 4 of this log, and is 2 steps old.
    assert [tuple(position[:3]) for position in slot["lane_position"]] == [(1, 4, 2), (1, 4, 2)]
    assert policy.steps == [100, 101, 102, 103, 104, 105]
    assert slot["lane_collected"].tolist() == [6, 6]
    assert slot["lane_spoilt"].tolist() == [0, 0]
    assert ports.counted == {"collected": 12}
    node.close()


def test_a_rollout_lists_the_metrics_of_each_episode_beside_its_return() -> None:
    names = ("laps", "won", "unheard")
    beside = fields_beside_return(names, shaped=False)
    specs = rollout_specs(SPACES, ROW, STEPS, LANES, same_step=True, beside_return=beside)
    node, ports = open_node(LatePolicy(0), "TellingEnv", specs=specs, episode_metrics=names)
    slot = collect(node, ports)
    # Both lanes end with step 4, in which they take action 1.
    assert slot["episode_count"] == 2
    assert slot["episode_metric.laps"][:2].tolist() == [4.0, 4.0]
    assert slot["episode_metric.won"][:2].tolist() == [1.0, 1.0]
    assert np.isnan(slot["episode_metric.unheard"][:2]).all()
    assert not slot["episode_metric.laps"][2:].any()
    following = collect(node, ports)
    # The second episodes end with step 2 of this rollout, the third ones with step 6.
    assert following["episode_metric.laps"][:4].tolist() == [4.0] * 4
    node.close()


class NewerEachTime(LatePolicy):
    """There is a newer version whenever it is asked for."""

    def refresh(self) -> None:
        self.version += 1


@pytest.mark.parametrize(
    ("renew_every", "rollouts"),
    [
        (4, ([4, 4, 4, 4, 5, 5], [6, 6, 6, 6, 7, 7])),
        (2, ([4, 4, 5, 5, 6, 6], [7, 7, 8, 8, 9, 9])),
        (64, ([4, 4, 4, 4, 4, 4], [5, 5, 5, 5, 5, 5])),
    ],
)
def test_a_long_rollout_goes_on_with_newer_policies(renew_every: int, rollouts: tuple[list[int], ...]) -> None:
    node, ports = open_node(NewerEachTime(1), renew_every=renew_every)
    for versions in rollouts:
        slot = collect(node, ports)
        np.testing.assert_array_equal(slot["policy_version"][:STEPS], np.transpose([versions] * LANES))


def test_the_next_rollout_goes_on_where_the_last_one_stopped() -> None:
    policy = LatePolicy(0)
    node, ports = open_node(policy)
    collect(node, ports)
    slot = collect(node, ports)
    assert slot["rollout"] == 1
    np.testing.assert_array_equal(slot["obs"][:, 0, 0], [2, 3, 0, 1, 2, 3, 0])
    assert policy.steps[STEPS:] == [106, 107, 108, 109, 110, 111]
    np.testing.assert_array_equal(ports.log.content(0, Position(*map(int, slot["lane_position"][0]))), [])


def test_it_begins_nothing_new_while_the_run_stops_or_no_slot_is_free() -> None:
    node, ports = open_node(LatePolicy(0))
    ports.is_stopping = True
    assert not node.ready()
    ports.is_stopping = False
    assert node.ready()
    ports.stream.claim(5, 100)
    ports.stream.claim(5, 101)
    assert not node.ready()


def test_a_reward_that_is_no_number_is_named() -> None:
    node, ports = open_node(LatePolicy(0), "BrokenEnv")
    with pytest.raises(BadDataError, match=r"env\.0: reward of lane 4 of .* is nan at step 102 of the lane"):
        collect(node, ports)


@pytest.mark.parametrize(("env", "step"), [("BrokenLastRow", 106), ("BrokenLastObservation", 104)])
def test_observations_that_only_bootstrap_are_looked_at_before_they_are_valued(env: str, step: int) -> None:
    policy = LatePolicy(0)
    node, ports = open_node(policy, env)
    with pytest.raises(BadDataError, match=rf"env\.0: obs of lane 4 of .* is inf at step {step} of the lane"):
        collect(node, ports)
    assert policy.valued == 0


@pytest.mark.parametrize(("announced_s", "times"), [(-1.0, 3 * LANES + 1), (60.0, 1)])
def test_a_long_restore_is_announced_again_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, announced_s: float, times: int
) -> None:
    monkeypatch.setattr("penstock.nodes.env.node.ANNOUNCED_S", announced_s)
    start = LaneStart(position=Position(0, 0, 1, 0), actions=np.zeros(1, np.int64))
    node, ports = open_node(LatePolicy(0), starts=(start,) * LANES)
    # For each lane its way to the base, one step, and a look at where it stands; then the end is seen.
    assert ports.busies == ["open environment"] + ["restore episodes"] * times
    node.close()


def test_a_resumed_lane_numbers_its_actions_as_the_run_before() -> None:
    node, ports = open_node(LatePolicy(0))
    row = collect(node, ports)["lane_position"][1].copy()
    position = Position(*map(int, row))
    actions = ports.log.content(1, position)
    assert actions is not None
    begins = LaneStart(position.episode, STEPS, 1, position=position, actions=actions)
    resumed, there = open_node(LatePolicy(0), starts=(begins,) * LANES)
    # A checkpoint before the first rollout of this life still names the actions of the life before.
    np.testing.assert_array_equal(there.log.content(1, position), actions)
    # Twelve steps, in episodes of four.
    assert collect(resumed, there)["lane_position"][1, :3].tolist() == [3, 12, 0]


def test_rows_of_before_a_resume_count_although_the_first_life_has_died_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the rate limiter of a table would hold no environment node back."""
    monkeypatch.setattr(Ports, "former", (0,))
    node, ports = open_node(LatePolicy(0), starts=(LaneStart(collected=8), LaneStart(collected=8, spoilt=2)))
    assert ports.counted["collected"] == 14
    node.close()


def stacked_counting() -> FrameStackObservation:
    return FrameStackObservation(CountingEnv(), 3)


class StackedPolicy(LatePolicy):
    """A policy port that acts on stacks, and keeps the stacks of its questions."""

    def __init__(self, late: int) -> None:
        super().__init__(late)
        self.stacks = {"obs": np.zeros((LANES, 3, 1), np.float32)}
        self.carry: Arrays = {}
        self.seen: list[list[float]] = []

    def ask(self, handle: int, row: int, step: int) -> None:
        self.seen.append(self.stacks["obs"][1, :, 0].tolist())
        super().ask(handle, row, step)


def test_it_acts_on_stacks_and_writes_frames() -> None:
    box = Box((3, 1), "float32", (0.0,), (1000.0,), Stack(3, "first"))
    specs = table_specs(Spaces((("obs", box),), SPACES.action), ROW, STEPS, LANES, same_step=True)
    policy = StackedPolicy(1)
    node, ports = open_node(policy, "stacked_counting", specs=specs)
    slot = collect(node, ports)
    np.testing.assert_array_equal(slot["obs"][:, 1, 0], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(slot["final.obs"][:2, 0], [4, 4])
    assert policy.seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0], [0, 0, 1]]
    assert slot["steps_before"].tolist() == [0, 0]
    slot = collect(node, ports)
    assert policy.seen[STEPS:] == [[0, 1, 2], [1, 2, 3], [0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert slot["steps_before"].tolist() == [2, 2]
    assert slot["continues"].all()
    node.close()


def test_no_lane_goes_on_in_a_table_behind_a_rollout_that_was_skipped() -> None:
    specs = table_specs(SPACES, ROW, STEPS, LANES, same_step=True)
    node, ports = open_node(LatePolicy(0), "BrokenOnce", (LaneStart(), LaneStart()), specs, bad_numbers="skip")
    assert not collect(node, ports)["continues"].any()
    # The second rollout holds the bad number; the third is handed over.
    slot = collect(node, ports)
    assert ports.counted["skipped"] == 1
    assert slot["rollout"] == 2
    assert not slot["continues"].any()
    node.close()


PICTURES = Spaces((("obs", Box((256, 256), "uint8", (0.0,), (255.0,))),), Discrete(2))


class PictureEnv(CountingEnv):
    """Observes one picture, always in the same array; cut after 4 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (256, 256), np.uint8)
        self.picture = np.zeros((256, 256), np.uint8)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Array, dict[str, object]]:
        self.count = 0
        return self.picture, {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, object]]:
        self.count += 1
        return self.picture, 1.0, False, self.count == 4, {}


class SamePolicy(LatePolicy):
    """Always takes action 0."""

    def ask(self, handle: int, row: int, step: int) -> None:
        self.slots[handle]["action"][row] = 0

    def ask_value(self, obs: Mapping[str, Array], value: Array) -> None:
        value[...] = 0.0

    def answered(self) -> bool:
        return True


def test_a_step_allocates_nothing_that_stays_and_no_room_for_an_observation() -> None:
    specs = rollout_specs(PICTURES, ROW, STEPS, LANES, same_step=True)
    node, ports = open_node(SamePolicy(0), "PictureEnv", specs=specs, spaces=PICTURES)
    package = tracemalloc.Filter(True, str(Path(penstock.__file__).parent / "*"))

    def hand_over(rollouts: int) -> None:
        for _ in range(rollouts):
            while not ports.stream.ready():
                node.step()
            index = ports.stream.take(9)
            assert index is not None
            ports.stream.release(index, 9)

    def held() -> int:
        """Bytes that code of penstock has allocated and not freed."""
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([package]).traces)

    tracemalloc.start()
    try:
        hand_over(20)
        before = held()
        tracemalloc.reset_peak()
        now, _ = tracemalloc.get_traced_memory()
        hand_over(100)
        _, peak = tracemalloc.get_traced_memory()
        after = held()
    finally:
        tracemalloc.stop()
        node.close()
    # Less than one byte for each of the steps.
    assert after - before < 100 * STEPS
    assert peak - now < np.zeros((256, 256), np.uint8).nbytes
