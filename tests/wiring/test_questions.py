"""Both ends of an ask edge over shared memory: one open question at a time, and no torn answer after any death."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import FencedError
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.program.graph import Ask, LocalAnswer, RemoteAnswer
from penstock.types import Array, ArraySpec, Question, Wanted
from penstock.wiring.asking import AnsweringEnd, AskingEnd
from penstock.wiring.questions import Questions

LANES, STEPS, SLOTS = 2, 3, 2
ENV, OTHER, NODE, NODES = 11, 12, 21, {"policy.0": 21, "policy.1": 22}
"""Lives."""
ROWS = (
    ArraySpec("obs", (STEPS + 1, LANES, 4), "float32"),
    ArraySpec("action", (STEPS + 1, LANES), "int64"),
    ArraySpec("value", (STEPS + 1, LANES), "float32"),
    ArraySpec("final.obs", (STEPS * LANES, 4), "float32"),
    ArraySpec("final_count", (), "int64"),
    ArraySpec("final_value", (STEPS * LANES,), "float32"),
)
EDGE = Ask(
    "act",
    ("env.0", "env.1"),
    "policy",
    RemoteAnswer(
        ("policy.0",),
        ("rollouts", "rollouts"),
        ArraySpec("environment_action", (LANES,), "float64"),
        (ArraySpec("obs.film", (LANES, 4, 6), "uint8"),),
    ),
)


def zeros(nbytes: int) -> Array:
    return Segment.create(nbytes, "test").bytes


class BoardOf:
    """A board with a version."""

    latest = 4

    def version(self) -> int:
        return self.latest

    def fresh(self, turn: int) -> bool:
        return turn <= self.latest


class Pair:
    """An environment node's end, its stream, and the answerer's end for both askers."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.stream = Stream(zeros(Stream.required(ROWS, SLOTS)), ROWS, SLOTS)
        self.questions = Questions(zeros(Questions.required(EDGE)), EDGE)
        self.asking = self.ask_again(ENV)
        self.answering = self.answer_again(NODE)

    def ask_again(self, owner: int, asker: str = "env.0") -> AskingEnd:
        return AskingEnd(
            [self.questions.slot(asker, "policy.0", owner)],
            self.stream.arrays,
            BoardOf(),  # type: ignore[arg-type]
            first_lane=6,
            choose=lambda: 0,
            wakes=[lambda: self.rung.append("policy.0")],
        )

    def answer_again(self, owner: int) -> AnsweringEnd:
        slots = [self.questions.slot(asker, "policy.0", owner) for asker in EDGE.askers]
        wakes = [lambda asker=asker: self.rung.append(asker) for asker in EDGE.askers]  # type: ignore[misc]
        return AnsweringEnd(slots, [self.stream.arrays] * len(slots), wakes, lambda: None)


def test_a_question_goes_there_and_back() -> None:
    pair = Pair()
    asking, answering = pair.asking, pair.answering
    handle = asking.bind(pair.stream.slot(1))
    assert asking.answered()
    assert not answering.waiting()
    asking.ask(handle, 2, 500)
    assert pair.rung == ["policy.0"]
    assert answering.waiting()
    (question,) = answering.take()
    assert question == Question(
        asker=0, wanted=Wanted.ROW, refresh=True, again=True, slot=1, row=2, finals=0, step=500, first_lane=6
    )
    assert not answering.waiting()
    assert not asking.answered()
    answering.environment_action(0)[...] = [0.5, 1.5]
    answering.answer(0, 7)
    assert pair.rung == ["policy.0", "env.0"]
    assert asking.answered()
    assert asking.answered()
    assert asking.version == 7
    np.testing.assert_array_equal(asking.environment_action, [0.5, 1.5])


def test_stacks_stand_beside_the_question_of_whoever_asks() -> None:
    pair = Pair()
    assert list(pair.asking.stacks) == ["obs.film"]
    pair.asking.stacks["obs.film"][1, 3] = 7
    pair.asking.ask(pair.asking.bind(pair.stream.slot(1)), 2, 500)
    pair.answering.take()
    np.testing.assert_array_equal(pair.answering.stacks(0)["obs.film"][1, 3], [7] * 6)
    assert not pair.answering.stacks(1)["obs.film"].any()


def test_only_the_question_after_a_refresh_says_so() -> None:
    pair = Pair()
    said = []
    for refresh in (True, False, True):
        if refresh:
            pair.asking.refresh()
        pair.asking.ask(0, 0, 0)
        said += [question.refresh for question in pair.answering.take()]
        pair.answering.answer(0, 1)
        assert pair.asking.answered()
    assert said == [True, False, True]


