"""The smallest loop that can train: one process, one slot, tasks of one step. Only for tests of mathematics."""

import numpy as np
import torch

from penstock.program.rollout import rollout_specs
from penstock.types import Box, Discrete, Spaces
from penstock.updates.eager import EagerUpdater
from penstock.updates.fused import FusedUpdater
from penstock.updates.settings import UpdaterSettings


class Identity:
    """The right action is the number of the state, one of four. It has reward 1."""

    spaces = Spaces((("obs", Discrete(4)),), Discrete(4))

    def observe(self, generator, lanes):
        return {"obs": generator.integers(0, 4, lanes)}

    def reward(self, obs, action):
        return (action == obs["obs"]).astype(np.float32)


class Target:
    """The right action is the point that is shown. The reward is minus the squared distance."""

    spaces = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Box((2,), "float32", (-1.0,), (1.0,)))

    def observe(self, generator, lanes):
        return {"obs": generator.uniform(-1.0, 1.0, (lanes, 2)).astype(np.float32)}

    def reward(self, obs, action):
        return -np.square(action - obs["obs"]).sum(1)


class Switch:
    """A dict observation. The right action is the number that is shown, or its opposite if the switch is on."""

    spaces = Spaces(
        (("obs.on", Discrete(2)), ("obs.shown", Box((1,), "float64", (-1.0,), (1.0,)))),
        Box((1,), "float32", (-1.0,), (1.0,)),
    )

    def observe(self, generator, lanes):
        return {"obs.on": generator.integers(0, 2, lanes), "obs.shown": generator.uniform(-1.0, 1.0, (lanes, 1))}

    def reward(self, obs, action):
        wanted = np.where(obs["obs.on"] == 1, -obs["obs.shown"][:, 0], obs["obs.shown"][:, 0])
        return -np.square(action[:, 0] - wanted)


def allocate(spaces, spec, num_steps, lanes, slots=1, *, same_step=True):
    """The arrays of a stream."""
    specs = rollout_specs(spaces, spec.row, num_steps, lanes, same_step=same_step)
    return {part.name: np.zeros((slots, *part.shape), part.dtype) for part in specs}


def noise_of(spec, generator, lanes):
    """Noise for one step of all lanes."""
    generate = generator.normal if spec.policy.noise.distribution == "normal" else generator.gumbel
    return torch.from_numpy(generate(size=(lanes, *spec.policy.noise.shape)).astype(np.float32))


def collect(task, spec, algorithm, state, arrays, generator):
    """Fill slot 0: every row is an episode of one step."""
    rows, lanes = arrays["reward"].shape[1:]
    published = {part.name: torch.from_numpy(state[part.name]) for part in spec.published()}
    for t in range(rows):
        obs = task.observe(generator, lanes)
        inputs = {name: torch.from_numpy(values) for name, values in obs.items()}
        inputs |= {"noise": noise_of(spec, generator, lanes), "explore": torch.ones(lanes)}
        outputs = {name: values.numpy() for name, values in algorithm.act(published, inputs).items()}
        for name, values in {**obs, **outputs}.items():
            arrays[name][0, t] = values
        arrays["reward"][0, t] = task.reward(obs, outputs["action"])
    arrays["terminated"][0] = True
    arrays["valid"][0, :-1] = True
    return float(arrays["reward"][0, :-1].mean())


def flat_rows(arrays, generator, size):
    """A permutation of the valid rows of slot 0 as minibatches: indices and weights ``[n, size]``."""
    lanes = arrays["valid"].shape[2]
    t, lane = np.nonzero(arrays["valid"][0])
    order = generator.permutation(t * lanes + lane)
    count = -(-len(order) // size)
    indices, weights = np.zeros(count * size, np.int64), np.zeros(count * size, np.float32)
    indices[: len(order)], weights[: len(order)] = order, 1.0
    return indices.reshape(count, size), weights.reshape(count, size)


def train(task, module_spec, module_learn, config, updates, lanes=8, fused=None):
    """The mean reward of each batch, and the metrics of the last batch. The update is eager, or that of ``fused``."""
    spec = module_spec.spec(task.spaces, config)
    algorithm = module_learn.build(task.spaces, config)
    arrays = allocate(task.spaces, spec, config.num_steps, lanes)
    if fused is None:
        updater = EagerUpdater(
            algorithm, UpdaterSettings("", config, spec, task.spaces, "cpu", threads=1, seed=0), arrays
        )
    else:
        updater = FusedUpdater(fused.build(task.spaces, config), spec, arrays, threads=1)
    updater.load(module_spec.init_state(task.spaces, config, 0))
    generator = np.random.default_rng(0)
    rewards, metrics = [], {}
    for update in range(updates):
        rewards.append(collect(task, spec, algorithm, updater.state(), arrays, generator))
        updater.begin([0], update / updates)
        updater.merge([0])
        for _ in range(spec.schedule.epochs):
            updater.minibatches(*flat_rows(arrays, generator, spec.schedule.mini_batch_size))
        updater.finish()
        metrics = updater.metrics()
    return rewards, metrics
