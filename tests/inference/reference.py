"""``act`` of a policy graph in float64 numpy, by the docstrings of ``penstock.policies``; and random graphs."""

import math

import numpy as np

from penstock.policies import (
    Activation,
    Categorical,
    Conv2d,
    Deterministic,
    Dueling,
    Encoding,
    EpsilonGreedy,
    Flatten,
    Gaussian,
    Linear,
    Network,
    PolicyGraph,
    SquashedGaussian,
)

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}


def parts_of(network, flat):
    return {
        part.name: flat[part.offset : part.offset + math.prod(part.shape)].reshape(part.shape).astype(np.float64)
        for part in network.slices()
    }


def convolve(x, weight, bias, stride):
    out, _, kernel, _ = weight.shape
    height, width = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    y = np.zeros((len(x), out, height, width))
    for row in range(height):
        for column in range(width):
            patch = x[:, :, row * stride : row * stride + kernel, column * stride : column * stride + kernel]
            y[:, :, row, column] = np.tensordot(patch, weight, ([1, 2, 3], [1, 2, 3])) + bias
    return y


def run(network, flat, x):
    parts = parts_of(network, flat)
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Linear):
            x = x @ parts[f"{index}.weight"] + parts[f"{index}.bias"]
        elif isinstance(layer, Conv2d):
            x = convolve(x, parts[f"{index}.weight"], parts[f"{index}.bias"], layer.stride)
        elif isinstance(layer, Flatten):
            x = x.reshape(len(x), -1)
        elif isinstance(layer, Dueling):
            parts_of_q = x.reshape(len(x), 1 + layer.n, layer.atoms)
            advantage = parts_of_q[:, 1:]
            x = (parts_of_q[:, :1] + advantage - advantage.mean(axis=1, keepdims=True)).reshape(len(x), -1)
        else:
            x = ACTIVATIONS[layer.name](x)
    return x


def encode(graph, published, obs):
    columns = []
    for part in graph.encoding:
        value = np.asarray(obs[part.field])
        if part.kind == "image":
            pixels = value.astype(np.float64) / 255.0
            return pixels if part.channels_first else pixels.transpose(0, 3, 1, 2)
        if part.kind == "one_hot":
            columns.append((value[:, None] == part.start + np.arange(part.size)).astype(np.float64))
        else:
            columns.append(value.reshape(len(value), -1).astype(np.float64))
    x = np.concatenate(columns, axis=1)
    if graph.normalize_obs:
        x = np.clip((x - published["obs_mean"]) / np.sqrt(published["obs_var"] + 1e-8), -10.0, 10.0)
    return x


def head_and_value(graph, published, obs):
    """The head's outputs ``[n, k]`` and the value ``[n]``, or ``None``."""
    x = encode(graph, published, obs)
    outputs = run(graph.actor, published["actor"], x)
    if not graph.gives_value:
        return outputs, None
    if graph.critic is None:
        head, value = outputs[:, :-1], outputs[:, -1]
    else:
        head, value = outputs, run(graph.critic, published["critic"], x)[:, 0]
    if graph.normalize_value:
        value = value * np.sqrt(published["value_var"] + 1e-8) + published["value_mean"]
    return head, value


def action_values(head, outputs):
    """``q`` ``[m, n]``."""
    if head.atoms == 1:
        return outputs
    logits = outputs.reshape(len(outputs), head.n, head.atoms)
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    support = np.linspace(head.low, head.high, head.atoms)
    return (weights * support).sum(axis=2) / weights.sum(axis=2)


