"""An algorithm over a table that can be computed by hand: a linear critic, a delayed actor, a copied target.

- Critic: ``1/2 mean((w . obs + noise - reward)^2)``, plain gradient steps. A row's error is also its priority.
- Actor: moves every second step towards the critic that the phase before left.
- Target: a copy every second step, without a gradient.
"""

from dataclasses import dataclass

import numpy as np
import torch

from penstock.algorithm import Algorithm, AlgorithmSpec, Gradients, Phase, ReplaySchedule, TableSpec
from penstock.policies import Categorical, Linear, Network, PolicyGraph
from penstock.types import ArraySpec, Box, NoiseSpec, Spaces
from penstock.updates.settings import UpdaterSettings

SIZE = 4
"""Numbers of an observation."""
NOISE = NoiseSpec("normal", ())
SPACES = Spaces((("obs", Box((SIZE,), "float32", (-1.0,), (1.0,))),), Box((1,), "float32", (-1.0,), (1.0,)))


@dataclass(frozen=True)
class Config:
    """The hyper-parameters."""

    lr: float = 0.1
    noise: float = 0.5


def spec(rows):
    """The spec, with minibatches of this many rows."""
    return AlgorithmSpec(
        topology="off_policy",
        row=(),
        policy=PolicyGraph((), Network("actor", (Linear(SIZE, 1, 1.0),)), None, Categorical(1)),
        state=(
            *(ArraySpec(name, (SIZE,), "float32") for name in ("actor", "critic", "target")),
            ArraySpec("gradient_steps", (), "int64"),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(),
        minibatch=("obs", "reward"),
        schedule=ReplaySchedule(rows, 1.0, rows, 1.0),
        table=TableSpec(1000, 0.99),
    )


def settings(rows, **changed):
    """The settings of an updater."""
    values = {"config": Config(), "device": "cpu", "threads": 1, "seed": 3, **changed}
    return UpdaterSettings(learn="tests.updates.tracking:build", spec=spec(rows), spaces=SPACES, **values)


def build(spaces, config):
    """The algorithm as pure functions."""

    def share(minibatch):
        return minibatch["weight"] / minibatch["weight"].sum()

    def critic(state, minibatch, noise):
        error = minibatch["obs"] @ state["critic"] + config.noise * noise["sample"] - minibatch["reward"]
        gradient = (share(minibatch) * error) @ minibatch["obs"]
        loss = 0.5 * torch.dot(share(minibatch), error * error)
        return Gradients({"critic": gradient}, {"critic_loss": loss}, {"priority": error.abs()})

    def step_critic(state, gradients):
        return {"critic": state["critic"] - config.lr * gradients["critic"]}

    def actor(state, minibatch, noise):
        error = minibatch["obs"] @ (state["actor"] - state["critic"])
        return Gradients({"actor": (share(minibatch) * error) @ minibatch["obs"]}, {"actor_loss": error.mean()}, {})

    def step_actor(state, gradients):
        return {"actor": state["actor"] - config.lr * (1.0 - state["progress"]).float() * gradients["actor"]}

    def nothing(state, minibatch, noise):
        return Gradients({}, {}, {})

    def copy(state, gradients):
        return {"target": state["critic"].clone()}

    return Algorithm(
        act=lambda published, inputs: {},
        targets=lambda state, rollout: {},
        statistics=lambda state, rollout: {},
        phases=(
            Phase("critic", critic, step_critic, noise=(("sample", NOISE),)),
            Phase("actor", actor, step_actor, every=2),
            Phase("target", nothing, copy, every=2),
        ),
    )


def init_state(seed):
    """Small numbers."""
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=SIZE).astype(np.float32) for name in ("actor", "critic", "target")}


def minibatch(rows, seed=0):
    """Rows whose last one is padding."""
    generator = np.random.default_rng(seed)
    weight = np.ones(rows, np.float32)
    weight[-1] = 0.0
    return {
        "obs": generator.normal(size=(rows, SIZE)).astype(np.float32),
        "reward": generator.normal(size=rows).astype(np.float32),
        "weight": weight,
    }
