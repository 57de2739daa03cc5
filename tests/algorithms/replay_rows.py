"""States and minibatches for tests of algorithms that learn from a table."""

import numpy as np
import torch

from penstock.types import Box, Discrete, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
CONTINUOUS = Spaces((("obs", VECTOR),), Box((2,), "float32", (-2.0, -1.0), (2.0, 1.0)))
MIXED = Spaces((("obs.at", Discrete(3)), ("obs.of", VECTOR)), Box((2,), "float32", (-2.0, -1.0), (2.0, 1.0)))
DISCRETE = Spaces((("obs", VECTOR),), Discrete(3))
UNBOUNDED = Spaces((("obs", VECTOR),), Box((2,), "float32", (-np.inf,), (np.inf,)))


def random(generator, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def state_of(first, dtype=torch.float64, spread=0.2):
    """The first state with float32 arrays in ``dtype``, and every network and target moved away from its beginning."""
    generator = torch.Generator().manual_seed(1)
    found = {}
    for name, values in first.items():
        tensor = torch.from_numpy(np.asarray(values))
        found[name] = tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
        if tensor.dtype == torch.float32 and not name.startswith(("adam", "rmsprop", "sgd")):
            found[name] = found[name] + spread * random(generator, *tensor.shape, dtype=dtype)
    return found


def minibatch_of(spaces, spec, size, dtype=torch.float64, seed=3):
    """Rows as a table gives them. Some are terminated, so no return follows them."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for part in spec.sampled(spaces):
        if part.dtype == "int64":
            high = spaces.action.n if part.name == "action" else 3
            found[part.name] = torch.randint(0, high, (size, *part.shape), generator=generator)
        elif part.dtype == "bool":
            found[part.name] = torch.zeros((size, *part.shape), dtype=torch.bool)
        else:
            found[part.name] = random(generator, size, *part.shape, dtype=dtype)
    if isinstance(spaces.action, Box):
        found["action"] = found["action"].clamp(-1.0, 1.0)
    if spec.unit == "row":
        found["discount"] = torch.where(torch.arange(size) % 4 == 0, 0.0, 0.9).to(dtype)
    if "importance" in found:
        found["importance"] = 0.5 + 0.5 * torch.rand(size, generator=generator, dtype=torch.float64).to(dtype)
    if spec.unit == "row":
        found["weight"] = torch.ones(size, dtype=dtype)
        return found
    # Sequences: each fourth one ends in a terminated row, each third one begins with an episode.
    found["weight"] = torch.ones_like(found["weight"])
    found["weight"][:, : spec.table.sequences.burn_in] = 0.0
    found["valid"][:, :-1], found["valid"][:, -1] = True, False
    found["terminated"][:], found["first"][:] = False, False
    found["terminated"][::4, -2], found["first"][::3, 0] = True, True
    return found


def noise_of(phase, size, dtype=torch.float64, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return {name: random(generator, size, *part.shape, dtype=dtype) for name, part in phase.noise}


def constant(network, *outputs):
    """The flat vector of an MLP that gives these outputs for any input."""
    flat = torch.zeros(network.num_parameters, dtype=torch.float64)
    flat[-len(outputs) :] = torch.tensor(outputs, dtype=torch.float64)
    return flat


def slope(loss, state, name, gradient, seed=7):
    """The derivative of ``loss(state)`` along a random direction of ``state[name]``, by differences and by gradient."""
    direction = random(torch.Generator().manual_seed(seed), *state[name].shape)
    step = 1e-6
    up, down = (loss({**state, name: state[name] + sign * step * direction}) for sign in (1.0, -1.0))
    return float((up - down) / (2.0 * step)), float((gradient * direction).sum())
