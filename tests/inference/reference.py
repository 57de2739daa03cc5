"""``act`` of a policy graph in float64 numpy, by the docstrings of ``penstock.network``; and random graphs."""

import math

import numpy as np

from penstock.network import (
    Activation,
    Categorical,
    Conv2d,
    Encoding,
    Flatten,
    Gaussian,
    Linear,
    Network,
    PolicyGraph,
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
    """The head's parameters ``[n, size]`` and the value ``[n]``."""
    x = encode(graph, published, obs)
    outputs = run(graph.actor, published["actor"], x)
    if graph.critic is None:
        head, value = outputs[:, :-1], outputs[:, -1]
    else:
        head, value = outputs, run(graph.critic, published["critic"], x)[:, 0]
    if graph.normalize_value:
        value = value * np.sqrt(published["value_var"] + 1e-8) + published["value_mean"]
    return head, value


def act(graph, published, obs, noise, explore):
    """``{"action", "log_prob", "value"}``."""
    head, value = head_and_value(graph, published, obs)
    z = explore[:, None].astype(np.float64) * noise
    if isinstance(graph.head, Categorical):
        action = np.argmax(head + z, axis=1)
        shifted = head - head.max(axis=1, keepdims=True)
        log_prob = shifted[np.arange(len(head)), action] - np.log(np.exp(shifted).sum(axis=1))
    else:
        log_std = parts_of(graph.actor, published["actor"])["log_std"]
        action = head + np.exp(log_std) * z
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
    size = head.n if isinstance(head, Categorical) else head.size
    free = () if isinstance(head, Categorical) else (("log_std", size, -0.5),)
    features = sum(part.size for part in encoding)
    actor = mlp("actor", features, hidden, size + 1 if shared else size, activation, free)
    critic = None if shared else mlp("critic", features, hidden, 1, activation)
    return PolicyGraph(encoding, actor, critic, head, normalize_obs, normalize_value)


def nature(head, side=36, channels=2, *, channels_first=False, normalize_value=False):
    """Three convolutions and a shared trunk, small."""
    size = head.n if isinstance(head, Categorical) else head.size
    free = () if isinstance(head, Categorical) else (("log_std", size, -0.5),)
    layers, inputs = [], channels
    shapes = ((8, 8, 4), (16, 4, 2), (16, 3, 1))
    edge = side
    for filters, kernel, stride in shapes:
        layers += [Conv2d(inputs, filters, kernel, stride, 1.4), Activation("relu")]
        inputs, edge = filters, (edge - kernel) // stride + 1
    layers += [Flatten(), Linear(inputs * edge * edge, 32, 1.4), Activation("relu"), Linear(32, size + 1, 1.0)]
    encoding = (Encoding("obs", "image", side * side * channels, 0, channels_first),)
    return PolicyGraph(encoding, Network("actor", tuple(layers), free), None, head, False, normalize_value)


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
    if isinstance(graph.head, Gaussian):
        return generator.normal(size=(n, graph.head.size)).astype(np.float32)
    return generator.gumbel(size=(n, graph.head.n)).astype(np.float32)


def outputs_for(graph, n):
    action = (
        np.zeros(n, np.int64) if isinstance(graph.head, Categorical) else np.zeros((n, graph.head.size), np.float32)
    )
    return {"action": action, "log_prob": np.zeros(n, np.float32), "value": np.zeros(n, np.float32)}


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

IMAGES = {
    "image, channels last": nature(Categorical(4)),
    "image, channels first": nature(Gaussian(2), channels_first=True, normalize_value=True),
}