def test_a_question_says_whether_another_one_follows_in_this_rollout() -> None:
    pair = Pair()
    slot = pair.stream.slot(1)
    said = []

    def answer() -> None:
        said.extend(question.again for question in pair.answering.take())
        pair.answering.answer(0, 1)
        assert pair.asking.answered()

    for row in range(STEPS):
        pair.asking.ask(1, row, row)
        answer()
    assert said == [True, True, True]  # the values of row T are asked for, too
    for finals in (0, 2):
        slot["final_count"][...] = finals
        pair.asking.ask_value({"obs": slot["obs"][STEPS]}, slot["value"][STEPS])
        answer()
    pair.asking.ask_value({"obs": slot["final.obs"][:2]}, slot["final_value"][:2])
    answer()
    assert said[STEPS:] == [False, True, False]


def test_without_values_a_rollouts_last_question_is_about_its_last_row() -> None:
    pair = Pair()
    arrays = {name: array for name, array in pair.stream.arrays.items() if name != "value"}
    slot = pair.questions.slot("env.1", "policy.0", OTHER)
    ends = {"first_lane": 0, "choose": lambda: 0, "wakes": [lambda: None]}
    asking = AskingEnd([slot], arrays, BoardOf(), **ends)  # type: ignore[arg-type]
    said = []
    for row in range(STEPS):
        asking.ask(1, row, row)
        said += [question.again for question in pair.answering.take()]
        pair.answering.answer(1, 1)
        assert asking.answered()
    assert said == [True, True, False]


def test_values_are_asked_for_by_where_they_lie() -> None:
    pair = Pair()
    slot = pair.stream.slot(1)
    pair.asking.ask_value({"obs": slot["obs"][STEPS]}, slot["value"][STEPS])
    (question,) = pair.answering.take()
    assert (question.wanted, question.slot, question.row) == (Wanted.VALUE, 1, STEPS)
    pair.answering.answer(0, 1)
    assert pair.asking.answered()
    pair.asking.ask_value({"obs": slot["final.obs"][:4]}, slot["final_value"][:4])
    (question,) = pair.answering.take()
    assert (question.wanted, question.slot, question.finals) == (Wanted.FINAL_VALUE, 1, 4)


def test_arrays_that_no_answerer_sees_are_refused() -> None:
    pair = Pair()
    slot, other = pair.stream.slot(1), pair.stream.slot(0)
    with pytest.raises(ValueError, match="lie in no slot"):
        pair.asking.bind({name: array.copy() for name, array in slot.items()})
    with pytest.raises(ValueError, match="lie in no slot"):
        pair.asking.ask_value({"obs": slot["obs"][3]}, np.zeros(LANES, np.float32))
    with pytest.raises(ValueError, match="obs and the value that is asked for lie in different places"):
        pair.asking.ask_value({"obs": other["obs"][3]}, slot["value"][3])
    with pytest.raises(ValueError, match="begin within a row"):
        pair.asking.ask_value({"obs": slot["obs"][3]}, slot["value"][3, 1:])
    assert not pair.answering.waiting()


def test_one_question_at_a_time() -> None:
    pair = Pair()
    pair.asking.ask(0, 0, 0)
    with pytest.raises(ValueError, match="asked again before the last question was answered"):
        pair.asking.ask(0, 1, 1)


def test_it_waits_for_versions_as_the_board_says() -> None:
    asking = Pair().asking
    assert asking.fresh(4)
    assert not asking.fresh(5)


def test_what_a_dead_asker_asked_is_asked_no_more() -> None:
    pair = Pair()
    with pytest.raises(FencedError, match="not recovered"):
        pair.ask_again(OTHER)
    assert pair.questions.recover_asker("env.0", ENV)
    pair.ask_again(OTHER).ask(1, 0, 0)
    assert pair.questions.recover_asker("env.0", OTHER)
    assert pair.questions.recover_asker("env.0", OTHER)
    assert not pair.answering.waiting()
    assert pair.ask_again(OTHER + 1).answered()


def test_a_dead_asker_is_recovered_only_when_nobody_writes_for_it_any_more() -> None:
    pair = Pair()
    pair.asking.ask(1, 0, 0)
    (question,) = pair.answering.take()
    assert not pair.questions.recover_asker("env.0", ENV)
    assert not pair.questions.recover_asker("env.0", ENV)
    pair.answering.answer(question.asker, 3)
    assert pair.questions.recover_asker("env.0", ENV)


def test_what_a_dead_answerer_had_begun_is_asked_again() -> None:
    pair = Pair()
    second = pair.ask_again(OTHER, "env.1")
    pair.asking.ask(1, 2, 33)
    (begun,) = pair.answering.take()
    second.ask(0, 0, 0)
    assert pair.questions.recover_answerer("policy.0", NODE) == 1
    successor = pair.answer_again(NODE + 1)
    first, other = successor.take()
    assert first == begun
    assert other.asker == 1
    with pytest.raises(FencedError):  # were it only slow, and not dead
        pair.answering.answer(0, 3)
    assert not pair.asking.answered()
    successor.answer(0, 8)
    assert pair.asking.answered()
    assert pair.asking.version == 8


