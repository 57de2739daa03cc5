"""The arrays that a learner from a stream copies from the state's device, and to it."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from penstock.updates.batch import Batch
from penstock.updates.stream_learning import StreamLearner
from tests.updates import counting


class Watched(Mapping):
    """A state that notes each array that is read."""

    def __init__(self) -> None:
        self.values = {"ran": torch.zeros(2), "seen": torch.zeros(counting.ROWS)}
        self.looked_at: list[str] = []

    def __getitem__(self, name: str) -> torch.Tensor:
        self.looked_at.append(name)
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


class Stepper:
    """Holds a watched state, and notes what is loaded into it."""

    def __init__(self) -> None:
        self.state = Watched()
        self.loaded: list[dict[str, list[float]]] = []

    def tensors(self) -> Watched:
        return self.state

    def progress(self, progress: float) -> None:
        pass

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        self.loaded.append({name: values.tolist() for name, values in state.items()})


class Learner(StreamLearner):
    """Takes no gradient step."""

    def __init__(self) -> None:
        batch = Batch(counting.stream(), ("reward",), counting.spec(4).targets, torch.device("cpu"), staged=False)
        super().__init__(counting.build(), counting.spec(4).policy, batch, 4, 1)
        self._stepper = Stepper()
        self.stepper = self._stepper

    def _learn(self, weights: np.ndarray) -> None:
        pass


def test_statistics_move_what_they_read_once_and_what_they_change_once() -> None:
    learner = Learner()
    learner.merge([0, 1, 1])
    learner.finish()
    assert learner.stepper.state.looked_at == ["ran"]
    # 100 for each rollout whose first lane is 1: the second, twice.
    assert learner.stepper.loaded == [{}, {"ran": [200.0, 200.0]}]


def test_targets_that_read_no_state_move_none() -> None:
    learner = Learner()
    learner.begin([0, 1], 0.5)
    assert learner.stepper.state.looked_at == []


def test_the_bits_of_a_minibatch_do_not_depend_on_those_before_it_in_the_same_call():
    """30 float32 rows are 120 bytes. Unless it is copied, the second minibatch begins where a sum may differ."""
    starts: list[int] = []

    class Noting(Stepper):
        def step(self, parts, weights, exchange):
            starts.extend(values.data_ptr() % 64 for part in parts for values in part.values())

    batch = Batch(counting.stream(), ("reward",), counting.spec(30).targets, torch.device("cpu"), staged=False)
    learner = StreamLearner(counting.build(), counting.spec(30).policy, batch, 30, 1)
    learner._stepper = Noting()
    learner.minibatches(np.zeros((3, 30), np.int64), np.ones((3, 30), np.float32))
    assert len(starts) == 6
    assert set(starts) == {0}
