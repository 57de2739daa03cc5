"""The V-trace of torchrl on random rollouts, as a file that `tests/ops/test_vtrace_oracle.py` compares with.

    "$(python -m benchmarks.peers.install torchrl)" benchmarks/peers/torchrl_vtrace.py tests/ops/vtrace_of_torchrl.npz

It runs in torchrl's own environment and imports nothing of penstock. The file has the rows, ``[16, 40]`` each
(``value`` ``[16, 41]``), ``gamma``, ``bounds`` ``[4, 2]`` (rho-bar and c-bar of each result), and torchrl's
``advantage`` and ``target``, ``[4, 16, 40]`` each.
"""

import sys

import numpy as np
import torch
from torchrl.objectives.value.functional import vtrace_advantage_estimate

LANES, STEPS, GAMMA = 16, 40, 0.97
BOUNDS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)]

numbers = np.random.default_rng(0)
shape = (LANES, STEPS)
terminated = numbers.random(shape) < 0.1
truncated = (numbers.random(shape) < 0.1) & ~terminated
reward, bootstrap, log_ratio = numbers.normal(size=(3, *shape))
value = numbers.normal(size=(LANES, STEPS + 1))
rows = {
    "log_ratio": log_ratio,
    "acted": np.zeros(shape),  # The policy that acted has probability 1, so that ratios are as given.
    "value": value[:, :-1],
    # torchrl takes the value of what follows each row: of a truncated one, that of its last observation.
    "next_value": np.where(truncated, bootstrap, value[:, 1:]),
    "reward": reward,
    "done": terminated | truncated,
    "terminated": terminated,
}
# Time is torchrl's last axis but one.
given = [torch.from_numpy(values[..., None]) for values in rows.values()]
found = [vtrace_advantage_estimate(GAMMA, *given, rho_thresh=rho, c_thresh=c) for rho, c in BOUNDS]
advantages, targets = (np.stack([part[..., 0].numpy() for part in parts]) for parts in zip(*found, strict=True))
np.savez_compressed(
    sys.argv[1],
    reward=reward,
    terminated=terminated,
    truncated=truncated,
    bootstrap=bootstrap,
    log_ratio=log_ratio,
    value=value,
    gamma=GAMMA,
    bounds=BOUNDS,
    advantage=advantages.astype(np.float32),
    target=targets.astype(np.float32),
)
