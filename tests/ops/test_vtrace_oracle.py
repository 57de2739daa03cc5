"""V-trace beside torchrl's, which runs in an environment of its own under ``build/peers/torchrl``.

The two must agree on terminated, truncated and last rows, with lambda 1. torchrl has no lambda, and no rows that are
not valid.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers.install import python_of
from penstock.ops.vtrace import Steps, vtrace
from penstock.types import Arrays
from tests.ops.test_vtrace import random_lanes

# The environment is made at the first time: minutes. Shorter: ``test_vtrace.py``, by hand and beside a plain loop.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

GAMMA = 0.97
BOUNDS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)]
"""rho-bar and c-bar."""


def rows() -> tuple[Steps, torch.Tensor, torch.Tensor]:
    """Steps, ratios and values of 16 lanes of 40 rows, all valid. Some last rows end an episode, some do not."""
    steps, log_ratio, value = random_lanes(16, 40)
    steps = steps._replace(valid=torch.ones_like(steps.valid))
    assert steps.terminated[:, -1].any()
    assert steps.truncated[:, -1].any()
    assert not (steps.terminated | steps.truncated)[:, -1].all()
    return steps, log_ratio, value


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """torchrl's advantages and targets of `rows`, ``[4, 16, 40]`` each."""
    steps, log_ratio, value = rows()
    folder = tmp_path_factory.mktemp("vtrace")
    np.savez(
        folder / "in.npz",
        log_ratio=log_ratio,
        value=value[:, :-1],
        # torchrl takes the value of what follows each row: of a truncated one, that of its last observation.
        next_value=torch.where(steps.truncated, steps.bootstrap, value[:, 1:]),
        reward=steps.reward,
        done=steps.terminated | steps.truncated,
        terminated=steps.terminated,
        gamma=GAMMA,
        bounds=BOUNDS,
    )
    script = Path(__file__).with_name("vtrace_of_torchrl.py")
    subprocess.run([python_of("torchrl"), script, folder / "in.npz", folder / "out.npz"], check=True)
    return dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("case", range(len(BOUNDS)), ids=[f"rho-bar {rho:g}, c-bar {c:g}" for rho, c in BOUNDS])
def test_targets_and_advantages_are_those_of_torchrl(theirs: Arrays, case: int) -> None:
    rho_bar, c_bar = BOUNDS[case]
    found = vtrace(*rows(), gamma=GAMMA, gae_lambda=1.0, rho_bar=rho_bar, c_bar=c_bar)
    # torchrl computes the discount in float32.
    np.testing.assert_allclose(found.target, theirs["target"][case], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.advantage, theirs["advantage"][case], rtol=1e-5, atol=1e-5)
