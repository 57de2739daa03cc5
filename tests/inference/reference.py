"""``act`` of a policy graph in float64 numpy, by the docstrings of ``penstock.policies``; and random graphs."""

import math

import numpy as np

from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Attention,
    Branch,
    Categorical,
    Composed,
    Conv2d,
    Deterministic,
    Dueling,
    Embedding,
    Encoding,
    EpsilonGreedy,
    Flatten,
    Gaussian,
    LayerNorm,
    Linear,
    MaxPool,
    MeanPool,
    Network,
    PolicyGraph,
    Residual,
    SquashedGaussian,
    stacks,
)
from penstock.policies.stacks import Stack, hidden, resnet, transformer

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


def lstm(weight, recurrent, bias, x, h, c):
    """The next ``h`` and ``c``."""
    i, f, g, o = np.split(x @ weight + h @ recurrent + bias, 4, axis=1)
    sigmoid = ACTIVATIONS["sigmoid"]
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(weight, recurrent, bias, recurrent_bias, x, h):
    """The next ``h``."""
    x_r, x_z, x_n = np.split(x @ weight + bias, 3, axis=1)
    h_r, h_z, h_n = np.split(h @ recurrent + recurrent_bias, 3, axis=1)
    r, z = (ACTIVATIONS["sigmoid"](gate) for gate in (x_r + h_r, x_z + h_z))
    n = np.tanh(x_n + r * h_n)
    return (1.0 - z) * n + z * h


def run(network, flat, features, carry=None):
    """The network's outputs; ``features`` are those of ``encode``.

    ``carry`` holds the arrays of recurrent layers by name; each becomes the next one.
    """
    parts = parts_of(network, flat)
    if not network.branches:
        (x,) = features.values()
        return through(network.layers, parts, "", x, carry=carry, name=network.name)
    outputs = []
    for branch in network.branches:
        values = [features[name] for name in branch.fields]
        x = values[0] if len(values) == 1 else np.concatenate(values, axis=1)
        mask = features[branch.mask] if branch.mask else (x != 0.0).any(axis=-1) if x.ndim == 3 else None
        outputs.append(through(branch.layers, parts, f"{branch.name}.", x, mask))
    return through(network.layers, parts, "", np.concatenate(outputs, axis=1), carry=carry, name=network.name)


def through(layers, parts, prefix, x, mask=None, carry=None, name=""):
    for index, layer in enumerate(layers):
        inside = f"{prefix}{index}."
        if isinstance(layer, Residual):
            x = x + through(layer.layers, parts, inside, x, mask)
        elif isinstance(layer, LSTM):
            h, c = (f"carry.{name}.{index}.{part}" for part in "hc")
            own = [parts[inside + part] for part in ("weight", "recurrent", "bias")]
            x, carry[c] = lstm(*own, x, carry[h], carry[c])
            carry[h] = x
        elif isinstance(layer, GRU):
            h = f"carry.{name}.{index}.h"
            own = [parts[inside + part] for part in ("weight", "recurrent", "bias", "recurrent_bias")]
            x = carry[h] = gru(*own, x, carry[h])
        else:
            x = after(layer, {name: parts[inside + name] for name in ARRAYS if inside + name in parts}, x, mask)
    return x


ARRAYS = ("weight", "bias", "output", "output_bias")


def after(layer, own, x, mask):
    if isinstance(layer, Linear):
        return x @ own["weight"] + own["bias"]
    if isinstance(layer, Conv2d):
        padded = np.pad(x, ((0, 0), (0, 0), (layer.padding,) * 2, (layer.padding,) * 2))
        return convolve(padded, own["weight"], own["bias"], layer.stride)
    if isinstance(layer, Flatten):
        return x.reshape(len(x), -1)
    if isinstance(layer, Dueling):
        parts_of_q = x.reshape(len(x), 1 + layer.n, layer.atoms)
        advantage = parts_of_q[:, 1:]
        return (parts_of_q[:, :1] + advantage - advantage.mean(axis=1, keepdims=True)).reshape(len(x), -1)
    if isinstance(layer, MaxPool):
        return max_pool(layer, x)
    if isinstance(layer, LayerNorm):
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * own["weight"] + own["bias"]
    if isinstance(layer, Embedding):
        return own["weight"][x]
    if isinstance(layer, Attention):
        return attend(layer, own, x, mask)
    if isinstance(layer, MeanPool):
        return np.array(
            [rows[seen].mean(axis=0) if seen.any() else 0.0 * rows[0] for rows, seen in zip(x, mask, strict=True)]
        )
    return ACTIVATIONS[layer.name](x)


