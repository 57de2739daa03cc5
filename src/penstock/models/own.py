"""A user's own ``torch.nn.Module`` as the network of a policy: made, checked, and run on views of a flat vector.

The module is a function of its parameters: buffers and frozen parameters are constants, and nothing in it is random. So
it runs in ``eval`` mode, and its constants are those of a module that is made with the seed 0, whatever the run's seed.
"""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from penstock.envs.imports import find_callable
from penstock.errors import ConfigError
from penstock.models.layers import Memory
from penstock.policies import OwnModule
from penstock.types import Array, Discrete, Spaces

__all__ = ["OwnForward", "called", "constant", "described", "examples", "initial", "made", "observation_of"]

Observation: TypeAlias = Tensor | dict[str, Tensor]
"""What ``forward`` takes."""
_MESSAGE_LIMIT = 300
_MANY = 33
"""Rows of the largest batch that a module is tried with. No batch of real runs is meant: only more than a few."""
_TORCH = Path(torch.__file__).parent


class Answer(NamedTuple):
    """What a module's ``forward`` returns."""

    outputs: Tensor
    value: Tensor | None
    carry: dict[str, Tensor]


def made(reference: str, spaces: Spaces, outputs: int, seed: int) -> nn.Module:
    """A new module, in ``eval`` mode, with initial values from ``seed``.

    Raises:
        ConfigError: there is no such function, or it makes no module.
    """
    make = find_callable(reference, "model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            found = make(spaces, outputs)
        except Exception as error:
            raise ConfigError(f"--model {reference}: {_told(error, make)}") from error
    if not isinstance(found, nn.Module):
        raise ConfigError(f"--model {reference} makes {_a_thing(found)}, and not a torch.nn.Module")
    return found.eval()


@lru_cache(maxsize=8)
def described(reference: str, spaces: Spaces, outputs: int, *, gives_value: bool) -> OwnModule:
    """The module as plain data, after a look at what it does with a few observations.

    Args:
        reference: ``module:attribute`` of ``make_policy(spaces, outputs)``.
        spaces: the spaces of one lane.
        outputs: number of the head's outputs.
        gives_value: the module gives a value beside the outputs.

    Raises:
        ConfigError: it is no module that can be learned with; the text says why.
    """
    module = made(reference, spaces, outputs, 0)
    for name, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            raise ConfigError(
                f"--model {reference}: {name} has no shape yet, as in nn.LazyLinear: call that layer once in __init__ "
                "with a sample, such as torch.zeros(1, width)"
            )
    named = _learned(module)
    if not named:
        raise ConfigError(f"--model {reference}: the module has no parameters that learn")
    for name, parameter in named.items():
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(f"--model {reference}: its parameter {name} is {kind}; make it float32")
    carry = getattr(module, "carry", {})
    if not isinstance(carry, Mapping) or not all(isinstance(size, int) and size > 0 for size in carry.values()):
        raise ConfigError(f'--model {reference}: carry = {carry!r} does not name widths; write carry = {{"h": 64}}')
    if carry and not gives_value:
        raise ConfigError(
            f"--model {reference} has a memory, its carry: only ppo, a2c, a3c, impala and appo learn with one"
        )
    layer = OwnModule(
        reference,
        outputs,
        gives_value,
        tuple(name for name, _ in spaces.obs),
        tuple((name, tuple(parameter.shape)) for name, parameter in named.items()),
        tuple(carry.items()),
        spaces,
    )
    _check(layer, module)
    return layer


def _learned(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name. One that the user has frozen (``requires_grad`` is false) is a constant."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def initial(layer: OwnModule, seed: int) -> list[Array]:
    """The parameters of a module that is made with ``seed``, in order."""
    module = made(layer.reference, cast("Spaces", layer.spaces), layer.outputs, seed)
    return [parameter.detach().numpy().copy() for parameter in _learned(module).values()]


@lru_cache(maxsize=8)
def constant(layer: OwnModule) -> nn.Module:
    """The module whose structure, buffers and frozen parameters all calls of this process share."""
    module = made(layer.reference, cast("Spaces", layer.spaces), layer.outputs, 0)
    return module.requires_grad_(requires_grad=False)


class OwnForward:
    """``(arrays, fields, memory) -> (outputs with the value behind them, carry)``.

    Args:
        layer: the module.
        network: name of its network; it names the carry.
    """

    def __init__(self, layer: OwnModule, network: str) -> None:
        self._layer = layer
        self._carry = {f"carry.{network}.0.{name}": name for name, _ in layer.memory}
        self._steps = _Steps(layer)
        self._names = [f"module.{name}" for name, _ in layer.parameters]

    def __call__(
        self, parts: Sequence[Tensor], fields: Sequence[Tensor], memory: Memory | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the module; with memory, step after step.

        Args:
            parts: the parameters in order; further arrays are ignored.
            fields: the observation fields ``[n, ...]`` in order.
            memory: needed by a module with a carry.
        """
        if self._carry and memory is None:
            raise ValueError(f"the module {self._layer.reference} has a carry and needs its memory")
        if memory is None or not self._carry:
            first, carry = None, {}
        else:
            first, carry = memory.first, {name: memory.carry[full] for full, name in self._carry.items()}
        # The parameters take their places once for all steps: that costs more than a small module does.
        outputs, after = functional_call(
            self._steps, dict(zip(self._names, parts, strict=False)), (tuple(fields), first, carry)
        )
        return outputs, {full: after[name] for full, name in self._carry.items()}


class _Steps(nn.Module):
    """A user's module, step after step where it has a carry."""

    def __init__(self, layer: OwnModule) -> None:
        super().__init__()
        self._layer = layer
        self.module = constant(layer)

    def forward(
        self, fields: tuple[Tensor, ...], first: Tensor | None, carry: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs ``[n, ...]`` with the value behind them, and the carry behind the last step of each lane.

        Args:
            fields: the observation fields ``[n, ...]`` in order; with a carry, n is lanes times steps, lanes first.
            first: ``[lanes, steps]``, whether an episode begins there; ``None`` without a carry.
            carry: name -> ``[lanes, width]``.
        """
        if first is None:
            return _joined(self._step(fields, {})), {}
        by_lane = [values.view(*first.shape, *values.shape[1:]) for values in fields]
        outputs = []
        for t in range(first.shape[1]):
            keep = (~first[:, t]).unsqueeze(1)
            before = {name: values * keep.to(values.dtype) for name, values in carry.items()}
            answer = self._step([values[:, t] for values in by_lane], before)
            carry = {name: answer.carry[name] for name in carry}
            outputs.append(_joined(answer))
        return torch.stack(outputs, 1).flatten(0, 1), carry

    def _step(self, fields: Sequence[Tensor], carry: dict[str, Tensor]) -> Answer:
        return _named(self._layer, self.module(*_arguments(self._layer, fields, carry)))


def _joined(answer: Answer) -> Tensor:
    if answer.value is None:
        return answer.outputs
    return torch.cat((answer.outputs, answer.value.unsqueeze(1)), 1)


def observation_of(layer: OwnModule, fields: Sequence[Tensor]) -> Observation:
    """What ``forward`` takes: one tensor for a plain observation, else a dict by the names of the fields."""
    if layer.fields == ("obs",):
        return fields[0]
    return {name.removeprefix("obs."): values for name, values in zip(layer.fields, fields, strict=True)}


def called(
    layer: OwnModule,
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    fields: Sequence[Tensor],
    carry: dict[str, Tensor],
) -> Answer:
    """One call of ``forward`` with these parameters."""
    return _named(layer, functional_call(module, dict(parameters), _arguments(layer, fields, carry)))


def _arguments(layer: OwnModule, fields: Sequence[Tensor], carry: dict[str, Tensor]) -> tuple[Any, ...]:
    observation = observation_of(layer, fields)
    return (observation, carry) if layer.memory else (observation,)


def _named(layer: OwnModule, found: Tensor | tuple[Any, ...]) -> Answer:
    """What ``forward`` returned, by its names; its shapes were checked once, when the module was described."""
    if isinstance(found, Tensor):
        return Answer(found, None, {})
    return Answer(found[0], found[1], found[2] if layer.memory else {})


def _told(error: Exception, function: Callable[..., Any]) -> str:
    """An error of a user's code in one line, with its place: where the user's code calls torch, if torch raised it.

    ``function`` is what was called. Its first line is the place if it does not take the arguments.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(_TORCH)]
    file, line = (own or frames)[-1].filename, (own or frames)[-1].lineno
    if file == __file__:
        # Functions that were made while running have no source.
        with contextlib.suppress(OSError, TypeError):
            file, line = inspect.getfile(function), inspect.getsourcelines(function)[1]
    text = " ".join(str(error).split())[:_MESSAGE_LIMIT]
    return f"{type(error).__name__}: {text} ({file}, line {line})"


def _a_thing(value: object) -> str:
    """The type of a value for a sentence: "an int", "a list", "None"."""
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def examples(layer: OwnModule, count: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Observation fields ``[count, ...]`` and a carry, made up."""
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
    return fields, {name: torch.ones(count, size) for name, size in layer.memory}


def _check(layer: OwnModule, module: nn.Module) -> None:
    """Look at the module's answers to a few made-up observations.

    Raises:
        ConfigError: an answer is not what a policy gives; the text says what it is.
    """
    say = f"--model {layer.reference}: forward"
    parameters = {name: parameter.detach() for name, parameter in _learned(module).items()}
    fields, carry = examples(layer, _MANY)

    def answered(count: int) -> Answer:
        given = {name: values[:count].clone() for name, values in carry.items()}
        seen = [values[:count].clone() for values in fields]
        arguments = (observation_of(layer, seen), given)
        try:
            with torch.no_grad():
                found = functional_call(module, parameters, arguments if layer.memory else arguments[:1])
        except Exception as error:
            raise ConfigError(f"--model {layer.reference}: {_told(error, type(module).forward)}") from error
        if not all(torch.equal(after, values[:count]) for after, values in zip(seen, fields, strict=True)):
            raise ConfigError(
                f"{say} changes the observation that it is given: make a new tensor, as obs = obs * 2 and not obs *= 2"
            )
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
            raise ConfigError(f"{say} returns {_a_thing(values)} for {name}, and not a tensor")
        if tuple(values.shape) != shape or values.dtype != torch.float32:
            kind = str(values.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{say} returns {name} as {kind} {list(values.shape)} for {rows} rows; they must be float32 "
                f"{list(shape)}"
            )
    value = parts[1] if layer.gives_value else None
    return Answer(cast("Tensor", parts[0]), cast("Tensor | None", value), dict(carry))
