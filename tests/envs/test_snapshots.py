"""An environment to which a snapshot is applied goes on as the one that it was taken of, bit for bit."""

import enum
import itertools
import json
import pickle
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, RecordEpisodeStatistics

from penstock.envs.snapshots import apply, capture, joined, parted
from penstock.errors import BadDataError, SnapshotError
from tests.environments import PlantEnv

gymnasium.register_envs(ale_py)

Pair = namedtuple("Pair", ["left", "right"])


def play(env: gymnasium.Env, actions: list[Any]) -> list[tuple[Any, ...]]:
    """All that the environment gives. It is reset without a seed where an episode ends."""
    told = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        told.append((np.array(obs), reward, terminated, truncated))
        if terminated or truncated:
            told.append((np.array(env.reset()[0]),))
    return told


def same(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> bool:
    return all(
        np.array_equal(a, b)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
    )


class MaximumOfTwo(gymnasium.Wrapper):
    """As the preprocessing of Atari: four frames an action, the maximum of the last two, in buffers of its own."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.buffers = [np.zeros(env.observation_space.shape, np.uint8) for _ in range(2)]
        self.lives = 0

    def step(self, action):
        total = 0.0
        for t in range(4):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self.buffers[t % 2][...] = obs
            total += float(reward)
            if terminated or truncated:
                break
        self.lives = info["lives"]
        return np.maximum(*self.buffers), total, terminated, truncated, info


def make_pong() -> gymnasium.Env:
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, obs_type="grayscale", repeat_action_probability=0.25)
    return FrameStackObservation(RecordEpisodeStatistics(MaximumOfTwo(env)), 4)


MAKERS = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "Pendulum": lambda: gymnasium.make("Pendulum-v1"),
    "plant": PlantEnv,
    "Pong": make_pong,
    "Breakout": lambda: gymnasium.make("ALE/Breakout-v5"),
    # The next two read what the last step has left: forces of contacts, places of bodies.
    "Hopper": lambda: gymnasium.make("Hopper-v5"),
    "Ant": lambda: gymnasium.make("Ant-v5"),
    "Humanoid": lambda: gymnasium.make("Humanoid-v5"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_new_environment_goes_on_bit_for_bit(name: str) -> None:
    env, other = MAKERS[name](), MAKERS[name]()
    env.action_space.seed(5)
    actions = [env.action_space.sample() for _ in range(220)]
    env.reset(seed=1)
    play(env, actions[:100])
    content = capture({"env": env})
    expected = play(env, actions[100:])
    for seed in (1, 2):
        other.reset(seed=seed)
        apply(content, {"env": other})
        assert same(play(other, actions[100:]), expected)


def test_the_content_is_json_and_arrays_and_never_a_pickle() -> None:
    env = PlantEnv()
    env.reset(seed=0)
    content = capture({"env": env})
    length = int.from_bytes(content[8:16], "little")
    assert json.loads(content[16 : 16 + length])["root"] == [0]
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(content)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Doors(enum.Flag):
    LEFT = enum.auto()
    RIGHT = enum.auto()


@dataclass(frozen=True)
class Frozen:
    number: float


class Slotted:
    __slots__ = ("kept", "left_out")

    def __init__(self, kept: int) -> None:
        self.kept = kept


class State:
    """Something of everything."""

    def __init__(self, number: int) -> None:
        self.numbers = [True, None, number, number / 3, -0.0, float("nan"), float("inf"), "text", 2**100 + number]
        self.complex, self.bytes, self.changing = 1j * number, b"\x00\xff", bytearray(b"abc")
        self.tuple, self.pair, self.sets = (1, (2, number)), Pair(number, [2]), [{1, number}, frozenset({"a"})]
        self.array = np.arange(6, dtype=np.float32).reshape(2, 3) + number
        self.view, self.turned = self.array[1, ::2], self.array.T
        self.columns = np.asfortranarray(np.arange(6.0).reshape(2, 3) * number)
        self.scalar, self.empty = np.float32(number), np.empty((0, 3), np.int8)
        self.queue, self.ordered = deque([number, 2], maxlen=3), OrderedDict([("b", 1), ("a", number)])
        self.counted, self.lists = Counter("aab"), defaultdict(list, {number: [number]})
        self.colour, self.frozen, self.slotted = Colour.BLUE, Frozen(number), Slotted(number)
        self.generator, self.old, self.random = (
            np.random.default_rng(number),
            np.random.RandomState(number),
            random.Random(number),
        )
        self.bits = self.generator.bit_generator
        self.itself, self.parts = self, [SimpleNamespace(x=number), SimpleNamespace(x=number + 1)]
        self.first = self.parts[0]
        self.function, self.method, self.kind = len, self.__init__, State


def test_everything_that_is_plain_comes_back_and_what_is_shared_stays_shared() -> None:
    one, other = State(7), State(8)
    expected = one.generator.bit_generator.state, one.old.get_state(legacy=False), one.random.getstate()
    method, parts = other.method, other.parts
    assert apply(capture({"state": one, "number": 3}), {"state": other}) == {"state": other, "number": 3}
    assert str(other.numbers) == str(one.numbers)
    for name in (
        "complex",
        "bytes",
        "changing",
        "tuple",
        "pair",
        "sets",
        "queue",
        "ordered",
        "counted",
        "lists",
        "colour",
    ):
        assert getattr(other, name) == getattr(one, name), name
        assert type(getattr(other, name)) is type(getattr(one, name)), name
    assert (other.queue.maxlen, other.frozen.number, other.slotted.kept) == (3, 7, 7)
    assert not hasattr(other.slotted, "left_out")
    for name in ("array", "view", "turned", "columns", "scalar", "empty"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name), strict=True)
    assert other.columns.flags.f_contiguous
    other.array[...] = 0
    assert not other.view.any()
    assert not other.turned.any()
    assert one.array.any()
    assert other.generator.bit_generator is other.bits
    assert (other.bits.state, other.old.get_state(legacy=False)["state"]["pos"]) == (
        expected[0],
        expected[1]["state"]["pos"],
    )
    assert other.random.getstate() == expected[2]
    assert other.itself is other
    assert other.parts is not parts
    assert other.first is other.parts[0]
    assert [part.x for part in other.parts] == [7, 8]
    assert (other.method, other.kind) == (method, State)


@pytest.mark.parametrize("held", [Doors.LEFT, Doors.LEFT | Doors.RIGHT, Doors(0)])
def test_flags_come_back_alone_together_and_none(held: Doors) -> None:
    other = SimpleNamespace(doors=Doors.RIGHT)
    apply(capture({"env": SimpleNamespace(doors=held)}), {"env": other})
    assert other.doors is held


START = [0, 0]


class Board:
    """Begins with a list that belongs to its module."""

    def __init__(self) -> None:
        self.cells = START


def test_a_list_that_an_environment_shares_with_its_module_is_not_changed() -> None:
    one, other = Board(), Board()
    one.cells = [1, 2]
    apply(capture({"env": one}), {"env": other})
    assert other.cells == [1, 2]
    assert START == [0, 0]


class Growing:
    """Holds objects that it makes while it is played."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self.held: Slotted | None = None


def test_objects_that_the_other_environment_lacks_are_made() -> None:
    one, other = Growing(), Growing()
    one.things, one.held = [Slotted(1), Slotted(2)], Slotted(3)
    one.things.append(one.held)
    apply(capture({"env": one}), {"env": other})
    assert [thing.kept for thing in other.things] == [1, 2, 3]
    assert other.things[2] is other.held


class Forgotten:
    def __init__(self, extra: bool) -> None:
        if extra:
            self.extra = 1


def test_attributes_that_the_snapshot_lacks_are_removed() -> None:
    other = Forgotten(True)
    apply(capture({"env": Forgotten(False)}), {"env": other})
    assert not hasattr(other, "extra")


class Sampling(gymnasium.Env):
    """Draws from its own space, as a random environment does."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(0, 1, (2,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_the_random_numbers_of_a_space_go_on() -> None:
    env, other = Sampling(), Sampling()
    env.reset(seed=1)
    other.reset(seed=2)
    apply(capture({"env": env}), {"env": other})
    assert same(play(env, [0] * 5), play(other, [0] * 5))


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (threading.Lock(), "lock"),
        (itertools.count(), "itertools.count"),
        ((number for number in range(3)), "generator"),
        (np.array([object()]), "array of object"),
        (memoryview(bytearray(3)), "memoryview"),
    ],
)
def test_what_cannot_be_copied_is_refused_by_its_name(held: Any, kind: str) -> None:
    with pytest.raises(SnapshotError, match=rf"^env\.parts\[1\]\.held is an? .*{kind}"):
        capture({"env": SimpleNamespace(parts=[0, SimpleNamespace(held=held)])})


class Plant:
    """Makes its snapshots itself. Its state is where no attribute shows it."""

    def __init__(self) -> None:
        level = [0.0]
        self.add = lambda amount: level.__setitem__(0, level[0] + amount)
        self.level = lambda: level[0]

    def get_snapshot(self) -> bytes:
        return np.float64(self.level()).tobytes()

    def set_snapshot(self, snapshot: bytes) -> None:
        self.add(float(np.frombuffer(snapshot)[0]) - self.level())


def test_an_object_may_bring_snapshots_of_its_own() -> None:
    one, other = SimpleNamespace(plant=Plant()), SimpleNamespace(plant=Plant())
    one.plant.add(3.5)
    apply(capture({"env": one}), {"env": other})
    assert other.plant.level() == 3.5


class Mistaken(Plant):
    def get_snapshot(self) -> Any:
        return self.level()


class Failing(Plant):
    def get_snapshot(self) -> bytes:
        raise ValueError("no plant")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Mistaken, "get_snapshot of .*Mistaken returned float; return bytes"),
        (Failing, "Failing failed: ValueError: no plant"),
    ],
)
def test_a_mistake_in_them_is_told(kind: type, says: str) -> None:
    with pytest.raises(BadDataError, match=says):
        capture({"env": kind()})


class Other:
    pass


@pytest.mark.parametrize("other", [Growing, Other])
def test_a_snapshot_of_another_kind_of_object_is_refused_and_changes_nothing(other: type) -> None:
    env = PlantEnv()
    env.reset(seed=0)
    target = SimpleNamespace(env=other())
    before = dict(vars(target.env))
    with pytest.raises(SnapshotError):
        apply(capture({"target": SimpleNamespace(env=env)}), {"target": target})
    assert vars(target.env) == before


def test_only_classes_of_the_environments_own_modules_are_made() -> None:
    content = capture({"env": SimpleNamespace(part=SimpleNamespace())})
    foreign = content.replace(b"types:SimpleNamespace", b"threading:Barrier....")
    with pytest.raises(SnapshotError):
        apply(foreign, {"env": SimpleNamespace(part=None)})


def test_damaged_snapshots_are_refused() -> None:
    env = PlantEnv()
    env.reset(seed=0)
    content, numbers = capture({"env": env}), np.random.default_rng(0)
    for length in range(0, len(content), 97):
        with pytest.raises(SnapshotError):
            apply(content[:length], {"env": PlantEnv()})
    for _ in range(300):
        altered = bytearray(content)
        altered[numbers.integers(len(content))] ^= 1 << int(numbers.integers(8))
        try:
            apply(bytes(altered), {"env": PlantEnv()})
        except SnapshotError:
            continue


def test_snapshots_are_joined_and_parted() -> None:
    assert parted(joined([b"one", b"", b"three"])) == [b"one", b"", b"three"]
    with pytest.raises(SnapshotError):
        parted(joined([b"one"])[:-1])


def test_wrappers_of_gymnasium_that_change_observations_are_followed() -> None:
    def make() -> gymnasium.Env:
        return GrayscaleObservation(gymnasium.make("ALE/Pong-v5"))

    env, other = make(), make()
    env.reset(seed=0)
    other.reset(seed=3)
    play(env, [2] * 20)
    apply(capture({"env": env}), {"env": other})
    assert same(play(env, [3] * 20), play(other, [3] * 20))
