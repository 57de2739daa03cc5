"""Describes a user's own ``torch.nn.Module`` as plain data, after a look at its answers to made-up observations."""

import inspect
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from penstock.errors import ConfigError
from penstock.policies import OwnModule
from penstock.policies.encoding import ACTION
from penstock.torch_networks.own import Answer, a_thing, arguments, constants, learned, made, told
from penstock.types import Array, Discrete, Spaces

__all__ = ["carry_of", "critic_described", "described", "examples"]

_MANY = 33
"""Rows of the largest batch that a module is tried with. It only has to be more than a few, not the size of a run's."""


@lru_cache(maxsize=8)
def described(reference: str, spaces: Spaces, outputs: int, *, gives_value: bool) -> OwnModule:
    """The module that a policy is, as plain data.

    Args:
        reference: ``module:attribute`` of ``make_policy(spaces, outputs)``.
        spaces: the spaces of one lane.
        outputs: number of the head's outputs.
        gives_value: the module gives a value beside the outputs.

    Raises:
        ConfigError: it is no module that can be learned with; the text says why.
    """
    module = made(reference, spaces, outputs, 0)
    own, critic = type(module), ""
    if getattr(own, "critic", None) is not None:
        critic = f"{own.__module__}:{own.__qualname__}.critic"
    fields = tuple(name for name, _ in spaces.obs)
    layer = OwnModule(
        reference,
        outputs,
        gives_value,
        fields,
        _parameters(reference, module),
        _carry(reference, module),
        spaces,
        critic,
    )
    _check_constants(reference, module, made(reference, spaces, outputs, 0))
    _check(layer, module)
    return layer


@lru_cache(maxsize=8)
def carry_of(reference: str, spaces: Spaces, outputs: int) -> tuple[tuple[str, int], ...]:
    """Name and width of each array of a module's carry; empty if it has no memory. Arguments as for `described`.

    Raises:
        ConfigError: it makes no module, or its carry names no widths.
    """
    return _carry(reference, made(reference, spaces, outputs, 0))


@lru_cache(maxsize=8)
def critic_described(actor: OwnModule, outputs: int) -> OwnModule:
    """The critic that the class of ``actor`` names, as plain data. It has ``outputs`` outputs.

    Raises:
        ConfigError: as `described`.
    """
    spaces = cast("Spaces", actor.spaces)
    module = made(actor.critic, spaces, outputs, 0)
    if _carry(actor.critic, module):
        raise ConfigError(f"--model {actor.critic} has a carry, and critics of one's own have no memory: leave it out")
    parameters = _parameters(actor.critic, module)
    layer = OwnModule(
        actor.critic,
        outputs,
        gives_value=False,
        fields=(*actor.fields, ACTION),
        parameters=parameters,
        memory=(),
        spaces=spaces,
        critic="",
    )
    _check_constants(actor.critic, module, made(actor.critic, spaces, outputs, 0))
    _check(layer, module)
    return layer