def act(graph, published, obs, noise, explore):
    """What ``graph.outputs`` names."""
    head, (outputs, value) = graph.head, head_and_value(graph, published, obs)
    if isinstance(head, EpsilonGreedy):
        q = action_values(head, outputs)
        # In float32, as the head says: a product may round up to the next action.
        anything = np.minimum((noise[:, 1] * np.float32(head.n)).astype(np.int64), head.n - 1)
        return {"action": np.where(noise[:, 0] < explore, anything, q.argmax(axis=1)), "q": q}
    z = explore[:, None].astype(np.float64) * noise
    if isinstance(head, SquashedGaussian):
        mean, log_std = outputs[:, : head.size], outputs[:, head.size :]
        return {"action": np.tanh(mean + z * np.exp(np.clip(log_std, head.log_std_min, head.log_std_max)))}
    if isinstance(head, Deterministic):
        return {"action": np.clip(np.tanh(outputs) + z, -1.0, 1.0)}
    if isinstance(head, Categorical):
        action = np.argmax(outputs + z, axis=1)
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        log_prob = shifted[np.arange(len(outputs)), action] - np.log(np.exp(shifted).sum(axis=1))
    else:
        log_std = parts_of(graph.actor, published["actor"])["log_std"]
        action = outputs + np.exp(log_std) * z
        log_prob = (-0.5 * z**2 - log_std - 0.5 * math.log(2.0 * math.pi)).sum(axis=1)
    return {"action": action, "log_prob": log_prob, "value": value}


def mlp(name, inputs, hidden, outputs, activation="tanh", free=()):
    layers = []
    for width in hidden:
        layers += [Linear(inputs, width, 1.4), Activation(activation)]
        inputs = width
    return Network(name, (*layers, Linear(inputs, outputs, 1.0)), free)


def actor_critic(
    encoding, head, hidden=(64, 64), activation="tanh", *, shared=False, normalize_obs=False, normalize_value=False
):
    size = head.outputs
    free = () if isinstance(head, Categorical) else (("log_std", size, -0.5),)
    features = sum(part.size for part in encoding)
    actor = mlp("actor", features, hidden, size + 1 if shared else size, activation, free)
    critic = None if shared else mlp("critic", features, hidden, 1, activation)
    return PolicyGraph(encoding, actor, critic, head, normalize_obs, normalize_value)


def without_value(encoding, head, hidden=(64, 64), activation="relu", *, dueling=None, normalize_obs=False):
    """An actor alone, which may end in a dueling layer."""
    outputs = head.outputs if dueling is None else (1 + dueling.n) * dueling.atoms
    actor = mlp("actor", sum(part.size for part in encoding), hidden, outputs, activation)
    if dueling is not None:
        actor = Network("actor", (*actor.layers, dueling))
    return PolicyGraph(encoding, actor, None, head, normalize_obs, gives_value=False)


def nature(head, side=36, channels=2, *, channels_first=False, normalize_value=False, dueling=None):
    """Three convolutions and a shared trunk, small."""
    gives_value = isinstance(head, Gaussian | Categorical)
    size = head.outputs + gives_value if dueling is None else (1 + dueling.n) * dueling.atoms
    free = (("log_std", head.size, -0.5),) if isinstance(head, Gaussian) else ()
    layers, inputs = [], channels
    shapes = ((8, 8, 4), (16, 4, 2), (16, 3, 1))
    edge = side
    for filters, kernel, stride in shapes:
        layers += [Conv2d(inputs, filters, kernel, stride, 1.4), Activation("relu")]
        inputs, edge = filters, (edge - kernel) // stride + 1
    layers += [Flatten(), Linear(inputs * edge * edge, 32, 1.4), Activation("relu"), Linear(32, size, 1.0)]
    layers += [] if dueling is None else [dueling]
    encoding = (Encoding("obs", "image", side * side * channels, 0, channels_first),)
    actor = Network("actor", tuple(layers), free)
    return PolicyGraph(encoding, actor, None, head, False, normalize_value, gives_value)


def record(graph, generator):
    """A published record with nothing at its neutral value."""
    published = {network.name: network.initial(generator) for network in graph.networks}
    for values in published.values():
        values[...] += generator.normal(0.0, 0.05, values.shape)
    if graph.normalize_obs:
        published["obs_mean"] = generator.normal(size=graph.features)
        published["obs_var"] = generator.uniform(0.2, 3.0, graph.features)
        published["obs_count"] = np.array(100)
    if graph.normalize_value:
        published["value_mean"] = np.array(generator.normal())
        published["value_var"] = np.array(generator.uniform(0.2, 3.0))
        published["value_count"] = np.array(100)
    return published


