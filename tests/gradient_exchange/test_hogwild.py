"""Learners that add their steps to one shared vector, by hand."""

import numpy as np
import pytest

from penstock.errors import BadDataError
from penstock.gradient_exchange.gradients import Learner
from penstock.gradient_exchange.hogwild import Hogwild, VectorOwner
from penstock.memory.board import Board
from penstock.memory.layout import Layout
from penstock.memory.stream import Stream
from penstock.nodes.learner.gradient_slot import board_specs, slot_specs, step_metrics_in, vector_specs
from penstock.types import ArraySpec

STATE = (
    ArraySpec("actor", (2,), "float32"),
    ArraySpec("target.actor", (2,), "float32"),
    ArraySpec("adam_v.actor", (2,), "float32"),
    ArraySpec("obs_mean", (1,), "float64"),
    ArraySpec("gradient_steps", (), "int64"),
    ArraySpec("progress", (), "float64"),
)
TOLD = STATE[-1:]
LEARNERS = 2


class Held:
    """An updater with a state and nothing else."""

    def __init__(self) -> None:
        self.values = {part.name: np.zeros(part.shape, part.dtype) for part in STATE}

    def state(self):
        return self.values

    def load(self, state) -> None:
        self.values |= {name: np.array(values) for name, values in state.items()}

    def metrics(self):
        return {"policy_loss": 0.5}

    def merge(self, slots, *, learned) -> None:
        self.merged = slots

    def finish(self) -> None:
        self.values["obs_mean"] = self.values["obs_mean"] + float(sum(self.merged))


class Writer:
    """The writing end of a stream."""

    def __init__(self, stream, owner):
        self.stream, self.owner = stream, owner
        self.slot, self.written = stream.slot, stream.written

    def claim(self, sequence):
        return self.stream.claim(self.owner, sequence)

    def push(self, index):
        self.stream.push(index, self.owner)


class Run:
    """The shared vector, the board and the stream of two learners."""

    def __init__(self, segment) -> None:
        layout, boards, slots = Layout(vector_specs(STATE)), board_specs(TOLD, LEARNERS), slot_specs(())
        self.vector = layout.views(segment(layout.nbytes).bytes)
        self.board = Board(segment(Board.required(boards)).bytes, boards)
        self.stream = Stream(segment(Stream.required(slots, 4)).bytes, slots, 4)
        self.owner = VectorOwner(self.vector, Held())
        first = {part.name: np.zeros(part.shape, part.dtype) for part in STATE}
        self.owner.load({**first, "actor": np.array([1.0, 2.0], np.float32)})
        self.board.publish({"progress": np.array(0.25), "settled": np.zeros(LEARNERS, np.int64)}, 0)

    def learner(self, number: int) -> tuple[Hogwild, Held]:
        team = Hogwild(
            Writer(self.stream, 10 + number),
            self.board,
            TOLD,
            Learner(number, LEARNERS, lambda: False),
            vector=self.vector,
            overwritten=frozenset({"adam_v.actor"}),
        )
        held = Held()
        held.load(team.join(held.state()))
        return team, held


@pytest.fixture
def run(segment) -> Run:
    return Run(segment)


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_a_learner_begins_with_the_vector_and_what_the_board_tells(run) -> None:
    _, held = run.learner(0)
    assert held.values["actor"].tolist() == [1.0, 2.0]
    assert float(held.values["progress"]) == 0.25


def test_steps_of_two_learners_from_the_same_parameters_are_both_added(run) -> None:
    """From (1, 2), one goes by (3, 0) and the other by (-1, 4): (3, 6). The later second moment stays."""
    parts = [run.learner(number) for number in range(LEARNERS)]
    for team, held in parts:
        assert team.begin(held)
    for (team, held), step, moment in zip(parts, (vector(3.0, 0.0), vector(-1.0, 4.0)), (5.0, 7.0), strict=True):
        found = team("actor_critic", {"actor": step}, 1.0)
        assert found["actor"] is step
        held.values = {**held.values, "actor": held.values["actor"] + step, "adam_v.actor": vector(moment, 0.0)}
        team.end()
        run.owner.apply({}, 0.5)
    assert run.vector["actor"].tolist() == [3.0, 6.0]
    state = run.owner.state()
    assert state["actor"].tolist() == [3.0, 6.0]
    assert state["adam_v.actor"].tolist() == [7.0, 0.0]
    assert (int(state["gradient_steps"]), float(state["progress"])) == (2, 0.5)
    team, held = parts[0]
    assert team.begin(held)
    assert held.values["actor"].tolist() == [3.0, 6.0]


