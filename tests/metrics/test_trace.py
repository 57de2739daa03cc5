"""From rings of spans to a timeline: nested spans are on one track, and idle time is shown."""

from pathlib import Path

from penstock.memory.spans import SpanRing
from penstock.metrics.trace import IDLE_SPAN, OPEN, STEP, NodeTimeline, Span, Timeline, read_timeline, ring_path

MS = 1_000_000
ORIGIN = 5_000 * MS


def write(folder: Path, process: str, *spans: tuple[str, str, float, float], capacity: int = 64) -> None:
    """Spans (node, name, begin, end), in milliseconds of a clock that does not begin at 0."""
    ring = SpanRing.at(ring_path(folder, process), capacity)
    for node, name, begin, end in spans:
        ring.add(ORIGIN + int(begin * MS), ORIGIN + int(end * MS), ring.name(node), ring.name(name))
    ring.close()


def timeline(folder: Path) -> Timeline:
    read = read_timeline(folder)
    assert read is not None
    return read


def ms(track: tuple[Span, ...]) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin / MS, span.end / MS) for span in track]


def test_no_span_is_no_timeline(tmp_path: Path) -> None:
    assert read_timeline(tmp_path) is None
    write(tmp_path, "env.0")
    (tmp_path / "cut.spans").write_bytes(b"spans v1")
    assert read_timeline(tmp_path) is None


def test_the_time_between_turns_is_idle_up_to_the_end_of_all(tmp_path: Path) -> None:
    write(tmp_path, "env.0", ("env.0", OPEN, 0, 10), ("env.0", STEP, 30, 80), ("env.0", STEP, 80.005, 90))
    write(tmp_path, "learner", ("learner", STEP, 20, 100))
    env, learner = timeline(tmp_path).nodes
    # 5 us is the loop going round.
    assert ms(env.tracks[0]) == [
        (OPEN, 0, 10),
        (IDLE_SPAN, 10, 30),
        (STEP, 30, 80),
        (STEP, 80.005, 90),
        (IDLE_SPAN, 90, 100),
    ]
    assert ms(learner.tracks[0]) == [(STEP, 20, 100)]
    assert env.shares(100 * MS)[IDLE_SPAN] == 0.3
    # The learner's time begins with its own first span.
    assert learner.shares(100 * MS) == {STEP: 1.0}


def test_what_took_several_turns_has_a_track_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        "env.0",
        ("env.0", "look", 5, 6),
        ("env.0", STEP, 0, 50),
        ("env.0", "rollout", 1, 60),
        ("env.0", STEP, 51, 61),
        # This span fits into one turn. All spans of one name are on the same track anyway.
        ("env.0", "rollout", 71, 72),
        ("env.0", STEP, 70, 73),
    )
    (env,) = timeline(tmp_path).nodes
    assert ms(env.tracks[0]) == [
        (STEP, 0, 50),
        ("look", 5, 6),
        (IDLE_SPAN, 50, 51),
        (STEP, 51, 61),
        (IDLE_SPAN, 61, 70),
        (STEP, 70, 73),
    ]
    assert ms(env.tracks[1]) == [("rollout", 1, 60), ("rollout", 71, 72)]


def test_what_does_not_nest_goes_to_the_next_track(tmp_path: Path) -> None:
    turns = [("n", STEP, begin, begin + 9) for begin in range(0, 100, 10)]
    write(tmp_path, "n", *turns, ("n", "a", 1, 51), ("n", "b", 2, 32), ("n", "c", 21, 61), ("n", "b", 52, 72))
    (node,) = timeline(tmp_path).nodes
    assert ms(node.tracks[1]) == [("a", 1, 51), ("b", 2, 32), ("b", 52, 72)]
    assert ms(node.tracks[2]) == [("c", 21, 61)]


def test_processes_stand_in_order_of_their_numbers_and_nodes_of_one_process_together(tmp_path: Path) -> None:
    for process in ("env.10", "env.2", "learner"):
        write(tmp_path, process, (process, STEP, 0, 1))
    write(tmp_path, "monitor", ("checkpointer", STEP, 0, 1), ("monitor", STEP, 1, 2))
    assert [(node.process, node.name) for node in timeline(tmp_path).nodes] == [
        ("env.2", "env.2"),
        ("env.10", "env.10"),
        ("learner", "learner"),
        ("monitor", "checkpointer"),
        ("monitor", "monitor"),
    ]


def test_what_was_overwritten_is_counted_where_it_was(tmp_path: Path) -> None:
    write(tmp_path, "env.0", *(("env.0", STEP, begin, begin + 1) for begin in range(10)), capacity=4)
    write(tmp_path, "learner", ("learner", STEP, 0, 1))
    assert timeline(tmp_path).overwritten == {"env.0": 7}


def test_a_node_begins_with_the_earliest_of_its_tracks() -> None:
    node = NodeTimeline("n", "n", ((Span(5, 9, STEP),), (Span(3, 8, "long"),)))
    assert node.begin == 3
