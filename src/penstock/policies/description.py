"""Reads a network from a table: ``--model my_net.toml``. The table has these parts, all of them optional.

    shared = true                # one network for actions and values; false: each has one of its own
    [fields.<name>]              # a field of the observation; "obs" for a plain one
    encoder = "resnet"           # and the settings of this encoder, see `penstock.policies.encoders`
    [trunk]                      # the MLP behind all fields
    hidden_sizes = [256]         # also: activation, layer_norm, dropout
    [memory]
    kind = "lstm"                # or "gru"
    size = 256

A field without a part is encoded as without a table. A key that is unknown is an error of one line.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.config.tables import inlined
from penstock.errors import ConfigError, nearest
from penstock.policies.description_keys import Keys
from penstock.policies.encoders import ACTIVATIONS, ENCODERS, Described, box_of
from penstock.policies.encoding import Encoding
from penstock.policies.network import Branch
from penstock.policies.stacks import hidden
from penstock.policies.trunk import MEMORIES, Body, Trunk, memory_of, trunk_of
from penstock.types import Box, Space, Spaces

__all__ = ["decided", "names_memory", "names_module", "trunk_described"]


def names_module(model: str) -> bool:
    """Whether a model is ``module:attribute``, and not a name or a table as JSON."""
    return ":" in model and not model.startswith("{")


def names_memory(model: str) -> bool:
    """True if the name of a model, or its table, puts a memory behind the encoder. A module is not looked at.

    Raises:
        ConfigError: the table cannot be read.
    """
    described = inlined(model)
    return "memory" in _table(described) if described.startswith("{") else described.split("+")[-1] in MEMORIES


def decided(model: str, encoding: Sequence[Encoding]) -> dict[str, str]:
    """Settings that a table decides -> where it does so.

    Args:
        model: the table as JSON.
        encoding: how the fields enter.

    Raises:
        ConfigError: it is no JSON.
    """
    table = _table(model)
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
        body: ``model`` is the table as JSON; the other settings are used where the table leaves them out.

    Raises:
        ConfigError: a key is unknown or a value does not fit; the text names the key.
        SpaceError: an encoder does not serve its field.
    """
    table = Keys("", _table(body.model))
    parts = table.tables("fields")
    names = [name.removeprefix("obs.") for name, _ in spaces.seen]
    for name in parts:
        if name not in names:
            known = nearest(name, names) or f"; the fields are {', '.join(names)}"
            raise ConfigError(f"--model: there is no field {name!r}{known}")
    above, memory = table.part("trunk"), table.part("memory")
    shared = table.value("shared", bool, None)
    table.end()
    seen = _seen(spaces, body, {name: Keys(f"fields.{name}.", part) for name, part in parts.items()})
    sizes = above.whole_numbers("hidden_sizes", body.hidden_sizes)
    activation = above.word("activation", ACTIVATIONS, body.activation)
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


def _table(model: str) -> Any:  # noqa: ANN401 - whatever the user wrote
    try:
        return json.loads(model)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--model: the table is no JSON: {error}") from error


class _Seen(NamedTuple):
    """How the fields enter, and their branches."""

    encoding: tuple[Encoding, ...]
    branches: tuple[Branch, ...]


def _seen(spaces: Spaces, body: Body, tables: Mapping[str, Keys]) -> _Seen:
    masks = {f"{_prefix(spaces)}{table.given['mask']}" for table in tables.values() if "mask" in table.given}
    encoding: list[Encoding] = []
    branches: list[Branch] = []
    plain: list[str] = []
    for name, space in spaces.seen:
        table = tables.get(name.removeprefix("obs."))
        if name in masks:
            if table is not None:
                raise ConfigError(
                    f"--model: {table.name.rstrip('.')} is the mask of another field and takes no part of its own"
                )
            encoding.append(Encoding(name, "mask", box_of(name, space).size, shape=box_of(name, space).shape))
        elif table is None:
            alone = Body("auto", (), body.activation, layer_norm=body.layer_norm)
            found = trunk_of(Spaces(((name, space),), spaces.action), alone)
            encoding += found.encoding
            if found.branches:
                branches += found.branches
            else:
                plain.append(name)
        else:
            encoder = table.word("encoder", tuple(ENCODERS), None)
            settings = Described(name, space, table, body)
            part, stack = ENCODERS[encoder](settings)
            mask = table.value("mask", str, "") if part.kind == "set" else ""
            table.end()
            if mask:
                _check_mask(table, space, dict(spaces.seen).get(f"{_prefix(spaces)}{mask}"))
            encoding.append(part)
            branches.append(Branch((name,), stack.layers, stack.features, mask and f"{_prefix(spaces)}{mask}"))
    if plain:
        branches.append(Branch(tuple(plain), (), sum(part.size for part in encoding if part.field in plain)))
    return _Seen(tuple(encoding), tuple(branches))


def _check_mask(table: Keys, space: Space, mask: Space | None) -> None:
    """Check that the field that is the mask of a set has a number for each entity."""
    name, entities = table.given["mask"], box_of(table.name, space).shape[0]
    if mask is None:
        raise ConfigError(f"--model: there is no field {name!r} to be a mask")
    if not isinstance(mask, Box) or mask.shape != (entities,):
        has = f"is {list(mask.shape)}" if isinstance(mask, Box) else "is a Discrete"
        raise ConfigError(f"--model: {table.name}mask = {name!r} {has}, and the set has {entities} entities")


def _prefix(spaces: Spaces) -> str:
    return "" if spaces.seen[0][0] == "obs" else "obs."
