"""EvaluatorNode: when it opens and closes its environments, and when it gives its request back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.metrics.report import report_specs
from penstock.nodes.evaluation import EvaluatorNode, EvaluatorSettings, PlaySettings
from penstock.nodes.learner import VERDICT
from penstock.policies import Categorical
from penstock.types import Array, ArraySpec, BackendSpec, Box, Discrete, Spaces
from tests.environments import ClockEnv

SPACES = Spaces((("obs", Box((1,), "float32", (0.0,), (1.0,))),), Discrete(2))
REQUEST = (
    ArraySpec("update", (), "int64"),
    ArraySpec("steps", (), "int64"),
    ArraySpec("elapsed_s", (), "float64"),
    *VERDICT,
)


class WatchedClock(ClockEnv):
    """Notes when it is made and closed."""

    events: list[str] = []  # noqa: RUF012 - shared by all, on purpose

    def __init__(self) -> None:
        self.events.append("made")

    def close(self) -> None:
        self.events.append("closed")


class FirstAction:
    """A policy backend that takes action 0."""

    def load(self, published: Mapping[str, Array]) -> None: ...

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        out["action"][...] = 0


class End:
    """One end of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.slot, self.ready, self.free = stream.slot, stream.ready, stream.free
        self.stream = stream

    def take(self) -> int | None:
        return self.stream.take(1)

    def release(self, index: int) -> None:
        self.stream.release(index, 1)

    def claim(self, sequence: int) -> int | None:
        return self.stream.claim(1, sequence)

    def push(self, index: int) -> None:
        self.stream.push(index, 1)


class Ports:
    """The ports of one EvaluatorNode."""

    def __init__(self) -> None:
        self.requests, self.reports = _stream(REQUEST), _stream(report_specs(episodes=1))
        self.verdicts: list[int] = []
        self.is_stopping = False
        self.counted: list[str] = []

    def stopping(self) -> bool:
        return self.is_stopping

    def sign(self) -> memoryview:
        return memoryview(bytearray(8)).cast("q")

    def count(self, counter: str, amount: int = 1) -> None:
        self.counted.append(counter)

    def stream_reader(self, edge: str) -> End:
        return End(self.requests)

    def stream_writer(self, edge: str) -> End:
        return End(self.reports)

    def board_writer(self, edge: str) -> "Ports":
        return self

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        self.verdicts.append(int(arrays["since_best"]))

    @contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        WatchedClock.events.append(name)
        yield
        WatchedClock.events.append("done")


def _stream(specs: tuple[ArraySpec, ...]) -> Stream:
    return Stream(Segment.create(Stream.required(specs, 1), "test").bytes, specs, 1)


@pytest.fixture
def asked() -> tuple[EvaluatorNode, Ports]:
    """A node that has begun the requested evaluation."""
    played = PlaySettings(
        env=f"{__name__}:WatchedClock",
        vector=False,
        ignore_obs=(),
        spaces=SPACES,
        policy=NoParameters(),  # type: ignore[arg-type]
        backend=BackendSpec(f"{__name__}:FirstAction", ()),
        lanes=4,
        seed=0,
        bad_numbers="stop",
        work_limit_s=10.0,
    )
    settings = EvaluatorSettings(played, episodes=1)
    node, ports = EvaluatorNode(settings), Ports()
    node.open(ports)  # type: ignore[arg-type]
    index = ports.requests.claim(2, 7)
    assert index is not None
    ports.requests.slot(index)["update"][...] = 7
    ports.requests.push(index, 2)
    WatchedClock.events.clear()
    assert node.ready()
    node.step()
    return node, ports


class NoParameters:
    """A policy that publishes nothing."""

    carry = ()
    noise = Categorical(2).noise
    mask = None

    def published(self) -> tuple[ArraySpec, ...]:
        return ()


def test_a_request_is_given_back_once_its_report_is_there(asked: tuple[EvaluatorNode, Ports]) -> None:
    node, ports = asked
    assert WatchedClock.events == ["open environment", "made", "done"]
    assert ports.requests.free() == 0
    while node.ready():
        assert ports.requests.free() == 0
        node.step()
    assert ports.requests.free() == 1
    assert ports.reports.ready() == 1
    assert ports.verdicts == [0]
    assert WatchedClock.events[3:] == ["closed"]
    node.close()
    assert WatchedClock.events[3:] == ["closed"]


def test_closing_it_closes_the_environments_of_an_evaluation_under_way(asked: tuple[EvaluatorNode, Ports]) -> None:
    asked[0].close()
    assert WatchedClock.events[3:] == ["closed"]


def test_a_run_that_ends_does_not_wait_long_for_an_evaluation(asked, monkeypatch) -> None:
    node, ports = asked
    monkeypatch.setattr("penstock.nodes.evaluation.evaluator.FINISH_LIMIT_S", -1.0)
    ports.is_stopping = True
    node.step()
    assert ports.requests.free() == 1
    assert ports.counted == ["evaluations_dropped"]
    assert WatchedClock.events[-1] == "closed"
    assert not node.ready()


def test_a_report_waits_for_a_free_slot_and_the_request_for_its_report(asked: tuple[EvaluatorNode, Ports]) -> None:
    node, ports = asked
    taken = ports.reports.claim(0, 3)
    assert taken is not None
    while node.ready():
        node.step()
    assert ports.verdicts == [0]
    assert ports.requests.free() == 0
    ports.reports.push(taken, 0)
    assert ports.reports.take(1) == taken
    ports.reports.release(taken, 1)
    assert node.ready()
    node.step()
    assert (ports.reports.ready(), ports.requests.free()) == (1, 1)
    assert WatchedClock.events[-1] == "closed"
    assert "reports_dropped" not in ports.counted
    assert not node.ready()


def test_a_run_that_ends_does_not_wait_long_for_a_report_that_nobody_reads(asked, monkeypatch) -> None:
    node, ports = asked
    ports.reports.claim(0, 3)
    while node.ready():
        node.step()
    ports.is_stopping = True
    assert not node.ready()
    monkeypatch.setattr("penstock.nodes.evaluation.evaluator.REPORT_LIMIT_S", -1.0)
    assert node.ready()
    node.step()
    assert ports.requests.free() == 1
    assert ports.counted[-1] == "reports_dropped"
    assert not node.ready()
