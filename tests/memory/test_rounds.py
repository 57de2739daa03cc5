import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.memory.rounds import MOST_MEMBERS, Joined, Rounds
from penstock.types import ArraySpec

STATE = [ArraySpec("actor", (5,), "float32"), ArraySpec("critic", (3,), "float32"), ArraySpec("steps", (), "int64")]


@pytest.fixture
def rounds(segment) -> list[Rounds]:
    shared = segment(Rounds.required(2, STATE))
    return [Rounds(shared.bytes, 2, STATE, member) for member in range(2)]


def brought(member: int) -> list[np.ndarray]:
    return [np.full(5, 1.0 + member, np.float32), np.arange(3, dtype=np.float32) * (10 * member + 1)]


def test_the_mean_counts_each_member_by_its_weight(rounds: list[Rounds]) -> None:
    assert [end.join(anew=False) for end in rounds] == [Joined.FOUNDED, Joined.FOUNDED]
    assert rounds[0].members() == [0, 1]
    rounds[0].send(brought(0), 3.0)
    assert not rounds[0].over()
    rounds[1].send(brought(1), 1.0)
    found = []
    for end in rounds:
        assert end.over()
        into = [np.zeros(5, np.float32), np.zeros(3, np.float32)]
        end.mean(into)
        found.append(into)
    np.testing.assert_allclose(found[0][0], 0.75 * 1.0 + 0.25 * 2.0)
    np.testing.assert_allclose(found[0][1], np.arange(3) * (0.75 * 1 + 0.25 * 11))
    assert all(first.tobytes() == second.tobytes() for first, second in zip(*found, strict=True))


def test_alone_a_member_gets_what_it_brought(rounds: list[Rounds]) -> None:
    for end in rounds:
        end.join(anew=False)
    for member, end in enumerate(rounds):
        end.send(brought(member), 1.0)
    rounds[1].remove()
    mine = [np.array([1.1, -2.3, 1e-30, 3e30, 0.0], np.float32)]
    rounds[0].send(mine, 0.3)
    assert rounds[0].over()
    into = [np.zeros(5, np.float32)]
    rounds[0].mean(into)
    assert into[0].tobytes() == mine[0].tobytes()


def test_a_newcomer_is_told_the_state_of_the_others(rounds: list[Rounds]) -> None:
    for end in rounds:
        end.join(anew=False)
    for member, end in enumerate(rounds):
        end.send(brought(member), 1.0)
    rounds[1].remove()
    assert rounds[0].members() == [0]
    assert not rounds[0].newcomer_waits()
    assert rounds[1].join(anew=False) is Joined.WAITING
    assert rounds[0].newcomer_waits()
    state = {"actor": np.ones(5, np.float32), "critic": np.ones(3, np.float32), "steps": np.array(7)}
    rounds[0].admit(state)
    assert not rounds[0].newcomer_waits()
    assert rounds[1].join(anew=False) is Joined.ADMITTED
    told = {name: np.zeros_like(values) for name, values in state.items()}
    rounds[1].read_state(told)
    assert all((told[name] == state[name]).all() for name in state)


def test_who_has_no_part_in_a_round_cannot_arrive(rounds: list[Rounds]) -> None:
    with pytest.raises(PenstockError, match="member 0 has no part in this round"):
        rounds[0].send(brought(0), 1.0)
    rounds[0].join(anew=False)
    rounds[0].send(brought(0), 1.0)
    with pytest.raises(PenstockError, match="or had it"):
        rounds[0].send(brought(0), 1.0)


def test_what_is_brought_must_fit(rounds: list[Rounds]) -> None:
    rounds[0].join(anew=False)
    with pytest.raises(IndexError, match="float 9 of 9"):
        rounds[0].send([np.zeros(9, np.float32)], 1.0)


def test_the_mean_goes_only_into_as_many_numbers_as_members_can_bring(rounds: list[Rounds]) -> None:
    rounds[0].join(anew=False)
    rounds[0].send(brought(0), 1.0)
    with pytest.raises(IndexError, match="float 9 of 9"):
        rounds[0].mean([np.zeros(5, np.float32), np.zeros(4, np.float32)])


def test_there_are_at_most_twelve(segment) -> None:
    assert Rounds.required(MOST_MEMBERS, STATE) > Rounds.required(MOST_MEMBERS - 1, STATE)
    with pytest.raises(IndexError, match=f"members {MOST_MEMBERS + 1}"):
        Rounds.required(MOST_MEMBERS + 1, STATE)


def test_a_member_that_is_killed_while_the_others_wait(segment, program) -> None:
    shared = segment(Rounds.required(2, STATE))
    mine = Rounds(shared.bytes, 2, STATE, 0)
    mine.join(anew=False)
    child = program(
        """
import numpy as np
from penstock.memory.rounds import Rounds
from penstock.types import ArraySpec
STATE = [ArraySpec("actor", (5,), "float32"), ArraySpec("critic", (3,), "float32"), ArraySpec("steps", (), "int64")]
rounds = Rounds(memory, 2, STATE, 1)
rounds.join(anew=False)
rounds.send([np.full(5, 2.0, np.float32)], 1.0)
print("arrived", flush=True)
input()
""",
        shared,
    )
    assert child.stdout.readline() == "arrived\n"
    into = [np.zeros(5, np.float32)]
    for value, expected in ((4.0, 3.0), (5.0, 5.0)):
        mine.send([np.full(5, value, np.float32)], 1.0)
        if not mine.over():
            child.kill()
            child.wait()
            seen = mine.word()
            Rounds(shared.bytes, 2, STATE, 1).remove()
            mine.sleep(seen, 0.1)
        assert mine.over()
        mine.mean(into)
        assert into[0].tolist() == [expected] * 5
    assert child.returncode == -9
