"""The encoders that a description can give a field: how the field enters, and the layers behind. Reads no file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from penstock.errors import ConfigError, SpaceError
from penstock.policies.description_keys import Keys
from penstock.policies.encoding import Encoding
from penstock.policies.layers import Activation, Conv2d, Embedding, Flatten, Layer
from penstock.policies.stacks import ROOT_TWO, ActivationName, Stack, hidden, nature, resnet, transformer
from penstock.policies.trunk import Body, flat_encoding, image_encoding, trunk_of
from penstock.types import Box, Discrete, Space, Spaces

__all__ = ["ACTIVATIONS", "ENCODERS", "Described", "box_of"]

ACTIVATIONS = get_args(ActivationName)
_GRID_AXES = (2, 3)
_SET_AXES = 2


@dataclass(frozen=True)
class Described:
    """A field, and the part of the table that says how it is encoded."""

    name: str
    space: Space
    table: Keys
    body: Body

    def above(self, inputs: int, default: Sequence[int] = ()) -> Stack:
        """The hidden layers that the table asks for."""
        table = self.table
        return hidden(
            inputs,
            table.whole_numbers("hidden_sizes", tuple(default)),
            table.word("activation", ACTIVATIONS, self.body.activation),
            layer_norm=table.value("layer_norm", bool, self.body.layer_norm),
            dropout=table.share("dropout", self.body.dropout),
        )


def _mlp(of: Described) -> tuple[Encoding, Stack]:
    (part,) = flat_encoding([(of.name, of.space)])
    return part, of.above(part.size)


def _binary(of: Described) -> tuple[Encoding, Stack]:
    space = _discrete(of, "binary")
    bits = max(1, (space.n - 1).bit_length())
    return Encoding(of.name, "binary", bits, space.start), of.above(bits)


def _embedding(of: Described) -> tuple[Encoding, Stack]:
    space = _discrete(of, "embedding")
    table = Embedding(space.n, of.table.whole_number("width", None))
    above = of.above(table.width)
    return Encoding(of.name, "embedding", space.n, space.start), Stack((table, *above.layers), above.features)


def _nature(of: Described) -> tuple[Encoding, Stack]:
    part, *shape = _image(of)
    trunk_of(Spaces(((of.name, of.space),), of.space), Body("nature_cnn", (), of.body.activation))
    return part, nature(*shape, layer_norm=of.table.value("layer_norm", bool, of.body.layer_norm))


def _resnet(of: Described) -> tuple[Encoding, Stack]:
    part, *shape = _image(of)
    return part, resnet(*shape, layer_norm=of.table.value("layer_norm", bool, of.body.layer_norm))


def _image(of: Described) -> tuple[Encoding, int, int, int]:
    """As `image_encoding`. The error names encoders that serve the field."""
    try:
        return image_encoding(of.name, of.space)
    except SpaceError as error:
        raise SpaceError(f"{error}; for {of.table.name}encoder write {_serving(of.space)}") from None


def _serving(space: Space) -> str:
    """Encoders for a field that is no image."""
    if isinstance(space, Discrete):
        return "embedding, binary or mlp"
    if len(space.shape) in _GRID_AXES and not space.dtype.startswith("float"):
        return "spatial or mlp"
    return "transformer or mlp" if len(space.shape) == _SET_AXES else "mlp"


def _cnn(of: Described) -> tuple[Encoding, Stack]:
    part, channels, height, width = _image(of)
    return part, _convolutions(of, channels, height, width)


def _spatial(of: Described) -> tuple[Encoding, Stack]:
    """A plane for each value of a cell. The bounds of the space say which values there are, or the table does."""
    box = box_of(of.name, of.space)
    if len(box.shape) not in _GRID_AXES or box.dtype.startswith("float"):
        raise ConfigError(
            f"--model: {of.table.name.rstrip('.')} is {box.dtype} {list(box.shape)}: spatial needs a grid"
        )
    start = of.table.whole_number("start", int(min(box.low)), least=None)
    values = of.table.whole_number("values", int(max(box.high)) - start + 1)
    height, width = box.shape[:2]
    channels = box.size // (height * width)
    part = Encoding(of.name, "spatial", box.size, start, shape=box.shape, values=values)
    return part, _convolutions(of, channels * values, height, width)


def _transformer(of: Described) -> tuple[Encoding, Stack]:
    box = box_of(of.name, of.space)
    if len(box.shape) != _SET_AXES:
        raise ConfigError(
            f"--model: {of.table.name.rstrip('.')} has shape {list(box.shape)}: a set is [entities, features]"
        )
    width = of.table.whole_number("width", 64)
    heads = of.table.whole_number("heads", 4)
    if width % heads:
        raise ConfigError(f"--model: {of.table.name}heads = {heads} does not divide width = {width}")
    part = Encoding(of.name, "set", box.size, shape=box.shape)
    return part, transformer(box.shape[1], width, heads, of.table.whole_number("layers", 2))


ENCODERS: dict[str, Callable[[Described], tuple[Encoding, Stack]]] = {
    "mlp": _mlp,
    "nature_cnn": _nature,
    "resnet": _resnet,
    "cnn": _cnn,
    "spatial": _spatial,
    "binary": _binary,
    "embedding": _embedding,
    "transformer": _transformer,
}
"""Encoders by name. Most take an MLP's ``hidden_sizes``, ``activation``, ``layer_norm`` and ``dropout``.
``nature_cnn`` and ``resnet`` take ``layer_norm`` only. ``cnn`` and ``spatial`` take ``convolutions`` as well (filters,
kernel and stride of each), ``spatial`` also ``start`` and ``values``, ``embedding`` a ``width``. ``transformer`` takes
``width``, ``heads``, ``layers`` and ``mask``."""


def _convolutions(of: Described, channels: int, height: int, width: int) -> Stack:
    layers: list[Layer] = []
    activation = of.table.word("activation", ACTIVATIONS, of.body.activation)
    for filters, kernel, stride in of.table.triples("convolutions", ((16, 3, 1), (32, 3, 1))):
        if kernel > min(height, width):
            raise ConfigError(
                f"--model: {of.table.name}convolutions leave nothing of {of.name}: a kernel of {kernel} does not fit "
                f"into {height} x {width}"
            )
        layers += [Conv2d(channels, filters, kernel, stride, ROOT_TWO), Activation(activation)]
        channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    above = of.above(channels * height * width, (64,))
    return Stack((*layers, Flatten(), *above.layers), above.features)


def _discrete(of: Described, encoder: str) -> Discrete:
    if not isinstance(of.space, Discrete):
        raise ConfigError(
            f"--model: {of.table.name}encoder = {encoder!r} needs a Discrete, and the field {of.name} is a Box"
        )
    return of.space


def box_of(name: str, space: Space) -> Box:
    """The space of a field whose encoder needs a Box.

    Raises:
        ConfigError: it is a Discrete.
    """
    if not isinstance(space, Box):
        raise ConfigError(f"--model: the field {name} is a Discrete: this encoder needs a Box")
    return space
