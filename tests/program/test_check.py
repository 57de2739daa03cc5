"""A program that cannot run is refused before anything starts. The error names every fault."""

import pytest

from penstock.program.check import ProgramError, check
from penstock.program.graph import (
    Ask,
    Board,
    LocalAnswer,
    NodeSpec,
    ProcessGroup,
    Program,
    RemoteAnswer,
    Rounds,
    Stream,
    Table,
)
from penstock.replay.limiter import RateLimiter
from penstock.types import ArraySpec

VALUE = ArraySpec("value", (), "float32")


def node(name: str) -> NodeSpec:
    return NodeSpec(name, "env", None, group=name)


def stream(name: str = "s", writer: str = "a", reader: str = "b", slots: int = 1) -> Stream:
    return Stream(name, (writer,), (reader,), (VALUE,), slots, "wait")


def table(writers: tuple[str, ...] = ("a",), slots: int = 2, shards: int = 1) -> Table:
    return Table("t", writers, ("b",), (VALUE,), slots, RateLimiter(0, 1.0, 1, 1.0), shards=shards)


def program(*edges: object) -> Program:
    return Program((node("a"), node("b")), edges, ("b",))  # type: ignore[arg-type]


def test_a_whole_program_is_returned_as_it_is() -> None:
    whole = program(stream())
    assert check(whole) is whole


def team(writer: str, reader: str) -> Program:
    """``a`` and ``b`` meet by a board that ``writer`` writes and ``reader`` reads."""
    board = Board("p", writer, (reader,), (VALUE,))
    return program(ProcessGroup("g", ("a", "b"), (VALUE,), "127.0.0.1", "p"), board)


LOCAL = LocalAnswer("local_policy", None)


def remote(nodes: tuple[str, ...], asker: str = "a", streams: tuple[str, ...] = ("s",)) -> Program:
    """``nodes`` answer ``asker`` about rows of the stream that ``a`` writes, by a board that ``b`` reads."""
    ask = Ask("act", (asker,), "p", RemoteAnswer(nodes, streams, VALUE))
    return program(stream(), Board("p", "a", ("b",), (VALUE,)), ask)


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (program(stream(reader="nobody")), "edge s ends at unknown node nobody"),
        (program(stream(slots=0)), "stream s needs at least one slot"),
        (program(stream(), stream()), "edge s appears twice"),
        (Program((node("a"), node("b")), (stream(),)), "no node ends the run"),
        (Program((node("a"), node("b")), (stream(),), ("c",)), "the run ends with unknown node c"),
        (Program((node("a"), node("a"), node("b")), (stream(),), ("b",)), "node a appears twice"),
        (Program((node("a"), node("b"), node("c")), (stream(),), ("b",)), "node c has no edge"),
        (program(table(slots=1)), "table t needs at least two slots for each writer"),
        (program(table(writers=())), "table t needs a writer and a reader"),
        (program(stream(), Board("p", "a", ("b",), (VALUE, VALUE))), "edge p has field value twice"),
        (program(stream(), Board("p", "a", ("b",), (VALUE,), -1)), "board p has a negative lag"),
        (program(stream(), Ask("act", ("a",), "nowhere", LOCAL)), "act asks the policy on board nowhere"),
        (remote(("c",)), "edge act ends at unknown node c"),
        (remote(("a",)), "a answers act and does not read p"),
        (remote(()), "0 nodes answer the 1 askers of act"),
        (remote(("b", "b")), "2 nodes answer the 1 askers of act"),
        (remote(("b",), asker="b"), "b asks about rows of s, which it does not write"),
        (remote(("b",), streams=("t",)), "a asks about rows of t, which it does not write"),
        (remote(("b",), streams=()), "act has 1 askers, and names 0 streams of theirs"),
        (program(table(("a", "b", "a"), shards=2)), "2 shards do not share the 3 writers of table t equally"),
        (program(Rounds("r", ("a",), (VALUE,))), "rounds r need 2 to 12 members, not 1"),
        (program(Rounds("r", ("a",) * 13, (VALUE,)), stream()), "rounds r need 2 to 12 members, not 13"),
        (team("a", "a"), "b is in g and does not read p"),
        (team("b", "a"), "b writes p, but only the first member of g may"),
        (
            Program((node("a"), NodeSpec("b", "env", None, "b", edges=(("policy", "p"),))), (stream(),), ("b",)),
            "edge p plays policy for node b, but there is no such edge",
        ),
        (program(Stream("s", (), ("b",), (VALUE,), 1, "wait"), stream("t")), "stream s needs a writer and a reader"),
    ],
)
def test_each_fault_is_named(broken: Program, fault: str) -> None:
    with pytest.raises(ProgramError, match=fault):
        check(broken)


def test_groups_keep_their_order_and_members() -> None:
    nodes = (NodeSpec("x", "env", None, "one"), NodeSpec("y", "env", None, "two"), NodeSpec("z", "env", None, "one"))
    whole = Program(nodes, ())
    assert whole.groups == ("one", "two")
    assert [member.name for member in whole.members("one")] == ["x", "z"]
    assert whole.node("y").group == "two"
    with pytest.raises(KeyError):
        whole.node("w")


def test_an_ask_that_a_node_answers_is_whole() -> None:
    whole = remote(("b",))
    assert check(whole) is whole


def test_learners_that_meet_by_the_board_of_the_first_one_are_whole() -> None:
    whole = team("a", "b")
    assert check(whole) is whole
