"""Builds policy graphs that fit given spaces: encodings, multi-layer perceptrons, the Nature network, heads.

Imports no torch, so that every algorithm's spec may use it. Chooses no hyper-parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from penstock.algorithm_package import ActionKind, check_actions
from penstock.errors import SpaceError
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
    Head,
    Layer,
    Linear,
    Network,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.types import Box, Discrete, Space, Spaces

__all__ = [
    "ActivationName",
    "Body",
    "ModelName",
    "PrecisionName",
    "actor_critic",
    "deterministic_actor",
    "flat_encoding",
    "head_of",
    "kind_of",
    "mlp",
    "nature_cnn",
    "q_network",
    "squashed_actor",
]

ModelName: TypeAlias = Literal["auto", "mlp", "nature_cnn"]
ActivationName: TypeAlias = Literal["tanh", "relu", "elu", "silu", "gelu", "sigmoid"]
PrecisionName: TypeAlias = Literal["float32", "bfloat16"]

ROOT_TWO = 2.0**0.5
MIN_SIDE = 36
"""The Nature network's three convolutions need at least 36 pixels a side."""


@dataclass(frozen=True)
class Body:
    """The layers between observations and head."""

    model: ModelName
    hidden_sizes: tuple[int, ...]
    """Used by a multi-layer perceptron only."""
    activation: ActivationName
    """Used by a multi-layer perceptron only."""


def actor_critic(
    spaces: Spaces, body: Body, log_std_init: float, *, normalize_obs: bool, normalize_value: bool
) -> PolicyGraph:
    """The policy of an on-policy actor-critic: two perceptrons, or for one image a shared Nature network.

    Raises:
        SpaceError: this body does not serve the observation or action space.
    """
    head = head_of(spaces.action)
    outputs = head.outputs
    free = (("log_std", head.size, log_std_init),) if isinstance(head, Gaussian) else ()
    if _is_nature(spaces, body.model):
        if normalize_obs:
            raise SpaceError("images are scaled to [0, 1] already: leave --normalize_obs off, or pass --model mlp")
        encoding, channels, height, width = _image_encoding(*spaces.obs[0])
        # One layer holds both heads. Its small gain keeps the first policy near uniform and the first values near 0.
        layers = nature_cnn(channels, height, width, outputs + 1, gain=0.01)
        return PolicyGraph((encoding,), Network("actor", layers, free), None, head, normalize_value=normalize_value)
    parts = flat_encoding(spaces.obs)
    features = sum(part.size for part in parts)
    # The gains of Andrychowicz et al. 2021 (https://arxiv.org/abs/2006.05990): a last policy layer 100 times smaller.
    actor = Network("actor", mlp(features, body.hidden_sizes, outputs, body.activation, 0.01), free)
    critic = Network("critic", mlp(features, body.hidden_sizes, 1, body.activation, 1.0))
    return PolicyGraph(parts, actor, critic, head, normalize_obs, normalize_value)


def squashed_actor(spaces: Spaces, body: Body, algorithm: str) -> PolicyGraph:
    """An actor with a `SquashedGaussian` head and no value. Its first policy is nearly ``tanh(noise)``.

    Raises:
        SpaceError: it does not serve these spaces. The text names ``algorithm`` and the algorithms that do.
    """
    return _actor(spaces, body, SquashedGaussian(_size_of(spaces.action, algorithm)), 0.01)


def deterministic_actor(spaces: Spaces, body: Body, algorithm: str) -> PolicyGraph:
    """An actor with a `Deterministic` head and no value. Its first actions are nearly the middle of the bounds.

    Raises:
        SpaceError: as for `squashed_actor`.
    """
    return _actor(spaces, body, Deterministic(_size_of(spaces.action, algorithm)), 0.01)


def q_network(
    spaces: Spaces, body: Body, algorithm: str, *, dueling: bool, atoms: int, low: float, high: float
) -> PolicyGraph:
    """Action values with an `EpsilonGreedy` head.

    Args:
        spaces: the spaces of one lane.
        body: the layers below the last one.
        algorithm: name of the algorithm, for the error's text.
        dueling: end in a `Dueling` layer.
        atoms: 1, or the number of logits for each action.
        low: value of the first atom.
        high: value of the last atom.

    Raises:
        SpaceError: as for `squashed_actor`.
    """
    check_actions(algorithm, ("discrete",), kind_of(spaces.action))
    if not isinstance(spaces.action, Discrete):
        raise SpaceError(f"{algorithm} needs Discrete actions")
    head = EpsilonGreedy(spaces.action.n, atoms, low, high)
    if not dueling:
        return _actor(spaces, body, head, 1.0)
    return _actor(spaces, body, head, 1.0, Dueling(head.n, atoms))


