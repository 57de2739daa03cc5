"""HandedOnEpochs: when the epochs of a batch end."""

import numpy as np
import pytest

from penstock.algorithm import Schedule
from penstock.algorithms.a3c.spec import A3CConfig, spec
from penstock.nodes.learner import handed_on_epochs
from penstock.nodes.learner.goals import BatchGoal
from penstock.nodes.learner.handed_on_epochs import HandedOnEpochs, HandedOnEpochSettings
from penstock.types import Arrays
from penstock.updates.settings import UpdaterSettings
from tests.nodes.test_stream_follower import SPACES, Ports, Rollouts


class Applier:
    """In place of an applier: it keeps no state."""

    def __init__(self, *_: object) -> None:
        self.means: list[dict[str, Arrays]] = []

    def merge(self, slots: object) -> None: ...

    def state(self) -> Arrays:
        return {}

    def apply(self, mean: dict[str, Arrays], progress: float) -> None:
        self.means.append(mean)

    def finish(self) -> None: ...


class Follower(Ports):
    """Board ``parameters`` and stream ``gradients``: there is always a gradient on the latest version."""

    def __init__(self) -> None:
        self.latest = 0

    def stream_reader(self, edge: str) -> "Follower":
        return self

    def board_reader(self, edge: str) -> "Follower":
        return self

    def board_writer(self, edge: str) -> "Follower":
        return self

    def version(self) -> int:
        return self.latest

    def publish(self, arrays: Arrays, version: int) -> None:
        self.latest = version

    def take(self) -> int:
        return 0

    def slot(self, index: int) -> Arrays:
        numbers = {"learner": 0, "step": self.latest, "version": self.latest, "sent": 0, "weight": 1}
        return {name: np.array(value) for name, value in numbers.items()}

    def release(self, index: int) -> None: ...


@pytest.mark.parametrize(
    ("metrics", "epochs"),
    [
        ({"approx_kl": 0.4}, 3),
        ({"approx_kl": 0.6}, 1),
        ({"approx_kl": np.nan}, 1),
        # As with an algorithm of a user's own.
        ({"own": 1.0}, 3),
    ],
)
def test_a_divergence_that_is_too_large_ends_the_epochs(monkeypatch, metrics: dict[str, float], epochs: int) -> None:
    monkeypatch.setattr(handed_on_epochs, "gradients_in", lambda *_: {})
    monkeypatch.setattr(handed_on_epochs, "step_metrics_in", lambda _: metrics)
    assert len(learned().metrics) == epochs


def test_the_mean_of_single_numbers_is_an_array_that_torch_can_take(monkeypatch) -> None:
    """As the scale of a loss in float16 is, which numpy gives back as a number."""
    monkeypatch.setattr(handed_on_epochs, "gradients_in", lambda *_: {"one": {"scale": np.array(4.0, np.float32)}})
    monkeypatch.setattr(handed_on_epochs, "step_metrics_in", lambda _: {"own": 1.0})
    applier = learned().updater
    assert isinstance(applier, Applier)
    for mean in applier.means:
        assert isinstance(mean["one"]["scale"], np.ndarray)
        assert (mean["one"]["scale"].shape, mean["one"]["scale"].dtype, float(mean["one"]["scale"])) == (
            (),
            "float32",
            4.0,
        )


def learned() -> HandedOnEpochs:
    """The epochs of one batch, at their end."""
    config = A3CConfig()
    updater = UpdaterSettings("", config, spec(SPACES, config), SPACES, "cpu", 1, 0)
    settings = HandedOnEpochSettings(f"{__name__}:Applier", updater, Schedule(3, 8, target_kl=0.5), 1, 1.0)
    made = HandedOnEpochs(settings, Follower(), Rollouts({0: 0}))  # type: ignore[arg-type]
    for _ in made.learn(BatchGoal((0,), 0, 0.0), lambda: False):
        pass
    return made
