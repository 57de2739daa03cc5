"""Reads a network from a table: ``--model my_net.toml``. The table has these parts, all of them optional.

    shared = true                # one network for actions and values; false: each has one of its own
    [fields.<name>]              # a field of the observation; "obs" for a plain one
    encoder = "resnet"           # and the settings of this encoder, see ``_ENCODERS``
    [trunk]                      # the perceptron behind all fields
    hidden_sizes = [256]         # also: activation, layer_norm, dropout
    [memory]
    kind = "lstm"                # or "gru"
    size = 256

A field without a part is encoded as without a table. A key that is unknown is an error of one line.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from penstock.errors import ConfigError, SpaceError, nearest
from penstock.policies.encoding import Encoding
from penstock.policies.layers import Activation, Conv2d, Embedding, Flatten, Layer
from penstock.policies.network import Branch
from penstock.policies.stacks import ROOT_TWO, ActivationName, Stack, hidden, nature, resnet, transformer
from penstock.policies.trunk import MEMORIES, Body, Trunk, flat_encoding, image_encoding, memory_of, trunk_of
from penstock.types import Box, Discrete, Space, Spaces

__all__ = ["decided", "inlined", "names_memory", "names_module", "trunk_described"]

_ACTIVATIONS = get_args(ActivationName)
_GRID_AXES = (2, 3)
_SET_AXES = 2


def inlined(model: str) -> str:
    """The table of a file ``*.toml`` as JSON, so that a run keeps it; any other model as it is.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not model.endswith(".toml"):
        return model
    try:
        return json.dumps(tomllib.loads(Path(model).expanduser().read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"--model {model} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--model {model} is no TOML: {error}") from error


def names_module(model: str) -> bool:
    """Whether a model is ``module:attribute``, and not a name or a table as JSON."""
    return ":" in model and not model.startswith("{")


def names_memory(model: str) -> bool:
    """True if the name of a model, or its table, puts a memory behind the encoder. A module is not looked at.

    Raises:
        ConfigError: the table cannot be read.
    """
    described = inlined(model)
    return "memory" in json.loads(described) if described.startswith("{") else described.split("+")[-1] in MEMORIES


def decided(model: str, encoding: Sequence[Encoding]) -> dict[str, str]:
    """Settings that a table decides -> where it does so.

    Args:
        model: the table as JSON.
        encoding: how the fields enter.
    """
    table = json.loads(model)
    found = {}
    if "hidden_sizes" in table.get("trunk", {}):
        found["hidden_sizes"] = "trunk.hidden_sizes of the table decides it"
    if "size" in table.get("memory", {}):
        found["memory_size"] = "memory.size of the table decides it"
    if table.get("shared", not all(part.is_vector for part in encoding)):
        found["share_memory"] = "with this table actions and values share a network already"
    return found


def trunk_described(spaces: Spaces, body: Body) -> Trunk:
    """The trunk that a table describes.

    Args:
        spaces: the spaces of one lane.
        body: ``model`` is the table as JSON; the others are the defaults of what the table leaves out.

    Raises:
        ConfigError: a key is unknown or a value does not fit; the text names the key.
        SpaceError: an encoder does not serve its field.
    """
    try:
        given = json.loads(body.model)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--model: the table is no JSON: {error}") from error
    table = _Table("", given)
    parts = table.tables("fields")
    names = [name.removeprefix("obs.") for name, _ in spaces.seen]
    for name in parts:
        if name not in names:
            known = nearest(name, names) or f"; the fields are {', '.join(names)}"
            raise ConfigError(f"--model: there is no field {name!r}{known}")
    above, memory = table.part("trunk"), table.part("memory")
    shared = table.value("shared", bool, None)
    table.end()
    seen = _seen(spaces, body, {name: _Table(f"fields.{name}.", part) for name, part in parts.items()})
    sizes = above.whole_numbers("hidden_sizes", body.hidden_sizes)
    activation = above.word("activation", _ACTIVATIONS, body.activation)
    layer_norm = above.value("layer_norm", bool, body.layer_norm)
    dropout = above.share("dropout", body.dropout)
    above.end()
    features = sum(branch.features for branch in seen.branches)
    stack = hidden(features, sizes, activation, layer_norm=layer_norm, dropout=dropout)
    vector = all(part.is_vector for part in seen.encoding)
    trunk = Trunk(
        seen.encoding, seen.branches, stack.layers, stack.features, shared=not vector if shared is None else shared
    )
    if not memory.given:
        memory.end()
        return trunk
    kind = memory.word("kind", ("lstm", "gru"), "lstm")
    size = memory.whole_number("size", body.memory_size or 64)
    memory.end()
    return memory_of(trunk, kind, size, share=body.share_memory)


class _Seen(NamedTuple):
    """How the fields enter, and their branches."""

    encoding: tuple[Encoding, ...]
    branches: tuple[Branch, ...]


def _seen(spaces: Spaces, body: Body, tables: Mapping[str, "_Table"]) -> _Seen:
    masks = {f"{_prefix(spaces)}{table.given['mask']}" for table in tables.values() if "mask" in table.given}
    encoding: list[Encoding] = []
    branches: list[Branch] = []
    plain: list[str] = []
    for name, space in spaces.seen:
        table = tables.get(name.removeprefix("obs."))
        if name in masks:
            encoding.append(Encoding(name, "mask", _box(name, space).size, shape=_box(name, space).shape))
        elif table is None:
            found = trunk_of(Spaces(((name, space),), spaces.action), Body("auto", (), body.activation))
            encoding += found.encoding
            if found.branches:
                branches += found.branches
            else:
                plain.append(name)
        else:
            encoder = table.word("encoder", tuple(_ENCODERS), None)
            settings = _Settings(name, space, table, body)
            part, stack = _ENCODERS[encoder](settings)
            mask = table.value("mask", str, "") if part.kind == "set" else ""
            table.end()
            if mask:
                _check_mask(table, space, dict(spaces.seen).get(f"{_prefix(spaces)}{mask}"))
            encoding.append(part)
            branches.append(Branch((name,), stack.layers, stack.features, mask and f"{_prefix(spaces)}{mask}"))
    if plain:
        branches.append(Branch(tuple(plain), (), sum(part.size for part in encoding if part.field in plain)))
    return _Seen(tuple(encoding), tuple(branches))


def _check_mask(table: "_Table", space: Space, mask: Space | None) -> None:
    """Check that the field that is the mask of a set has a number for each entity."""
    name, entities = table.given["mask"], _box(table.name, space).shape[0]
    if mask is None:
        raise ConfigError(f"--model: there is no field {name!r} to be a mask")
    if not isinstance(mask, Box) or mask.shape != (entities,):
        has = f"is {list(mask.shape)}" if isinstance(mask, Box) else "is a Discrete"
        raise ConfigError(f"--model: {table.name}mask = {name!r} {has}, and the set has {entities} entities")


def _prefix(spaces: Spaces) -> str:
    return "" if spaces.seen[0][0] == "obs" else "obs."


@dataclass(frozen=True)
class _Settings:
    """A field, and the part of the table that says how it is encoded."""

    name: str
    space: Space
    table: "_Table"
    body: Body

    def above(self, inputs: int, default: Sequence[int] = ()) -> Stack:
        """The hidden layers that the table asks for."""
        table = self.table
        return hidden(
            inputs,
            table.whole_numbers("hidden_sizes", tuple(default)),
            table.word("activation", _ACTIVATIONS, self.body.activation),
            layer_norm=table.value("layer_norm", bool, self.body.layer_norm),
            dropout=table.share("dropout", self.body.dropout),
        )


def _mlp(of: _Settings) -> tuple[Encoding, Stack]:
    (part,) = flat_encoding([(of.name, of.space)])
    return part, of.above(part.size)


def _binary(of: _Settings) -> tuple[Encoding, Stack]:
    space = _discrete(of, "binary")
    bits = max(1, (space.n - 1).bit_length())
    return Encoding(of.name, "binary", bits, space.start), of.above(bits)


def _embedding(of: _Settings) -> tuple[Encoding, Stack]:
    space = _discrete(of, "embedding")
    table = Embedding(space.n, of.table.whole_number("width", None))
    above = of.above(table.width)
    return Encoding(of.name, "embedding", space.n, space.start), Stack((table, *above.layers), above.features)


def _nature(of: _Settings) -> tuple[Encoding, Stack]:
    part, *shape = _image(of)
    trunk_of(Spaces(((of.name, of.space),), of.space), Body("nature_cnn", (), of.body.activation))
    return part, nature(*shape, layer_norm=of.table.value("layer_norm", bool, of.body.layer_norm))


def _resnet(of: _Settings) -> tuple[Encoding, Stack]:
    part, *shape = _image(of)
    return part, resnet(*shape, layer_norm=of.table.value("layer_norm", bool, of.body.layer_norm))


def _image(of: _Settings) -> tuple[Encoding, int, int, int]:
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


def _cnn(of: _Settings) -> tuple[Encoding, Stack]:
    part, channels, height, width = _image(of)
    return part, _convolutions(of, channels, height, width)


def _spatial(of: _Settings) -> tuple[Encoding, Stack]:
    """A plane for each value of a cell. The bounds of the space say which values there are, or the table does."""
    box = _box(of.name, of.space)
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


def _transformer(of: _Settings) -> tuple[Encoding, Stack]:
    box = _box(of.name, of.space)
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


_ENCODERS: dict[str, Callable[[_Settings], tuple[Encoding, Stack]]] = {
    "mlp": _mlp,
    "nature_cnn": _nature,
    "resnet": _resnet,
    "cnn": _cnn,
    "spatial": _spatial,
    "binary": _binary,
    "embedding": _embedding,
    "transformer": _transformer,
}
"""Encoders by name. Most take a perceptron's ``hidden_sizes``, ``activation``, ``layer_norm`` and ``dropout``.
``nature_cnn`` and ``resnet`` take ``layer_norm`` only. ``cnn`` and ``spatial`` take ``convolutions`` as well (filters,
kernel and stride of each), ``spatial`` also ``start`` and ``values``, ``embedding`` a ``width``. ``transformer`` takes
``width``, ``heads``, ``layers`` and ``mask``."""


def _convolutions(of: _Settings, channels: int, height: int, width: int) -> Stack:
    layers: list[Layer] = []
    activation = of.table.word("activation", _ACTIVATIONS, of.body.activation)
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


def _discrete(of: _Settings, encoder: str) -> Discrete:
    if not isinstance(of.space, Discrete):
        raise ConfigError(
            f"--model: {of.table.name}encoder = {encoder!r} needs a Discrete, and the field {of.name} is a Box"
        )
    return of.space


def _box(name: str, space: Space) -> Box:
    if not isinstance(space, Box):
        raise ConfigError(f"--model: the field {name} is a Discrete: this encoder needs a Box")
    return space


class _Table:
    """A part of the table, whose keys are taken one by one.

    Args:
        prefix: its name with a dot behind it, for error texts.
        given: its keys and values.
    """

    def __init__(self, prefix: str, given: object) -> None:
        if not isinstance(given, dict):
            raise ConfigError(f"--model: {prefix.rstrip('.') or 'the model'} = {given!r} is no table")
        self.given: Mapping[str, Any] = given
        self.name = prefix
        self._asked: list[str] = []

    def end(self) -> None:
        """Raise ConfigError for the first key that nobody has asked for."""
        for key in self.given:
            if key not in self._asked:
                known = nearest(key, self._asked) or f"; known: {', '.join(self._asked)}"
                raise ConfigError(f"--model: there is no key {self.name}{key}{known}")

    def part(self, key: str) -> "_Table":
        """A table inside this one; empty if it is left out."""
        return _Table(f"{self.name}{key}.", self._taken(key, {}))

    def tables(self, key: str) -> Mapping[str, Any]:
        """Tables by names of the user's own."""
        return self.part(key).given

    def value(self, key: str, kind: type, default: Any) -> Any:  # noqa: ANN401 - of this type
        """A value of this type."""
        found = self._taken(key, default)
        if found is not default and not isinstance(found, kind):
            raise self._refused(key, found, {bool: "true or false", str: "text"}[kind])
        return found

    def word(self, key: str, words: Sequence[str], default: str | None) -> Any:  # noqa: ANN401 - one of the words
        """One of these words."""
        found = self._taken(key, default)
        if found not in words:
            raise self._refused(key, found, f"one of {', '.join(words)}")
        return found

    def whole_number(self, key: str, default: int | None, least: int | None = 1) -> int:
        """A whole number."""
        found = self._taken(key, default)
        if not _is_whole(found, least):
            raise self._refused(key, found, "a whole number" + ("" if least is None else f" of at least {least}"))
        return int(found)

    def share(self, key: str, default: float) -> float:
        """A number from 0 on, below 1."""
        found = self._taken(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1:
            raise self._refused(key, found, "a number from 0 on, below 1")
        return float(found)

    def whole_numbers(self, key: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list of whole numbers from 1 on."""
        found = self._taken(key, list(default))
        if not isinstance(found, list) or not all(_is_whole(value, 1) for value in found):
            raise self._refused(key, found, "a list of whole numbers of at least 1")
        return tuple(found)

    def triples(self, key: str, default: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """A list of three whole numbers each."""
        found = self._taken(key, [list(triple) for triple in default])
        fits = isinstance(found, list) and all(
            isinstance(triple, list) and len(triple) == 3 and all(_is_whole(value, 1) for value in triple)
            for triple in found
        )
        if not fits:
            raise self._refused(key, found, "a list of [filters, kernel, stride]")
        return [(filters, kernel, stride) for filters, kernel, stride in found]

    def _taken(self, key: str, default: Any) -> Any:  # noqa: ANN401 - whatever the user wrote
        self._asked.append(key)
        return self.given.get(key, default)

    def _refused(self, key: str, found: object, wanted: str) -> ConfigError:
        if found is None:
            for written in self.given:
                if written not in self._asked and (known := nearest(written, [key])):
                    return ConfigError(f"--model: there is no key {self.name}{written}{known}")
        was = "missing" if found is None else f"{found!r}"
        return ConfigError(f"--model: {self.name}{key} is {was}, and must be {wanted}")


def _is_whole(value: object, least: int | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
