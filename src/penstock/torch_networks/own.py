"""A user's own ``torch.nn.Module`` as a network: made, and run on views of a flat vector.

The module is a function of its parameters: buffers and frozen parameters are constants, and nothing in it is random. So
it runs in ``eval`` mode, and its constants are those of a module that is made with the seed 0, whatever the run's seed.
"""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from penstock.envs.imports import find_callable
from penstock.errors import ConfigError
from penstock.policies import OwnModule
from penstock.torch_networks.layers import Memory
from penstock.types import Array, Spaces

__all__ = [
    "Answer",
    "OwnForward",
    "a_thing",
    "arguments",
    "called",
    "constant",
    "constants",
    "initial",
    "learned",
    "made",
    "told",
]

Observation: TypeAlias = Tensor | dict[str, Tensor]
"""One tensor for a plain observation, else a dict by the names of the fields."""
_MESSAGE_LIMIT = 300
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
            raise ConfigError(f"--model {reference}: {told(error, make)}") from error
    if not isinstance(found, nn.Module):
        raise ConfigError(f"--model {reference} makes {a_thing(found)}, and not a torch.nn.Module")
    return found.eval()


def learned(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name. One that the user has frozen (``requires_grad`` is false) is a constant."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def constants(module: nn.Module, names: Collection[str]) -> dict[str, Tensor]:
    """The buffers, and the parameters that are not among ``names``, which learn."""
    found: dict[str, Tensor] = {name: values for name, values in module.named_parameters() if name not in names}
    return found | dict(module.named_buffers())


def initial(layer: OwnModule, seed: int) -> list[Array]:
    """The parameters of a module that is made with ``seed``, in order."""
    module = made(layer.reference, cast("Spaces", layer.spaces), layer.outputs, seed)
    return [parameter.detach().numpy().copy() for parameter in learned(module).values()]


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
        # The shared module stays on the CPU, so a call there needs no others.
        self._constants: dict[torch.device, dict[str, Tensor]] = {torch.device("cpu"): {}}

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
        # Put the parameters into the module once for all steps: that takes longer than a step of a small module.
        values = self._constants_on(parts[0].device) | dict(zip(self._names, parts, strict=False))
        outputs, after = functional_call(self._steps, values, (tuple(fields), first, carry))
        return outputs, {full: after[name] for full, name in self._carry.items()}

    def _constants_on(self, device: torch.device) -> dict[str, Tensor]:
        """What takes the place of the module's own constants on this device."""
        if device not in self._constants:
            found = constants(self._steps, self._names)
            self._constants[device] = {name: values.to(device) for name, values in found.items()}
        return self._constants[device]


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
        return _named(self._layer, self.module(*arguments(self._layer, fields, carry)))


def _joined(answer: Answer) -> Tensor:
    if answer.value is None:
        return answer.outputs
    return torch.cat((answer.outputs, answer.value.unsqueeze(1)), 1)


def called(
    layer: OwnModule,
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    fields: Sequence[Tensor],
    carry: dict[str, Tensor],
) -> Answer:
    """One call of ``forward`` with these parameters."""
    return _named(layer, functional_call(module, dict(parameters), arguments(layer, fields, carry)))


def arguments(layer: OwnModule, fields: Sequence[Tensor], carry: dict[str, Tensor]) -> tuple[Any, ...]:
    """What ``forward`` takes: the observation; of a critic the action; with a memory the carry."""
    action, seen = (tuple(fields[-1:]), fields[:-1]) if layer.takes_action else ((), fields)
    names = layer.fields[: len(seen)]
    observation: Observation = (
        seen[0]
        if names == ("obs",)
        else {name.removeprefix("obs."): values for name, values in zip(names, seen, strict=True)}
    )
    return (observation, *action, *((carry,) if layer.memory else ()))


def _named(layer: OwnModule, found: Tensor | tuple[Any, ...]) -> Answer:
    """What ``forward`` returned, by its names; its shapes were checked once, when the module was described."""
    if isinstance(found, Tensor):
        return Answer(found, None, {})
    return Answer(found[0], found[1] if layer.gives_value else None, found[-1] if layer.memory else {})


def told(error: Exception, function: Callable[..., Any]) -> str:
    """An error of a user's code in one line, with its place: where the user's code calls torch, if torch raised it.

    ``function`` is what was called. Its first line is the place if it does not take the arguments.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(_TORCH)]
    file, line = (own or frames)[-1].filename, (own or frames)[-1].lineno
    if Path(file).parent == Path(__file__).parent:
        # Functions that were made while running have no source.
        with contextlib.suppress(OSError, TypeError):
            file, line = inspect.getfile(function), inspect.getsourcelines(function)[1]
    text = " ".join(str(error).split())[:_MESSAGE_LIMIT]
    return f"{type(error).__name__}: {text} ({file}, line {line})"


def a_thing(value: object) -> str:
    """The type of a value for a sentence: "an int", "a list", "None"."""
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"
