"""V-trace beside torchrl's, whose answers are in ``vtrace_of_torchrl.npz``. This makes that file anew:

    "$(python -m benchmarks.peers.install torchrl)" benchmarks/peers/torchrl_vtrace.py tests/ops/vtrace_of_torchrl.npz

The two must agree on terminated, truncated and last rows, with lambda 1. torchrl has no lambda, and no rows that are
not valid.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.ops.vtrace import Steps, vtrace

THEIRS = dict(np.load(Path(__file__).with_name("vtrace_of_torchrl.npz")))
BOUNDS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)]
"""rho-bar and c-bar."""


def steps() -> Steps:
    """Steps of 16 lanes of 40 rows, all valid. Some last rows end an episode, some do not."""
    names = ("reward", "terminated", "truncated", "bootstrap")
    found = Steps(*(torch.from_numpy(THEIRS[name]) for name in names), torch.ones(16, 40, dtype=torch.float64))
    assert found.terminated[:, -1].any()
    assert found.truncated[:, -1].any()
    assert not (found.terminated | found.truncated)[:, -1].all()
    return found


@pytest.mark.parametrize("case", range(len(BOUNDS)), ids=[f"rho-bar {rho:g}, c-bar {c:g}" for rho, c in BOUNDS])
def test_targets_and_advantages_are_those_of_torchrl(case: int) -> None:
    rho_bar, c_bar = BOUNDS[case]
    assert THEIRS["bounds"][case].tolist() == [rho_bar, c_bar]
    log_ratio, value = (torch.from_numpy(THEIRS[name]) for name in ("log_ratio", "value"))
    gamma = float(THEIRS["gamma"])
    found = vtrace(steps(), log_ratio, value, gamma=gamma, gae_lambda=1.0, rho_bar=rho_bar, c_bar=c_bar)
    # torchrl computes the discount in float32.
    np.testing.assert_allclose(found.target, THEIRS["target"][case], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.advantage, THEIRS["advantage"][case], rtol=1e-5, atol=1e-5)
