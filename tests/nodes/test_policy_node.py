"""PolicyNode with a port that lists the waiting questions: batches, versions, and the place of each answer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest

from penstock.kernels.noise import generate
from penstock.nodes import policy_node
from penstock.nodes.policy_node import PolicyNode, PolicyNodeSettings
from penstock.policies import Categorical, Encoding, Network, PolicyGraph
from penstock.policies.acting import PolicySettings
from penstock.policies.batching import BatchRule
from penstock.policies.exploration import Constant, Exploration, Falling
from penstock.policies.layers import Linear
from penstock.types import (
    Array,
    Arrays,
    ArraySpec,
    BackendSpec,
    Box,
    Discrete,
    NoiseSpec,
    Question,
    Spaces,
    Wanted,
)

SPACES = Spaces((("obs", Box((1,), "float32", (0.0,), (1000.0,))),), Discrete(7, start=5))
ROW = (ArraySpec("log_prob", (), "float32"), ArraySpec("value", (), "float32"))
NOISE = NoiseSpec("gumbel", (2,))
SLOTS, STEPS, LANES, SEED = 3, 4, 2, 9
CONSTANT = Exploration(Constant(), 0, 2 * LANES, 100.0)
AT_ONCE = BatchRule(None, 0.0)


class Backend:
    """Value: 10 times the observation plus the version; action: the observation modulo 7; log-probability: the noise.

    Each call's number of rows is kept in ``calls``, with the version that answered.
    """

    made: ClassVar[int] = 0
    calls: ClassVar[list[tuple[int, int]]] = []

    def __init__(self) -> None:
        Backend.made += 1

    def load(self, published: Mapping[str, Array]) -> None:
        self.version = int(published["actor"][0])

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        obs, noise, explore = inputs["obs"], inputs["noise"], inputs["explore"]
        Backend.calls.append((self.version, len(noise)))
        assert len(noise) == len(explore) == len(obs)
        for name, array in out.items():
            if name == "value":
                array[...] = 10 * obs[:, 0] + self.version
            elif name == "action":
                array[...] = obs[:, 0].astype(np.int64) % 7
            else:
                array[...] = noise[:, 0] * explore


class BoardOf:
    """A board whose only parameter is its version, and 100 more each time that this version was published again."""

    def __init__(self) -> None:
        self.latest = self.again = 0

    def publication(self) -> int:
        return 1 + self.latest + self.again

    def read(self, into: Mapping[str, Array]) -> int:
        into["actor"][...] = self.latest + 100 * self.again
        return self.latest


class Ports:
    """The ports of a policy node that answers two askers, of lanes 0, 1 and 2, 3."""

    name = "policy.0"
    life = 1

    def __init__(self) -> None:
        self.board = BoardOf()
        rows = {"obs": np.float32, "log_prob": np.float32, "value": np.float32, "action": np.int64}
        shapes = {"obs": (SLOTS, STEPS + 1, LANES, 1)}
        self.arrays: Arrays = {
            name: np.zeros(shapes.get(name, (SLOTS, STEPS + 1, LANES)), dtype) for name, dtype in rows.items()
        }
        self.arrays["obs"][..., 0] = np.arange(SLOTS * (STEPS + 1) * LANES).reshape(SLOTS, STEPS + 1, LANES)
        self.arrays["policy_version"] = np.full((SLOTS, STEPS + 1, LANES), -1)
        self.arrays["final.obs"] = 100 + np.arange(SLOTS * STEPS * LANES).reshape(SLOTS, -1, 1).astype(np.float32)
        self.arrays["final_value"] = np.zeros((SLOTS, STEPS * LANES), np.float32)
        self.asked: list[Question] = []
        self.answered: list[tuple[int, int]] = []
        self.stacked: list[Arrays] = [{}, {}]
        self.actions = [np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)]

    def questions(self, edge: str) -> "Ports":
        return self

    def board_reader(self, edge: str) -> BoardOf:
        return self.board

    @contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        yield

    def waiting(self) -> bool:
        return bool(self.asked)

    def take(self) -> list[Question]:
        taken, self.asked = self.asked, []
        return taken

    def rows(self, asker: int) -> Arrays:
        return self.arrays

    def environment_action(self, asker: int) -> Array:
        return self.actions[asker]

    def stacks(self, asker: int) -> Arrays:
        return self.stacked[asker]

    def carry(self, asker: int) -> Arrays:
        return {}

    def next_carry(self, asker: int) -> Arrays:
        return {}

    def answer(self, asker: int, version: int) -> None:
        self.answered.append((asker, version))

    def ask(self, asker: int, wanted: Wanted, slot: int, row: int = 0, **more: int) -> None:
        numbers = {"refresh": False, "again": True, "finals": 0, "step": 0, "first_lane": asker * LANES, **more}
        self.asked.append(Question(asker=asker, wanted=wanted, slot=slot, row=row, **numbers))  # type: ignore[arg-type]


@pytest.fixture
def opened() -> tuple[PolicyNode, Ports]:
    return open_node(CONSTANT)


def open_node(exploration: Exploration, rule: BatchRule = AT_ONCE) -> tuple[PolicyNode, Ports]:
    Backend.made, Backend.calls = 0, []
    actor = Network("actor", (), (("only", 1, 0.0),))
    graph = PolicyGraph((Encoding("obs", "flat", 1),), actor, None, Categorical(7))
    backend = BackendSpec(f"{__name__}:Backend", ())
    policy = PolicySettings(backend, graph, SPACES, ROW, SEED, exploration)
    node = PolicyNode(PolicyNodeSettings(policy, 10.0, rule))
    ports = Ports()
    node.open(ports)  # type: ignore[arg-type]
    return node, ports


def test_rows_that_wait_are_answered_by_one_call_each_in_its_place(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    assert not node.ready()
    ports.ask(0, Wanted.ROW, slot=1, row=2)
    ports.ask(1, Wanted.ROW, slot=2, row=0)
    assert node.ready()
    node.step()
    assert Backend.calls == [(0, 4)]
    assert ports.answered == [(0, 0), (1, 0)]
    # An observation is the number of lanes before it: ten in each slot, two in each row.
    np.testing.assert_array_equal(ports.arrays["obs"][1, 2, :, 0], [14, 15])
    np.testing.assert_array_equal(ports.arrays["action"][1, 2], [0, 1])
    np.testing.assert_array_equal(ports.arrays["value"][1, 2], [140, 150])
    np.testing.assert_array_equal(ports.arrays["action"][2, 0], [6, 0])
    np.testing.assert_array_equal(ports.arrays["value"][2, 0], [200, 210])
    # The environment counts its actions from 5.
    np.testing.assert_array_equal(ports.actions, [[5, 6], [11, 5]])
    assert np.argwhere(ports.arrays["value"]).tolist() == [[1, 2, 0], [1, 2, 1], [2, 0, 0], [2, 0, 1]]
    assert np.argwhere(ports.arrays["policy_version"] == 0).tolist() == [[1, 2, 0], [1, 2, 1], [2, 0, 0], [2, 0, 1]]


def test_noise_is_of_seed_lane_and_step_whoever_asks_beside(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    ports.ask(1, Wanted.ROW, slot=0, row=0, step=40)
    ports.ask(0, Wanted.ROW, slot=1, row=0, step=33)
    node.step()
    of_asker_1 = generate(NOISE, SEED, np.array([2, 3]), 40)[:, 0]
    of_asker_0 = generate(NOISE, SEED, np.array([0, 1]), 33)[:, 0]
    np.testing.assert_array_equal(ports.arrays["log_prob"][0, 0], of_asker_1)
    np.testing.assert_array_equal(ports.arrays["log_prob"][1, 0], of_asker_0)


def test_explore_is_of_the_lanes_and_steps_that_are_asked_about() -> None:
    # From 1 to 0 over the first half of 100 steps: 0.8 at step 10, 0 at step 60.
    node, ports = open_node(Exploration(Falling(1.0, 0.0, 0.5), 0, 2 * LANES, 100.0))
    ports.ask(0, Wanted.ROW, slot=0, row=0, step=10)
    ports.ask(1, Wanted.ROW, slot=1, row=0, step=60)
    node.step()
    expected = np.float32(0.8) * generate(NOISE, SEED, np.array([0, 1]), 10)[:, 0]
    np.testing.assert_allclose(ports.arrays["log_prob"][0, 0], expected, rtol=1e-6)
    assert not ports.arrays["log_prob"][1, 0].any()


def test_the_first_actions_are_generated_and_the_other_outputs_are_the_policys() -> None:
    exploration = Exploration(Constant(), 8, 2 * LANES, 100.0)  # 8 steps of 4 lanes: steps 0 and 1
    node, ports = open_node(exploration)
    ports.ask(0, Wanted.ROW, slot=0, row=1, step=1)
    ports.ask(1, Wanted.ROW, slot=1, row=2, step=2)
    node.step()
    generated = np.zeros(LANES, np.int64)
    exploration.generate(SPACES.action, SEED, np.array([0, 1]), 1, generated)
    assert generated.tolist() != [2, 3]
    np.testing.assert_array_equal(ports.arrays["action"][0, 1], generated)
    np.testing.assert_array_equal(ports.arrays["value"][0, 1], [20, 30])
    # Slot 1, row 2 begins with observation 14.
    np.testing.assert_array_equal(ports.arrays["action"][1, 2], [0, 1])
    np.testing.assert_array_equal(ports.actions, [5 + generated, [5, 6]])


def test_values_of_rows_and_of_last_observations_share_a_call(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    ports.ask(0, Wanted.VALUE, slot=0, row=STEPS)
    ports.ask(1, Wanted.FINAL_VALUE, slot=1, finals=3)
    node.step()
    assert Backend.calls == [(0, 5)]
    np.testing.assert_array_equal(ports.arrays["value"][0, STEPS], [80, 90])
    # The last observations of slot 1 count from 108.
    np.testing.assert_array_equal(ports.arrays["final_value"][1, :4], [1080, 1090, 1100, 0])
    assert not ports.arrays["action"].any()
    assert (ports.arrays["policy_version"] == -1).all()


def test_rows_and_values_are_different_calls(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    ports.ask(0, Wanted.ROW, slot=0)
    ports.ask(1, Wanted.VALUE, slot=1)
    node.step()
    assert Backend.calls == [(0, 2), (0, 2)]


def test_each_asker_keeps_its_version_until_it_refreshes(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    ports.ask(0, Wanted.ROW, slot=0, refresh=True)
    node.step()
    ports.board.latest = 3
    ports.ask(0, Wanted.ROW, slot=0, row=1)
    ports.ask(1, Wanted.ROW, slot=1, refresh=True)
    node.step()
    assert Backend.calls == [(0, 2), (0, 2), (3, 2)]
    assert ports.answered == [(0, 0), (0, 0), (1, 3)]
    np.testing.assert_array_equal(ports.arrays["value"][0, 1], [20, 30])
    np.testing.assert_array_equal(ports.arrays["value"][1, 0], [103, 113])
    assert (ports.arrays["policy_version"][1, 0] == 3).all()
    ports.ask(0, Wanted.ROW, slot=0, refresh=True)
    ports.ask(1, Wanted.ROW, slot=1, row=1)
    node.step()
    assert Backend.calls[3:] == [(3, 4)]


def test_a_version_that_is_published_again_is_loaded_again(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    for ports.board.again in (0, 1):
        ports.ask(0, Wanted.ROW, slot=0, refresh=True)
        node.step()
    assert Backend.calls == [(0, 2), (100, 2)]
    assert ports.answered == [(0, 0), (0, 0)]


def test_it_makes_no_more_policies_than_there_are_askers(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    for version in range(1, 9):
        ports.board.latest = version
        ports.ask(version % 2, Wanted.ROW, slot=0, refresh=True)
        ports.ask(1 - version % 2, Wanted.VALUE, slot=1)
        node.step()
    assert Backend.made == 2
    assert Backend.calls[-2:] == [(8, 2), (7, 2)]


def test_one_that_it_has_never_answered_gets_the_latest(opened: tuple[PolicyNode, Ports]) -> None:
    node, ports = opened
    ports.board.latest = 5  # the node's former life answered this rollout so far
    ports.ask(0, Wanted.ROW, slot=0, row=3)
    node.step()
    assert ports.answered == [(0, 5)]
    assert (ports.arrays["policy_version"][0, 3] == 5).all()
    assert (ports.arrays["policy_version"][0, :3] == -1).all()


class Clock:
    """Stands for the module ``time``."""

    def __init__(self) -> None:
        self.now = 10.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("penstock.nodes.policy_node.time", clock)
    return clock


def test_a_batch_that_waits_is_one_call(clock: Clock) -> None:
    node, ports = open_node(CONSTANT, BatchRule(None, 0.5))
    ports.ask(0, Wanted.ROW, slot=1)
    ports.ask(1, Wanted.ROW, slot=2)
    node.step()
    assert Backend.calls == [(0, 4)]
    for row in (1, 2):
        ports.ask(0, Wanted.ROW, slot=1, row=row)
        node.step()
        # Asker 1 was answered and has not asked since.
        assert not node.ready()
        assert node.due() == clock.now + 0.5
        assert len(Backend.calls) == row
        ports.ask(1, Wanted.ROW, slot=2, row=row)
        assert node.ready()
        node.step()
        assert Backend.calls[row:] == [(0, 4)]
        assert not node.ready()
        assert node.due() == np.inf
        clock.now += 1.0
    assert ports.answered == [(0, 0), (1, 0)] * 3


def test_a_batch_leaves_when_it_has_waited_long_enough(clock: Clock) -> None:
    node, ports = open_node(CONSTANT, BatchRule(None, 0.5))
    ports.ask(0, Wanted.ROW, slot=1)
    ports.ask(1, Wanted.ROW, slot=2)
    node.step()
    ports.ask(1, Wanted.ROW, slot=2, row=1)
    node.step()
    clock.now += 0.25
    assert not node.ready()
    clock.now += 0.25
    assert node.ready()
    node.step()
    assert Backend.calls == [(0, 4), (0, 2)]
    assert ports.answered == [(0, 0), (1, 0), (1, 0)]


def test_a_batch_with_too_many_rows_is_answered_in_parts(clock: Clock) -> None:
    node, ports = open_node(CONSTANT, BatchRule(LANES, 0.5))
    ports.ask(0, Wanted.ROW, slot=1)
    ports.ask(1, Wanted.ROW, slot=2)
    node.step()
    assert ports.answered == [(0, 0)]
    assert node.ready()
    node.step()
    assert ports.answered == [(0, 0), (1, 0)]
    assert Backend.calls == [(0, 2), (0, 2)]


def test_a_batch_changes_no_bit_of_an_answer(clock: Clock) -> None:
    answers = []
    for rule in (AT_ONCE, BatchRule(None, 0.5)):
        node, ports = open_node(CONSTANT, rule)
        for row in range(STEPS):
            for asker in range(2):
                ports.ask(asker, Wanted.ROW, slot=asker, row=row, step=10 + row, again=row < STEPS - 1)
                while node.ready():
                    node.step()
        answers.append({name: array.tobytes() for name, array in ports.arrays.items()})
    assert answers[0] == answers[1]
    # 5 calls instead of 8. Asker 0 is a row ahead: nobody was outstanding when it asked first.
    assert Backend.calls == [(0, 2), (0, 4), (0, 4), (0, 4), (0, 2)]


def native_answers(monkeypatch: pytest.MonkeyPatch, apart_bytes: int, most_bound: int = 1024) -> tuple[Arrays, Ports]:
    """All rows of two slots, two askers at a time, by a native policy of one linear layer."""
    monkeypatch.setattr(policy_node, "APART_BYTES", apart_bytes)
    monkeypatch.setattr(policy_node, "MOST_BOUND", most_bound)
    graph = PolicyGraph((Encoding("obs", "flat", 1),), Network("actor", (Linear(1, 8, 1.0),)), None, Categorical(7))
    backend = BackendSpec("penstock.inference.native:build", (graph,))
    policy = PolicySettings(backend, graph, SPACES, ROW, SEED, CONSTANT)
    node, ports = PolicyNode(PolicyNodeSettings(policy, 10.0, AT_ONCE)), Ports()
    node.open(ports)  # type: ignore[arg-type]
    for row in range(STEPS):
        for slot in range(2):
            ports.ask(0, Wanted.ROW, slot=slot, row=row, step=row, refresh=row == 0)
            ports.ask(1, Wanted.ROW, slot=2, row=row, step=row, refresh=row == 0)
            # A version is one number in all of the layer, so its logits are equal, and noise decides.
            ports.board.latest = 1 + row // 2
            node.step()
    return ports.arrays, ports


@pytest.mark.parametrize("apart_bytes", [0, 1 << 20], ids=["together", "one by one"])
def test_askers_with_streams_of_their_own_get_the_answers_of_a_stream_that_they_share(
    monkeypatch: pytest.MonkeyPatch, apart_bytes: int
) -> None:
    shared, _ = native_answers(monkeypatch, apart_bytes)
    own = [Ports().arrays, Ports().arrays]
    monkeypatch.setattr(Ports, "rows", lambda _, asker: own[asker])
    native_answers(monkeypatch, apart_bytes)
    for name, values in shared.items():
        # Asker 0 asks about slots 0 and 1, asker 1 about slot 2.
        np.testing.assert_array_equal(own[0][name][:2], values[:2])
        np.testing.assert_array_equal(own[1][name][2], values[2])
    assert (own[0]["policy_version"][2] == -1).all()
    assert (own[1]["policy_version"][:2] == -1).all()


def test_a_small_native_policy_answers_one_by_one_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    together, _ = native_answers(monkeypatch, 0)
    apart, ports = native_answers(monkeypatch, 1 << 20)
    forgetful, _ = native_answers(monkeypatch, 1 << 20, most_bound=1)
    assert len(set(together["action"][:2, :STEPS].ravel().tolist())) > 2
    for name, values in together.items():
        np.testing.assert_array_equal(apart[name], values)
        np.testing.assert_array_equal(forgetful[name], values)
    assert ports.answered == [(0, 1), (1, 1)] * (2 * STEPS)
    np.testing.assert_array_equal(ports.actions[1], 5 + together["action"][2, STEPS - 1])