def test_of_two_copies_to_a_target_at_once_the_later_one_stays(run) -> None:
    """From (1, 2), one goes by (3, 0) and the other by (-1, 4), and both copy: (4, 2), then (0, 6), not their sum."""
    parts = [run.learner(number) for number in range(LEARNERS)]
    for team, held in parts:
        assert team.begin(held)
    for (team, held), step in zip(parts, (vector(3.0, 0.0), vector(-1.0, 4.0)), strict=True):
        actor = held.values["actor"] + step
        held.values = {**held.values, "actor": actor, "target.actor": actor.copy()}
        team.end()
    assert run.vector["actor"].tolist() == [3.0, 6.0]
    assert run.vector["target.actor"].tolist() == [0.0, 6.0]


def test_steps_of_a_target_that_only_follows_are_added(run) -> None:
    parts = [run.learner(number) for number in range(LEARNERS)]
    for team, held in parts:
        assert team.begin(held)
    for team, held in parts:
        target = held.values["target.actor"] + np.float32(0.25) * (held.values["actor"] - held.values["target.actor"])
        held.values = {**held.values, "target.actor": target}
        team.end()
    assert run.vector["target.actor"].tolist() == [0.5, 1.0]


def test_a_step_is_noted_once_with_its_metrics_and_the_bytes_that_were_added(run) -> None:
    team, held = run.learner(1)
    assert team.begin(held)
    held.values = {**held.values, "actor": vector(2.0, 2.0)}
    team.end()
    slot = run.stream.slot(run.stream.take(1))
    assert (int(slot["learner"]), int(slot["step"]), int(slot["parts"]), int(slot["sent"])) == (1, 1, 0, 8)
    assert step_metrics_in(slot) == {"policy_loss": 0.5}
    assert team.sent() == 8


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_step_that_is_not_finite_is_not_added(run, number: float) -> None:
    team, held = run.learner(0)
    assert team.begin(held)
    held.values = {**held.values, "actor": vector(5.0, 5.0), "adam_v.actor": vector(0.0, number)}
    with pytest.raises(BadDataError, match=r"make adam_v\.actor infinite or NaN; nothing of it was kept"):
        team.end()
    assert run.vector["actor"].tolist() == [1.0, 2.0]
    assert run.vector["adam_v.actor"].tolist() == [0.0, 0.0]
    assert run.stream.take(1) is None


def test_numbers_that_no_step_changes_are_left_to_the_owner(run) -> None:
    """The owner merges statistics while a learner is at its step."""
    team, held = run.learner(0)
    assert team.begin(held)
    run.owner.merge([1, 2])
    run.owner.finish()
    held.values = {**held.values, "actor": vector(2.0, 2.0)}
    team.end()
    assert run.owner.state()["obs_mean"].tolist() == [3.0]
    assert run.owner.state()["actor"].tolist() == [2.0, 2.0]
    run.owner.merge([4])
    run.owner.finish()
    assert run.owner.state()["obs_mean"].tolist() == [7.0]


def test_a_mean_is_over_the_own_rows(run) -> None:
    team, _ = run.learner(0)
    values = {"mean": vector(3.0)}
    assert team.mean(values, 8.0) is values


def test_what_learners_add_while_the_owner_merges_statistics_stays(run, monkeypatch) -> None:
    """The owner changes a last layer from (1, 2) to (0.5, 2). Meanwhile a learner has made the vector (4, 2)."""

    def merge(self, slots, *, learned) -> None:
        run.vector["actor"][...] += vector(3.0, 0.0)
        self.values["actor"] = vector(0.5, 2.0)

    monkeypatch.setattr(Held, "merge", merge)
    run.owner.merge([0])
    assert run.vector["actor"].tolist() == [3.5, 2.0]