def observations(graph, generator, n):
    """Random rows for every field; a flat field of an even size has two dimensions."""
    obs = {}
    for part in graph.encoding:
        if part.kind == "one_hot":
            obs[part.field] = generator.integers(part.start, part.start + part.size, n)
        elif part.kind == "image":
            side = 36
            channels = part.size // side**2
            shape = (n, channels, side, side) if part.channels_first else (n, side, side, channels)
            obs[part.field] = generator.integers(0, 256, shape).astype(np.uint8)
        else:
            shape = (n, part.size // 2, 2) if part.size % 2 == 0 else (n, part.size)
            obs[part.field] = generator.normal(size=shape).astype(np.float32)
    return obs


def noise_of(graph, generator, n):
    spec = graph.head.noise
    return getattr(generator, spec.distribution)(size=(n, *spec.shape)).astype(np.float32)


def outputs_for(graph, n):
    discrete = isinstance(graph.head, Categorical | EpsilonGreedy)
    known = {
        "action": np.zeros(n, np.int64) if discrete else np.zeros((n, graph.head.size), np.float32),
        "log_prob": np.zeros(n, np.float32),
        "value": np.zeros(n, np.float32),
        "q": np.zeros((n, graph.head.n if discrete else 0), np.float32),
    }
    return {name: known[name] for name in graph.outputs}


FLAT = (Encoding("obs", "flat", 3),)
DISCRETE = (Encoding("obs", "one_hot", 5, 2),)
DICT = (Encoding("obs.a", "flat", 4), Encoding("obs.b", "one_hot", 3, -1), Encoding("obs.c", "flat", 1))

GRAPHS = {
    "gaussian": actor_critic(FLAT, Gaussian(1)),
    "gaussian, six actions, normalised": actor_critic(
        DICT, Gaussian(6), (33, 17), normalize_obs=True, normalize_value=True
    ),
    "categorical": actor_critic(FLAT, Categorical(2)),
    "categorical, discrete observation": actor_critic(DISCRETE, Categorical(7), (20,)),
    "categorical, shared trunk, normalised": actor_critic(
        DICT, Categorical(5), (24, 48, 8), shared=True, normalize_obs=True, normalize_value=True
    ),
    "gaussian, shared trunk": actor_critic(FLAT, Gaussian(2), shared=True),
    "no hidden layer": actor_critic(FLAT, Gaussian(3), ()),
    **{f"activation {name}": actor_critic(FLAT, Categorical(3), (32, 16), name) for name in ACTIVATIONS},
}

WITHOUT_VALUE = {
    "squashed": without_value(FLAT, SquashedGaussian(1)),
    "squashed, six actions, normalised": without_value(
        DICT, SquashedGaussian(6, -1.0, 0.1), (33, 17), "tanh", normalize_obs=True
    ),
    "deterministic": without_value(FLAT, Deterministic(1)),
    "deterministic, six actions": without_value(DICT, Deterministic(6), (33, 17)),
    "values": without_value(FLAT, EpsilonGreedy(2)),
    "values, discrete observation": without_value(DISCRETE, EpsilonGreedy(7), (20,)),
    "values, dueling": without_value(DICT, EpsilonGreedy(5), (33,), dueling=Dueling(5)),
    "values, atoms": without_value(FLAT, EpsilonGreedy(3, 11, -2.0, 4.0)),
    "values, dueling, atoms": without_value(FLAT, EpsilonGreedy(6, 51, -10.0, 10.0), dueling=Dueling(6, 51)),
    "values, no hidden layer": without_value(FLAT, EpsilonGreedy(4), ()),
}

GRAPHS |= WITHOUT_VALUE

IMAGES = {
    "image, channels last": nature(Categorical(4)),
    "image, channels first": nature(Gaussian(2), channels_first=True, normalize_value=True),
    "image, squashed": nature(SquashedGaussian(2)),
    "image, dueling atoms": nature(EpsilonGreedy(4, 5, -1.0, 1.0), dueling=Dueling(4, 5)),
}
