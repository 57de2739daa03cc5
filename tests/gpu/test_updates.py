"""Updates on a GPU against those on the CPU: from the same state, by the same rows."""

from collections.abc import Mapping

import pytest
import torch

from tests.algorithms.made_up_steps import apart, learned, name_of
from tests.algorithms.runs import RUNS
from tests.planned import prepared

pytestmark = pytest.mark.gpu
FAR = 0.02
"""How far a change of the state may be from that on the CPU, as a share of its length."""
FAR_ROUNDED = 0.3
"""The same where layers compute in another number type, and optimizers follow the sign of small gradients."""


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own convolutions instead of cuDNN's.

    cuDNN's round by themselves to 10 bits. If they must not, they give weights whose gradient is 0 on the CPU one of
    1e-9 or so, and Adam moves these by whole steps.
    """
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)


@pytest.mark.parametrize("settings", RUNS, ids=name_of)
@pytest.mark.parametrize("backend", ["eager", "compiled"])
def test_steps_on_a_gpu_are_those_of_the_eager_update_on_the_cpu(backend: str, settings: Mapping[str, object]) -> None:
    """On the CPU they are float32."""
    run, on_cpu = prepared(**settings, device="cuda"), prepared(**{**settings, "precision": "float32"})
    far = FAR_ROUNDED if "precision" in settings else FAR
    found = apart(on_cpu, learned(run, backend, "cuda"), learned(on_cpu, "eager", "cpu"))
    assert {name: share for name, share in found.items() if share > far} == {}