def _actor(spaces: Spaces, body: Body, head: Head, gain: float, dueling: Dueling | None = None) -> PolicyGraph:
    """One network for one head, and no value. ``gain`` scales the initial weights of the last linear layer."""
    outputs = head.outputs if dueling is None else (1 + dueling.n) * dueling.atoms
    parts: tuple[Encoding, ...]
    if _is_nature(spaces, body.model):
        encoding, channels, height, width = _image_encoding(*spaces.obs[0])
        parts, layers = (encoding,), nature_cnn(channels, height, width, outputs, gain)
    else:
        parts = flat_encoding(spaces.obs)
        layers = mlp(sum(part.size for part in parts), body.hidden_sizes, outputs, body.activation, gain)
    network = Network("actor", layers if dueling is None else (*layers, dueling))
    return PolicyGraph(parts, network, None, head, gives_value=False)


def kind_of(action: Space) -> ActionKind:
    """The kind of an action space, for `check_actions`."""
    if isinstance(action, Discrete):
        return "discrete"
    return "bounded" if action.bounded else "unbounded"


def _size_of(action: Space, algorithm: str) -> int:
    """Number of elements of a bounded box of real numbers. Raises SpaceError for any other space."""
    check_actions(algorithm, ("bounded",), kind_of(action))
    head = head_of(action)
    return head.outputs


def head_of(action: Space) -> Gaussian | Categorical:
    """Gaussian for a box of real numbers, categorical for a Discrete."""
    if isinstance(action, Discrete):
        return Categorical(action.n)
    if not action.dtype.startswith("float") or action.size == 0:
        raise SpaceError(f"actions are a Box of {action.dtype} {list(action.shape)}: use float or Discrete")
    return Gaussian(action.size)


def flat_encoding(obs: Sequence[tuple[str, Space]]) -> tuple[Encoding, ...]:
    """Every field flattened, Discrete ones as one-hot vectors."""
    return tuple(
        Encoding(name, "one_hot", space.n, space.start)
        if isinstance(space, Discrete)
        else Encoding(name, "flat", space.size)
        for name, space in obs
    )


def mlp(
    inputs: int, hidden_sizes: Sequence[int], outputs: int, activation: ActivationName, gain: float
) -> tuple[Layer, ...]:
    """Hidden layers with an activation each, then a linear layer whose initial weights are scaled by ``gain``."""
    layers: list[Layer] = []
    for width in hidden_sizes:
        layers += [Linear(inputs, width, ROOT_TWO), Activation(activation)]
        inputs = width
    return (*layers, Linear(inputs, outputs, gain))


def nature_cnn(channels: int, height: int, width: int, outputs: int, gain: float) -> tuple[Layer, ...]:
    """Three convolutions and a layer of 512. Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236."""
    layers: list[Layer] = []
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        layers += [Conv2d(channels, filters, kernel, stride, ROOT_TWO), Activation("relu")]
        channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    features = channels * height * width
    return (*layers, Flatten(), Linear(features, 512, ROOT_TWO), Activation("relu"), Linear(512, outputs, gain))


def _is_nature(spaces: Spaces, model: ModelName) -> bool:
    """True if these observations get the Nature network: it serves them, and ``model`` does not exclude it."""
    images = [name for name, space in spaces.obs if _is_image(space)]
    if model == "mlp" or (model == "auto" and not images):
        return False
    if len(images) == len(spaces.obs) == 1:
        return True
    fields = ", ".join(name for name, _ in spaces.obs)
    if not images:
        wanted = f"one uint8 image of at least {MIN_SIDE} x {MIN_SIDE}"
        raise SpaceError(f"nature_cnn needs {wanted}, not {fields}: pass --model mlp")
    raise SpaceError(f"the image {images[0]} must stand alone, but there are {fields}: pass --model mlp to flatten all")


def _is_image(space: Space) -> bool:
    return (
        isinstance(space, Box)
        and space.dtype == "uint8"
        and len(space.shape) == 3
        and sorted(space.shape)[1] >= MIN_SIDE
    )


def _image_encoding(name: str, space: Space) -> tuple[Encoding, int, int, int]:
    """Encoding, channels, height and width. The channels are the shorter of the first and last dimension."""
    if not isinstance(space, Box):
        raise SpaceError(f"{name} is not an image")
    first, _, last = space.shape
    channels_first = first < last
    height, width = space.shape[1:] if channels_first else space.shape[:2]
    return Encoding(name, "image", space.size, 0, channels_first), min(first, last), height, width
