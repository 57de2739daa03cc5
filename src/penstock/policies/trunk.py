"""The part of networks below their outputs, as a model name asks for it: encodings, branches, hidden layers, memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from penstock.errors import ConfigError, SpaceError, nearest
from penstock.policies.encoding import Encoding, width_of
from penstock.policies.initial import InitName
from penstock.policies.layers import GRU, LSTM, Dropout, Layer
from penstock.policies.network import Branch
from penstock.policies.stacks import (
    NATURE_SIDE,
    RESNET_SIDE,
    ActivationName,
    Stack,
    hidden,
    nature,
    resnet,
)
from penstock.types import Box, Discrete, Space, Spaces

__all__ = [
    "INIT_TEXT",
    "MEMORIES",
    "MODELS",
    "MODELS_WITH_MEMORY",
    "MODEL_FORM",
    "Body",
    "Trunk",
    "flat_encoding",
    "image_encoding",
    "memory_of",
    "trunk_of",
]

MODELS = (
    "auto: nature_cnn for images of 36 pixels a side, resnet for smaller ones, else mlp; a file my_net.toml with a "
    "table; my_package.nets:make_policy, a torch module of your own"
)
MODELS_WITH_MEMORY = f"{MODELS}; lstm and gru put a memory behind the encoder, as resnet+lstm"
MODEL_FORM = 'a text, such as "mlp", "my_net.toml", or "module:name" of a class of your own'
INIT_TEXT = "how weights begin: orthogonal suits on-policy learning best, torch is as layers of torch.nn begin"
"""Texts of the settings ``model`` and ``init``, which several algorithms have."""

AUTO_SIDE = 8
"""``auto`` gives a ResNet to images of at least 8 pixels a side: halved three times, they leave one."""
ENCODERS = ("auto", "mlp", "nature_cnn", "resnet")
MEMORIES = ("lstm", "gru")


@dataclass(frozen=True)
class Body:
    """The layers between observations and head."""

    model: str
    """``auto``, ``mlp``, ``nature_cnn`` or ``resnet``; ``lstm`` or ``gru``; or one of each, joined by a plus. Also a
    table as JSON, or ``module:attribute`` of a user's own module."""
    hidden_sizes: tuple[int, ...]
    """Hidden layers of an MLP, and those above several branches."""
    activation: ActivationName
    memory_size: int = 0
    """Width of a recurrent layer."""
    share_memory: bool = False
    """With a recurrent layer: actor and critic share all layers but the last."""
    layer_norm: bool = False
    init: InitName = "orthogonal"
    dropout: float = 0.0
    """Share of the outputs of hidden MLP layers that are 0 while learning."""


class Trunk(NamedTuple):
    """A network without its last layer."""

    encoding: tuple[Encoding, ...]
    branches: tuple[Branch, ...]
    layers: tuple[Layer, ...]
    features: int
    """Width of what the last layer takes."""
    shared: bool
    """True: one network gives actions and values. False: each has a network of its own."""

    @property
    def drops(self) -> bool:
        """Whether dropout is among its layers."""
        return any(isinstance(layer, Dropout) for layers in self._parts() for layer in layers)

    def without_dropout(self) -> "Trunk":
        """The same layers, but for dropout."""
        branches = tuple(replace(branch, layers=_kept(branch.layers)) for branch in self.branches)
        return self._replace(branches=branches, layers=_kept(self.layers))

    def _parts(self) -> Sequence[tuple[Layer, ...]]:
        return (*(branch.layers for branch in self.branches), self.layers)


class _Chosen(NamedTuple):
    encoder: str
    memory: Literal["", "lstm", "gru"]


def trunk_of(spaces: Spaces, body: Body) -> Trunk:
    """The trunk that a model's name asks for on these observations.

    Raises:
        ConfigError: there is no such model.
        SpaceError: it does not serve these observations.
    """
    chosen = _chosen(body.model)
    images = (
        []
        if chosen.encoder == "mlp"
        else [(name, space) for name, space in spaces.seen if _is_image(space, chosen.encoder)]
    )
    if chosen.encoder in {"nature_cnn", "resnet"} and not images:
        fields = ", ".join(name for name, _ in spaces.seen)
        least = NATURE_SIDE if chosen.encoder == "nature_cnn" else RESNET_SIDE
        wanted = f"a uint8 image of at least {least} x {least}"
        raise SpaceError(f"{chosen.encoder} needs {wanted}, not {fields}: pass --model {chosen.memory or 'mlp'}")
    if images:
        trunk = _joined(spaces, body, chosen, [name for name, _ in images])
    else:
        encoding = flat_encoding(spaces.seen)
        layers = _mlp_layers(width_of(encoding), body.hidden_sizes, body)
        trunk = Trunk(encoding, (), layers.layers, layers.features, shared=False)
    return trunk if not chosen.memory else memory_of(trunk, chosen.memory, body.memory_size, share=body.share_memory)