def max_pool(layer, x):
    padded = np.pad(x, ((0, 0), (0, 0), (layer.padding,) * 2, (layer.padding,) * 2), constant_values=-np.inf)
    height, width = ((side - layer.kernel) // layer.stride + 1 for side in padded.shape[2:])
    y = np.zeros((*x.shape[:2], height, width))
    for row in range(height):
        for column in range(width):
            top, left = row * layer.stride, column * layer.stride
            y[:, :, row, column] = padded[:, :, top : top + layer.kernel, left : left + layer.kernel].max(axis=(2, 3))
    return y


def attend(layer, own, x, mask):
    """Entity by entity and head by head."""
    size = layer.width // layer.heads
    q, k, v = np.split(x @ own["weight"] + own["bias"], 3, axis=2)
    y = np.zeros_like(x)
    for n in range(len(x)):
        seen = mask[n] if mask[n].any() else np.ones_like(mask[n])
        for head in range(layer.heads):
            own_columns = slice(head * size, (head + 1) * size)
            for entity in range(x.shape[1]):
                scores = k[n, seen, own_columns] @ q[n, entity, own_columns] / math.sqrt(size)
                share = np.exp(scores - scores.max())
                y[n, entity, own_columns] = share / share.sum() @ v[n, seen, own_columns]
    return y @ own["output"] + own["output_bias"]


def encode(graph, published, obs):
    """Field -> its input for the networks; all vector fields under "vector" if no network has branches."""
    found = {}
    vectors = [part for part in graph.encoding if part.is_vector]
    columns = [column(part, np.asarray(obs[part.field])) for part in vectors]
    if vectors:
        x = np.concatenate(columns, axis=1)
        if graph.normalize_obs:
            x = np.clip((x - published["obs_mean"]) / np.sqrt(published["obs_var"] + 1e-8), -10.0, 10.0)
        if graph.actor.branches:
            edges = np.cumsum([part.size for part in vectors])[:-1]
            found |= {part.field: values for part, values in zip(vectors, np.split(x, edges, axis=1), strict=True)}
        else:
            found["vector"] = x
    return found | {
        part.field: other(part, np.asarray(obs[part.field])) for part in graph.encoding if not part.is_vector
    }


def column(part, value):
    if part.kind == "one_hot":
        return (value[:, None] == part.start + np.arange(part.size)).astype(np.float64)
    if part.kind == "binary":
        return np.array([[(number - part.start) // 2**bit % 2 for bit in range(part.size)] for number in value], float)
    return value.reshape(len(value), -1).astype(np.float64)


def other(part, value):
    if part.kind == "image":
        pixels = value.astype(np.float64) / 255.0
        return pixels if part.channels_first else pixels.transpose(0, 3, 1, 2)
    if part.kind == "spatial":
        grid = value if value.ndim == 4 else value[..., None]
        channels = [grid[..., c] == part.start + v for c in range(grid.shape[3]) for v in range(part.values)]
        return np.stack(channels, axis=1).astype(np.float64)
    if part.kind == "embedding":
        return value - part.start
    return value != 0 if part.kind == "mask" else value.astype(np.float64)


def head_and_value(graph, published, obs, carry=None):
    """The head's outputs ``[n, k]`` and the value ``[n]``, or ``None``. ``carry`` as in ``run``."""
    x = encode(graph, published, obs)
    outputs = run(graph.actor, published["actor"], x, carry)
    if not graph.gives_value:
        return outputs, None
    if graph.critic is None:
        head, value = outputs[:, :-1], outputs[:, -1]
    else:
        head, value = outputs, run(graph.critic, published["critic"], x, carry)[:, 0]
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


def composed(head, outputs, log_std, mask, z):
    """Action ``[n, size]`` and log-probability ``[n]``, part by part."""
    actions, log_prob, output, chosen, spread = [], 0.0, 0, 0, 0
    for part in head.parts:
        own, noise = outputs[:, output : output + part.outputs], z[:, output : output + part.outputs]
        output += part.outputs
        if isinstance(part, Gaussian):
            action, found = gaussian(own, log_std[spread : spread + part.size], noise)
            spread += part.size
        else:
            possible = np.ones(own.shape) if mask is None else mask[:, chosen : chosen + part.n]
            action, found = categorical(np.where(possible, own, -np.inf), noise)
            action, chosen = action[:, None], chosen + part.n
        actions.append(action)
        log_prob = log_prob + found
    return np.concatenate(actions, axis=1), log_prob


def categorical(logits, z):
    """Action and log-probability ``[n]``."""
    action = np.argmax(logits + z, axis=1)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return action, shifted[np.arange(len(logits)), action] - np.log(np.exp(shifted).sum(axis=1))


def gaussian(mean, log_std, z):
    """Action ``[n, size]`` and log-density ``[n]``."""
    return mean + np.exp(log_std) * z, (-0.5 * z**2 - log_std - 0.5 * math.log(2.0 * math.pi)).sum(axis=1)


def act(graph, published, obs, noise, explore, carry=None):
    """What ``graph.outputs`` names. ``carry`` as in ``run``; it is zero where an episode begins (see ``begun``)."""
    head, (outputs, value) = graph.head, head_and_value(graph, published, obs, carry)
    mask = None if graph.mask is None else obs[graph.mask]
    if isinstance(head, EpsilonGreedy):
        q = action_values(head, outputs)
        possible = np.ones(q.shape, bool) if mask is None else mask != 0
        # In float32, as the head says: a product may round up to the next action.
        counts = possible.sum(axis=1)
        numbers = np.minimum((noise[:, 1] * counts.astype(np.float32)).astype(np.int64), counts - 1)
        anything = np.array([np.flatnonzero(row)[number] for row, number in zip(possible, numbers, strict=True)])
        best = np.where(possible, q, -np.inf).argmax(axis=1)
        return {"action": np.where(noise[:, 0] < explore, anything, best), "q": q}
    z = explore[:, None].astype(np.float64) * noise
    if isinstance(head, SquashedGaussian):
        mean, log_std = outputs[:, : head.size], outputs[:, head.size :]
        return {"action": np.tanh(mean + z * np.exp(np.clip(log_std, head.log_std_min, head.log_std_max)))}
    if isinstance(head, Deterministic):
        return {"action": np.clip(np.tanh(outputs) + z, -1.0, 1.0)}
    log_std = parts_of(graph.actor, published["actor"]).get("log_std")
    if isinstance(head, Categorical):
        action, log_prob = categorical(outputs if mask is None else np.where(mask, outputs, -np.inf), z)
    elif isinstance(head, Composed):
        action, log_prob = composed(head, outputs, log_std, mask, z)
    else:
        action, log_prob = gaussian(outputs, log_std, z)
    return {"action": action, "log_prob": log_prob, "value": value}


def begun(carry, first):
    """The carry in float64, zero in the lanes that begin an episode."""
    return {name: np.where(first[:, None], 0.0, values.astype(np.float64)) for name, values in carry.items()}


def mlp(name, inputs, hidden, outputs, activation="tanh", free=()):
    layers = []
    for width in hidden:
        layers += [Linear(inputs, width, 1.4), Activation(activation)]
        inputs = width
    return Network(name, (*layers, Linear(inputs, outputs, 1.0)), free)


def actor_critic(
    encoding,
    head,
    hidden=(64, 64),
    activation="tanh",
    *,
    shared=False,
    normalize_obs=False,
    normalize_value=False,
    mask=None,
):
    size = head.outputs
    free = (("log_std", head.deviations, -0.5),) if head.deviations else ()
    features = sum(part.size for part in encoding)
    actor = mlp("actor", features, hidden, size + 1 if shared else size, activation, free)
    critic = None if shared else mlp("critic", features, hidden, 1, activation)
    return PolicyGraph(encoding, actor, critic, head, normalize_obs, normalize_value, mask=mask)


def without_value(encoding, head, hidden=(64, 64), activation="relu", *, dueling=None, normalize_obs=False, mask=None):
    """An actor alone, which may end in a dueling layer."""
    outputs = head.outputs if dueling is None else (1 + dueling.n) * dueling.atoms
    actor = mlp("actor", sum(part.size for part in encoding), hidden, outputs, activation)
    if dueling is not None:
        actor = Network("actor", (*actor.layers, dueling))
    return PolicyGraph(encoding, actor, None, head, normalize_obs, gives_value=False, mask=mask)


def nature(head, side=36, channels=2, *, channels_first=False, normalize_value=False, dueling=None):
    """Three convolutions and a shared trunk, small."""
    gives_value = isinstance(head, Gaussian | Categorical | Composed)
    size = head.outputs + gives_value if dueling is None else (1 + dueling.n) * dueling.atoms
    free = (("log_std", head.deviations, -0.5),) if gives_value and head.deviations else ()
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
    """A published record in which no number has its neutral value."""
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
    obs = {part.field: observed(part, generator, n) for part in graph.encoding}
    if graph.mask is not None:
        obs[graph.mask] = masks(graph.head.choices, generator, n)
    return obs


def observed(part, generator, n):
    if part.kind in ("one_hot", "embedding"):
        return generator.integers(part.start, part.start + part.size, n)
    if part.kind == "binary":
        return generator.integers(part.start, part.start + 2**part.size, n)
    if part.kind == "spatial":
        return generator.integers(part.start, part.start + part.values, (n, *part.shape)).astype(np.uint8)
    if part.kind == "mask":
        return generator.integers(0, 2, (n, *part.shape)).astype(np.float32)
    if part.kind == "set":
        values = generator.normal(size=(n, *part.shape)).astype(np.float32)
        values[generator.uniform(size=values.shape[:2]) < 0.4] = 0.0
        values[-1] = 0.0
        return values
    if part.kind == "image":
        side = part.shape[0] if part.shape else 36
        channels = part.size // side**2
        shape = (n, channels, side, side) if part.channels_first else (n, side, side, channels)
        return generator.integers(0, 256, shape).astype(np.uint8)
    shape = (n, part.size // 2, 2) if part.size % 2 == 0 else (n, part.size)
    return generator.normal(size=shape).astype(np.float32)


def masks(choices, generator, n):
    """Random action masks ``[n, sum(choices)]`` that leave each element at least one choice."""
    columns = []
    for choice in choices:
        possible = (generator.random((n, choice)) < 0.5).astype(np.uint8)
        possible[np.arange(n), generator.integers(0, choice, n)] = 1
        columns.append(possible)
    return np.concatenate(columns, axis=1)


def noise_of(graph, generator, n):
    parts = graph.head.noise.parts or (graph.head.noise,)
    generated = [getattr(generator, spec.distribution)(size=(n, *spec.shape)) for spec in parts]
    return np.concatenate(generated, axis=1).astype(np.float32)


def carry_of(graph, generator, n):
    """A carry of n lanes in the middle of their episodes."""
    return {spec.name: generator.uniform(-1.0, 1.0, (n, *spec.shape)).astype(np.float32) for spec in graph.carry}


def outputs_for(graph, n):
    discrete = isinstance(graph.head, Categorical | EpsilonGreedy)
    known = {
        "action": np.zeros(n, np.int64) if discrete else np.zeros((n, graph.head.size), np.float32),
        "log_prob": np.zeros(n, np.float32),
        "value": np.zeros(n, np.float32),
        "q": np.zeros((n, graph.head.n if discrete else 0), np.float32),
    }
    return {name: known[name] for name in graph.outputs}


def acted(policy, graph, obs, noise, explore):
    """What a backend or a kernel answers."""
    out = outputs_for(graph, len(explore))
    policy.act({**obs, "noise": noise, "explore": explore}, out)
    return out


def build_policy(graph, config):
    """An algorithm of which only ``act`` is there, on a graph that stands where the spaces would."""
    from penstock.algorithm import Algorithm
    from penstock.torch_networks.policy import Policy

    return Algorithm(Policy(graph).act, dict, dict, ())


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

MEMORIES = {
    "lstm, shared": PolicyGraph(FLAT, Network("actor", (LSTM(3, 64), Linear(64, 3, 1.0))), None, Categorical(2)),
    "gru, shared": PolicyGraph(
        FLAT, Network("actor", (GRU(3, 64), Linear(64, 3, 1.0)), (("log_std", 2, -0.5),)), None, Gaussian(2)
    ),
    "lstm between layers, normalised": PolicyGraph(
        DICT,
        Network(
            "actor", (Linear(8, 20, 1.4), Activation("tanh"), LSTM(20, 33), Activation("relu"), Linear(33, 6, 1.0))
        ),
        None,
        Categorical(5),
        normalize_obs=True,
        normalize_value=True,
    ),
    "two kinds in actor and critic": PolicyGraph(
        DICT,
        Network("actor", (LSTM(8, 17), GRU(17, 9), Linear(9, 3, 1.0)), (("log_std", 3, -0.5),)),
        Network("critic", (Linear(8, 12, 1.4), Activation("silu"), GRU(12, 5), LSTM(5, 2), Linear(2, 1, 1.0))),
        Gaussian(3),
    ),
    "memory of the critic alone": PolicyGraph(
        FLAT, mlp("actor", 3, (8,), 2), Network("critic", (GRU(3, 16), Linear(16, 1, 1.0))), Categorical(2)
    ),
    "lstm under its head": PolicyGraph(
        FLAT, Network("actor", (LSTM(3, 6),)), None, SquashedGaussian(3), gives_value=False
    ),
    "gru, dueling": PolicyGraph(
        DISCRETE,
        Network("actor", (GRU(5, 20), Activation("elu"), Linear(20, 4, 1.0), Dueling(3))),
        None,
        EpsilonGreedy(3),
        gives_value=False,
    ),
}
"""Policies with recurrent layers."""

MIXED = Composed((Categorical(3), Gaussian(2), Categorical(4), Categorical(2), Gaussian(1)))

COMPOSED = {
    "composed, choices of one size": actor_critic(FLAT, Composed((Categorical(2),) * 5)),
    "composed, choices of several sizes": actor_critic(
        FLAT, Composed((Categorical(4), Categorical(2), Categorical(7)))
    ),
    "composed, mixed": actor_critic(DICT, MIXED, normalize_obs=True, normalize_value=True),
    "composed, mixed, shared trunk": actor_critic(FLAT, MIXED, shared=True),
    "composed, numbers alone": actor_critic(FLAT, Composed((Gaussian(1), Gaussian(2)))),
    "masked, choices": actor_critic(FLAT, Composed((Categorical(4), Categorical(2), Categorical(7))), mask="m"),
    "masked, mixed, normalised": actor_critic(DICT, MIXED, normalize_obs=True, normalize_value=True, mask="m"),
    "masked, mixed, shared trunk": actor_critic(FLAT, MIXED, shared=True, mask="m"),
}
"""Policies that the native kernel does not run."""

MASKED = {
    "masked": actor_critic(FLAT, Categorical(5), mask="action_mask"),
    "masked, discrete observation": actor_critic(DISCRETE, Categorical(50), mask="obs.action_mask"),
    "masked values": without_value(FLAT, EpsilonGreedy(5), mask="action_mask"),
    "masked values, dueling, atoms": without_value(
        DICT, EpsilonGreedy(6, 51, -10.0, 10.0), dueling=Dueling(6, 51), mask="obs.action_mask"
    ),
}

GRAPHS |= MASKED

IMAGES = {
    "image, channels last": nature(Categorical(4)),
    "image, mixed": nature(MIXED),
    "image, channels first": nature(Gaussian(2), channels_first=True, normalize_value=True),
    "image, squashed": nature(SquashedGaussian(2)),
    "image, dueling atoms": nature(EpsilonGreedy(4, 5, -1.0, 1.0), dueling=Dueling(4, 5)),
}


def branched(encoding, branches, head, *, normalize_obs=False, trunk=(16,), critic=False):
    """Branches that meet in an MLP with layer norm."""
    below = hidden(sum(branch.features for branch in branches), trunk, "tanh", layer_norm=True)
    gives_value = isinstance(head, Gaussian | Categorical)
    outputs = head.outputs + (gives_value and not critic)
    free = (("log_std", head.size, -0.5),) if isinstance(head, Gaussian) else ()
    actor = Network("actor", (*below.layers, Linear(below.features, outputs, 1.0)), free, branches)
    other = Network("critic", (*below.layers, Linear(below.features, 1, 1.0)), (), branches) if critic else None
    return PolicyGraph(encoding, actor, other, head, normalize_obs, gives_value=gives_value)


EYE = Encoding("obs.eye", "image", 11 * 11 * 3, shape=(11, 11, 3))
HAND = Encoding("obs.hand", "image", 36 * 36, 0, channels_first=True, shape=(36, 36))
SPEED, PLACE = Encoding("obs.speed", "flat", 4), Encoding("obs.place", "one_hot", 3, -1)
OTHERS = Encoding("obs.others", "set", 15, shape=(5, 3))
THERE = Encoding("obs.there", "mask", 5, shape=(5,))
GRID = Encoding("obs.grid", "spatial", 5 * 4 * 2, 3, shape=(5, 4, 2), values=4)
WORD = Encoding("obs.word", "embedding", 9, 2)
LEVEL = Encoding("obs.level", "binary", 4, 1)


def branch(part, stack, mask=""):
    return Branch((part.field,), stack.layers, stack.features, mask)


SET = transformer(3, 8, 2, 2)
CELLS = Stack((Conv2d(8, 6, 2, 1, 1.4), Activation("relu"), Flatten()), 6 * 4 * 3)
BRANCHED = {
    "resnet": branched((EYE,), (branch(EYE, resnet(3, 11, 11)),), Categorical(4)),
    "two images and vectors, normalised": branched(
        (EYE, HAND, SPEED, PLACE),
        (
            branch(EYE, resnet(3, 11, 11, layer_norm=True)),
            branch(HAND, stacks.nature(1, 36, 36)),
            Branch(("obs.speed", "obs.place"), (), 7),
        ),
        Gaussian(2),
        normalize_obs=True,
    ),
    "vectors apart, two networks": branched(
        (SPEED, LEVEL, PLACE),
        (branch(PLACE, hidden(3, (5,), "relu")), Branch(("obs.speed", "obs.level"), (), 8)),
        Categorical(3),
        normalize_obs=True,
        critic=True,
    ),
    "set": branched((OTHERS, SPEED), (branch(OTHERS, SET), Branch(("obs.speed",), (), 4)), Gaussian(1)),
    "set with a mask": branched((OTHERS, THERE), (branch(OTHERS, SET, "obs.there"),), Categorical(3)),
    "grid, word and bits": branched(
        (GRID, LEVEL, WORD),
        (
            branch(GRID, CELLS),
            Branch(("obs.level",), (), 4),
            branch(WORD, Stack((Embedding(9, 6), LayerNorm(6)), 6)),
        ),
        EpsilonGreedy(4),
        trunk=(),
    ),
}