def test_when_both_ends_die_the_answerer_is_recovered_first() -> None:
    pair = Pair()
    pair.asking.ask(1, 2, 33)
    pair.answering.take()
    assert not pair.questions.recover_asker("env.0", ENV)
    pair.questions.recover_answerer("policy.0", NODE)
    assert pair.questions.recover_asker("env.0", ENV)
    assert pair.answer_again(NODE + 1).take() == []


class Several:
    """Two askers and two answerers."""

    def __init__(self) -> None:
        assert isinstance(EDGE.answer, RemoteAnswer)
        self.edge = replace(EDGE, answer=replace(EDGE.answer, nodes=tuple(NODES)))
        self.stream = Stream(zeros(Stream.required(ROWS, SLOTS)), ROWS, SLOTS)
        self.questions = Questions(zeros(Questions.required(self.edge)), self.edge)
        self.rung: list[str] = []
        self.answering = {node: self.answerer(node, owner) for node, owner in NODES.items()}

    def asker(self, name: str, owner: int, chosen: Iterator[int] | None = None) -> AskingEnd:
        """Chooses as it is told, or by the queues."""
        first = self.edge.askers.index(name)
        return AskingEnd(
            [self.questions.slot(name, node, owner) for node in NODES],
            self.stream.arrays,
            BoardOf(),  # type: ignore[arg-type]
            first_lane=LANES * first,
            choose=lambda: self.questions.shortest(first) if chosen is None else next(chosen),
            wakes=[lambda node=node: self.rung.append(node) for node in NODES],  # type: ignore[misc]
        )

    def answerer(self, node: str, owner: int) -> AnsweringEnd:
        slots = [self.questions.slot(asker, node, owner) for asker in self.edge.askers]
        return AnsweringEnd(slots, [self.stream.arrays] * len(slots), [lambda: None] * len(slots), lambda: None)


def test_an_asker_stays_with_an_answerer_from_one_refresh_to_the_next() -> None:
    several = Several()
    asking = several.asker("env.0", ENV, iter([1, 0, 1]))
    asked = []
    for step in range(6):
        if step % 2 == 0:
            asking.refresh()
        asking.ask(0, step % 2, step)
        assert sum(answering.waiting() for answering in several.answering.values()) == 1
        for node, answering in several.answering.items():
            for question in answering.take():
                asked.append((node, question.step, question.refresh))
                answering.environment_action(0)[...] = step
                answering.answer(question.asker, step)
        assert asking.answered()
        assert asking.version == step
        assert (asking.environment_action == step).all()
    nodes = ["policy.1", "policy.1", "policy.0", "policy.0", "policy.1", "policy.1"]
    assert asked == [(node, step, step % 2 == 0) for step, node in enumerate(nodes)]
    assert several.rung == nodes


def test_the_answerer_with_the_shortest_queue_is_chosen() -> None:
    several = Several()
    first, second = several.asker("env.0", ENV), several.asker("env.1", OTHER)
    # Nobody waits anywhere: each has an answerer of its own.
    assert [several.questions.shortest(index) for index in range(4)] == [0, 1, 0, 1]
    second.ask(0, 0, 0)
    assert several.rung == ["policy.1"]
    assert several.questions.shortest(1) == 0
    several.answering["policy.1"].take()
    # What is being answered counts, too.
    assert several.questions.shortest(1) == 0
    first.ask(1, 0, 0)
    assert several.rung == ["policy.1", "policy.0"]
    several.answering["policy.1"].answer(1, 3)
    assert second.answered()
    assert [several.questions.shortest(index) for index in range(2)] == [1, 1]


def test_only_the_dead_answerers_questions_are_asked_again() -> None:
    several = Several()
    first, second = several.asker("env.0", ENV), several.asker("env.1", OTHER)
    first.ask(0, 0, 0)
    second.ask(1, 0, 0)
    for answering in several.answering.values():
        assert len(answering.take()) == 1
    assert several.questions.recover_answerer("policy.0", NODES["policy.0"]) == 1
    assert several.questions.recover_answerer("env.0", ENV) == 0
    assert [question.asker for question in several.answerer("policy.0", NODE + 9).take()] == [0]
    several.answering["policy.1"].answer(1, 3)
    assert second.answered()
    assert not first.answered()


def test_a_dead_asker_has_slots_at_every_answerer() -> None:
    several = Several()
    asking = several.asker("env.0", ENV, iter([1]))
    asking.ask(0, 0, 0)
    with pytest.raises(FencedError, match="not recovered"):
        several.asker("env.0", OTHER)
    several.answering["policy.1"].take()
    assert not several.questions.recover_asker("env.0", ENV)
    several.answering["policy.1"].answer(0, 3)
    assert several.questions.recover_asker("env.0", ENV)
    again = several.asker("env.0", OTHER + 9)
    again.ask(0, 0, 0)
    assert several.answering["policy.0"].waiting()


def test_askers_that_answer_themselves_take_no_memory() -> None:
    assert Questions.required(Ask("act", ("env.0",), "policy", LocalAnswer("local_policy", None))) == 0