def _parameters(reference: str, module: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Name and shape of each parameter that learns.

    Raises:
        ConfigError: there is none, or one has no shape yet or another dtype than float32.
    """
    for name, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            raise ConfigError(
                f"--model {reference}: {name} has no shape yet, as in nn.LazyLinear: call that layer once in __init__ "
                "with a sample, such as torch.zeros(1, width)"
            )
    named = learned(module)
    if not named:
        raise ConfigError(f"--model {reference}: the module has no parameters that learn")
    for name, parameter in named.items():
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(f"--model {reference}: its parameter {name} is {kind}; make it float32")
    return tuple((name, tuple(parameter.shape)) for name, parameter in named.items())


def _check_constants(reference: str, module: nn.Module, again: nn.Module) -> None:
    """Compare two modules that were made with the same seed. Each process makes its own, and all must be the same.

    Raises:
        ConfigError: a buffer or a frozen parameter differs.
    """
    others = constants(again, learned(again))
    for name, values in constants(module, learned(module)).items():
        if name not in others or not torch.equal(values, others[name]):
            raise ConfigError(
                f"--model {reference} makes {name} differently each time: make it with torch, or from a fixed seed"
            )


def _carry(reference: str, module: nn.Module) -> tuple[tuple[str, int], ...]:
    """Name and width of each array of the carry.

    Raises:
        ConfigError: the module says something else than widths by name.
    """
    carry = getattr(module, "carry", {})
    if not isinstance(carry, Mapping) or not all(isinstance(size, int) and size > 0 for size in carry.values()):
        raise ConfigError(f'--model {reference}: carry = {carry!r} does not name widths; write carry = {{"h": 64}}')
    return tuple(carry.items())


def examples(layer: OwnModule, count: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Observation fields ``[count, ...]``, of a critic also actions, and a carry: made up."""
    spaces, generator = cast("Spaces", layer.spaces), np.random.default_rng(0)
    fields = []
    for (_, space), spec in zip(spaces.obs, spaces.obs_specs(), strict=True):
        shape = (count, *spec.shape)
        if isinstance(space, Discrete):
            values: Array = generator.integers(space.start, space.start + space.n, shape)
        else:
            low, high = (np.resize(bound, spec.shape) for bound in (space.low, space.high))
            # From -1 to 3, or four units at the bound that is nearest to that.
            least, most = np.maximum(low, np.minimum(-1.0, high - 4.0)), np.minimum(high, np.maximum(3.0, low + 4.0))
            values = generator.uniform(least, most, shape)
        fields.append(torch.as_tensor(values.astype("float32" if "float" in spec.dtype else spec.dtype)))
    if layer.takes_action:
        actions = generator.uniform(-1.0, 1.0, (count, math.prod(spaces.action_spec().shape)))
        fields.append(torch.as_tensor(actions.astype("float32")))
    return fields, {name: torch.ones(count, size) for name, size in layer.memory}


def _keys(layer: OwnModule) -> list[str]:
    """The keys of the dict of observations that ``forward`` takes; none if it takes one tensor."""
    return [name.removeprefix("obs.") for name in layer.fields if name not in {"obs", ACTION}]


def _check(layer: OwnModule, module: nn.Module) -> None:
    """Look at the module's answers to a few made-up observations.

    Raises:
        ConfigError: an answer is not what a policy gives; the text says what it is.
    """
    say = f"--model {layer.reference}: forward"
    if not layer.memory and "carry" in inspect.signature(module.forward).parameters:
        raise ConfigError(
            f'{say} takes a carry that is not declared: write carry = {{"h": 64}} on the class, or on the function '
            "that makes the module"
        )
    parameters = {name: parameter.detach() for name, parameter in learned(module).items()}
    fields, carry = examples(layer, _MANY)

    def answered(count: int, *, recording: bool = False) -> Answer:
        given = {name: values[:count].clone() for name, values in carry.items()}
        seen = [values[:count].clone() for values in fields]
        try:
            with torch.set_grad_enabled(recording):
                found = functional_call(module, parameters, arguments(layer, seen, given))
        except Exception as error:
            keys = _keys(layer)
            has = f"; the observation has {', '.join(keys)}" if keys and isinstance(error, KeyError) else ""
            raise ConfigError(f"--model {layer.reference}: {told(error, type(module).forward)}{has}") from error
        if not all(torch.equal(after, values[:count]) for after, values in zip(seen, fields, strict=True)):
            raise ConfigError(f"{say} changes what it is given: make a new tensor, as obs = obs * 2 and not obs *= 2")
        return _answer_of(layer, found, count)

    def answered_with_one_seed() -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return answered(3).outputs

    whole = answered(3)
    for name, values in (("outputs", whole.outputs), ("a value", whole.value), *whole.carry.items()):
        if values is not None and not bool(torch.isfinite(values).all()):
            raise ConfigError(f"{say} gives {name} that {'is' if name == 'a value' else 'are'} not finite")
    if not torch.equal(whole.outputs, answered(3).outputs):
        random = torch.equal(answered_with_one_seed(), answered_with_one_seed())
        why = "be random" if random else "keep anything between two calls but the carry, such as a counter"
        raise ConfigError(f"{say} answers the same observations differently the second time: it must not {why}")
    if not torch.allclose(whole.outputs, answered(3, recording=True).outputs.detach(), rtol=1e-3, atol=1e-4):
        raise ConfigError(f"{say} answers otherwise while gradients are recorded: it must not ask is_grad_enabled()")
    for count in (1, _MANY):
        if not torch.allclose(whole.outputs[:count], answered(count).outputs[:3], rtol=1e-3, atol=1e-4):
            raise ConfigError(f"{say} answers one row differently when others stand beside it: rows must not mix")
    before = {name: values.clone() for name, values in module.named_buffers()}
    module.train()
    try:
        answered(3)
    finally:
        module.eval()
    for name, values in module.named_buffers():
        if not torch.equal(values, before[name]):
            raise ConfigError(
                f"{say} changes the buffer {name} in training, and buffers must be constant: use a layer without "
                "running statistics, such as LayerNorm or GroupNorm"
            )


def _answer_of(layer: OwnModule, found: object, rows: int) -> Answer:
    """What ``forward`` returned, in the shapes that a policy needs.

    Raises:
        ConfigError: it returned something else.
    """
    say = f"--model {layer.reference}: forward"
    wanted = ["outputs", *(["value"] if layer.gives_value else []), *(["carry"] if layer.memory else [])]
    parts = list(found) if isinstance(found, tuple) else [found]
    if len(parts) != len(wanted):
        returned = f"{len(parts)} things" if isinstance(found, tuple) else f"one {type(found).__name__}"
        alone = "" if layer.gives_value else ", without a value"
        raise ConfigError(f"{say} returns {returned}; it must return {', '.join(wanted)}{alone}")
    carry = parts[-1] if layer.memory else {}
    if not isinstance(carry, Mapping) or carry.keys() != dict(layer.memory).keys():
        given = sorted(carry) if isinstance(carry, Mapping) else type(carry).__name__
        raise ConfigError(f"{say} returns the carry {given}; the class says carry = {dict(layer.memory)}")
    shapes: list[tuple[str, object, tuple[int, ...]]] = [("outputs", parts[0], (rows, layer.outputs))]
    if layer.gives_value:
        shapes.append(("the value", parts[1], (rows,)))
    shapes += [(f"the carry {name}", carry[name], (rows, size)) for name, size in layer.memory]
    for name, values, shape in shapes:
        if not isinstance(values, Tensor):
            raise ConfigError(f"{say} returns {a_thing(values)} for {name}, and not a tensor")
        if tuple(values.shape) != shape or values.dtype != torch.float32:
            kind = str(values.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{say} returns {name} as {kind} {list(values.shape)} for {rows} rows; they must be float32 "
                f"{list(shape)}"
            )
    value = parts[1] if layer.gives_value else None
    return Answer(cast("Tensor", parts[0]), cast("Tensor | None", value), dict(carry))
