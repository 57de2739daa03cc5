"""An algorithm of two phases. It only counts the rows that it has seen, and the runs of each phase."""

from dataclasses import dataclass

import numpy as np
import torch

from penstock.algorithm import Algorithm, AlgorithmSpec, Gradients, Phase, Schedule
from penstock.policies import Categorical, Linear, Network, PolicyGraph
from penstock.types import ArraySpec, Discrete, Spaces
from penstock.updates.settings import UpdaterSettings

ROWS = 2 * 6 * 4
"""Two slots of 5 + 1 rows of 4 lanes."""
SPACES = Spaces((("obs", Discrete(2)),), Discrete(2))


@dataclass(frozen=True)
class Tuning:
    """This algorithm has no hyper-parameters."""


def spec(size):
    """``seen`` counts rows, ``ran`` counts the runs of both phases."""
    return AlgorithmSpec(
        topology="on_policy",
        row=(),
        policy=PolicyGraph((), Network("actor", (Linear(1, 1, 1.0),)), None, Categorical(1)),
        state=(
            ArraySpec("seen", (ROWS,), "float32"),
            ArraySpec("ran", (2,), "float32"),
            ArraySpec("gradient_steps", (), "int64"),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(ArraySpec("doubled", (), "float32"),),
        minibatch=("reward", "doubled"),
        schedule=Schedule(1, size),
    )


def settings(size):
    """The settings of an updater with minibatches of ``size`` rows."""
    return UpdaterSettings("", Tuning(), spec(size), SPACES, "cpu", threads=1, seed=0)


def build(spaces=None, config=None):
    """The rows' own rewards are their flat numbers."""

    def count(state, minibatch, noise):
        rows = minibatch["reward"].to(torch.int64)
        hits = torch.zeros_like(state["seen"]).scatter_add(0, rows, minibatch["weight"])
        return Gradients({"seen": hits}, {"doubled": minibatch["doubled"].mean()}, {})

    def add(state, gradients):
        return {"seen": state["seen"] + gradients["seen"], "ran": state["ran"] + torch.tensor([1.0, 0.0])}

    def tick(state, minibatch, noise):
        return Gradients({}, {"ran": state["ran"][0]}, {})

    def tock(state, gradients):
        return {"ran": state["ran"] + torch.tensor([0.0, 1.0])}

    return Algorithm(
        act=lambda published, inputs: {},
        targets=lambda state, rollout: {"doubled": 2.0 * rollout["reward"][:-1]},
        statistics=lambda state, rollout: {"ran": state["ran"] + np.float32(100.0) * rollout["first_lane"]},
        phases=(Phase("count", count, add), Phase("tick", tick, tock, every=2)),
    )


def init_state():
    """Nothing is counted yet."""
    return {"seen": np.zeros(ROWS, np.float32), "ran": np.zeros(2, np.float32)}


def stream():
    """Rewards are flat row numbers."""
    reward = np.arange(ROWS, dtype=np.float32).reshape(2, 6, 4)
    return {"reward": reward, "first_lane": np.array([0.0, 1.0])}
