"""The V-trace of torchrl, on rows from a file: ``python vtrace_of_torchrl.py IN.npz OUT.npz``.

It runs in torchrl's own environment and imports nothing of penstock. ``IN`` has the arrays ``log_ratio``, ``value``,
``next_value``, ``reward``, ``done`` and ``terminated``, ``[m, T]`` each, ``gamma``, and ``bounds`` ``[n, 2]``: rho-bar
and c-bar of each of n results. ``OUT`` has ``advantage`` and ``target``, ``[n, m, T]`` each.
"""

import sys

import numpy as np
import torch
from torchrl.objectives.value.functional import vtrace_advantage_estimate

given = {name: torch.from_numpy(values) for name, values in np.load(sys.argv[1]).items()}
# Time is torchrl's last axis but one. The policy that acted has probability 1, so that ratios are as given.
rows = {name: values[..., None] for name, values in given.items() if values.ndim == 2 and name != "bounds"}
found = [
    vtrace_advantage_estimate(
        float(given["gamma"]),
        rows["log_ratio"],
        torch.zeros_like(rows["log_ratio"]),
        rows["value"],
        rows["next_value"],
        rows["reward"],
        rows["done"],
        rows["terminated"],
        rho_thresh=rho_bar,
        c_thresh=c_bar,
    )
    for rho_bar, c_bar in given["bounds"].tolist()
]
advantages, targets = (np.stack([part[..., 0].numpy() for part in parts]) for parts in zip(*found, strict=True))
np.savez(sys.argv[2], advantage=advantages, target=targets)