def memory_of(trunk: Trunk, kind: Literal["lstm", "gru"], size: int, *, share: bool) -> Trunk:
    """The trunk with a recurrent layer behind it. Actor and critic share it if they share the trunk or are told to."""
    cell = LSTM if kind == "lstm" else GRU
    shared = trunk.shared or share
    return trunk._replace(layers=(*trunk.layers, cell(trunk.features, size)), features=size, shared=shared)


def _chosen(model: str) -> _Chosen:
    """Encoder and memory of a model's name.

    Raises:
        ConfigError: there is no such model.
    """
    parts = model.split("+")
    if "" in parts:
        side = "before" if parts[0] == "" else "behind"
        raise ConfigError(
            f"--model {model}: a name is missing {side} the plus; write an encoder and a memory, as resnet+lstm"
        )
    for part in parts:
        if part not in {*ENCODERS, *MEMORIES}:
            known = nearest(part, [*ENCODERS, *MEMORIES])
            raise ConfigError(
                f"--model {model}: there is no model {part!r}{known}; give {', '.join((*ENCODERS, *MEMORIES))}, an "
                "encoder and a memory as resnet+lstm, a file my_net.toml, or my_package.nets:make_policy"
            )
    if len(parts) == 1:
        return _Chosen("auto", parts[0]) if parts[0] in MEMORIES else _Chosen(parts[0], "")  # type: ignore[arg-type]
    if len(parts) > 2 or parts[0] not in ENCODERS or parts[1] not in MEMORIES:
        raise ConfigError(f"--model {model}: write one encoder and one memory, as resnet+lstm")
    return _Chosen(parts[0], parts[1])  # type: ignore[arg-type]


def _joined(spaces: Spaces, body: Body, chosen: _Chosen, images: Sequence[str]) -> Trunk:
    """A branch for each image, one for all other fields, and an MLP where several branches meet."""
    encoding: list[Encoding] = []
    branches: list[Branch] = []
    for name, space in spaces.seen:
        if name not in images:
            encoding += flat_encoding([(name, space)])
            continue
        part, channels, height, width = image_encoding(name, space)
        encoding.append(part)
        stack = _of_image(chosen.encoder, name, channels, height, width, layer_norm=body.layer_norm)
        branches.append(Branch((name,), stack.layers, stack.features))
    vectors = tuple(part.field for part in encoding if part.is_vector)
    if vectors:
        branches.append(Branch(vectors, (), width_of(encoding)))
    features = sum(branch.features for branch in branches)
    sizes = body.hidden_sizes if len(branches) > 1 else ()
    above = _mlp_layers(features, sizes, body)
    return Trunk(tuple(encoding), tuple(branches), above.layers, above.features, shared=True)


def _kept(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers if not isinstance(layer, Dropout))


def _mlp_layers(inputs: int, sizes: Sequence[int], body: Body) -> Stack:
    return hidden(inputs, sizes, body.activation, layer_norm=body.layer_norm, dropout=body.dropout)


def _of_image(encoder: str, name: str, channels: int, height: int, width: int, *, layer_norm: bool) -> Stack:
    large = min(height, width) >= NATURE_SIDE
    if encoder == "nature_cnn" and not large:
        raise SpaceError(
            f"nature_cnn needs images of at least {NATURE_SIDE} x {NATURE_SIDE}, and {name} has {height} x {width}: "
            "pass --model resnet"
        )
    if encoder == "resnet" or not large:
        return resnet(channels, height, width, layer_norm=layer_norm)
    return nature(channels, height, width, layer_norm=layer_norm)


def flat_encoding(obs: Sequence[tuple[str, Space]]) -> tuple[Encoding, ...]:
    """Every field flattened, Discrete ones as one-hot vectors."""
    return tuple(
        Encoding(name, "one_hot", space.n, space.start)
        if isinstance(space, Discrete)
        else Encoding(name, "flat", space.size)
        for name, space in obs
    )


def _is_image(space: Space, encoder: str) -> bool:
    """True for uint8 of three dimensions that the encoder serves. ``auto`` takes small ones of 1, 3 or 4 channels only.

    Others are more often counts or codes than pixels. ``resnet`` is asked for by name, so it takes them all.
    """
    if not isinstance(space, Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return False
    side = sorted(space.shape)[1]
    if encoder == "resnet":
        return side >= RESNET_SIDE
    return side >= NATURE_SIDE or (side >= AUTO_SIDE and min(space.shape[0], space.shape[-1]) in {1, 3, 4})


def image_encoding(name: str, space: Space) -> tuple[Encoding, int, int, int]:
    """Encoding, channels, height and width. The channels are the shorter of the first and last dimension.

    Raises:
        SpaceError: the field is no uint8 of three dimensions.
    """
    if not isinstance(space, Box) or len(space.shape) != 3 or space.dtype != "uint8":
        has = f"{space.dtype} {list(space.shape)}" if isinstance(space, Box) else "a Discrete"
        raise SpaceError(f"{name} is {has}, not an image, which is a uint8 of three dimensions")
    first, _, last = space.shape
    channels_first = first < last
    height, width = space.shape[1:] if channels_first else space.shape[:2]
    return Encoding(name, "image", space.size, 0, channels_first), min(first, last), height, width
