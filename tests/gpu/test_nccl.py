"""A process group of one learner over NCCL, which takes each GPU once: more members need more GPUs."""

import numpy as np
import pytest

from penstock.gradient_exchange.process_group import rendezvous
from penstock.gradient_exchange.process_group.nccl import OnGpus
from penstock.gradient_exchange.process_group.rendezvous import connected
from penstock.gradient_exchange.process_group.transport import gpu_of
from tests.gradient_exchange.test_process_group import Group, entered, gradient, state

pytestmark = pytest.mark.gpu


def test_a_learner_on_a_gpu_of_its_own_meets_by_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_of("cuda:0")
    groups = []

    def noted(*members: object, **where: str) -> object:
        groups.append(connected(*members, **where))
        return groups[-1]

    monkeypatch.setattr(rendezvous, "connected", noted)
    team = Group(1, device="cuda:0").member(0)
    own = entered(team, state(0))
    assert isinstance(groups[0], OnGpus)
    np.testing.assert_array_equal(own["critic"], state(0)["critic"])
    mean = team("loss", gradient(0), 1.0)
    np.testing.assert_allclose(mean["critic"], gradient(0)["critic"], rtol=1e-6)
