"""Exports a user's own module as an ONNX graph, once for all parameters: they are inputs of the graph.

So processes that act need no torch. The export itself needs the package ``onnxscript``.
"""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from penstock.errors import ConfigError
from penstock.inference.onnx.backend import load_graph
from penstock.inference.onnx.own import CARRY, FIELD, OUTPUTS, PARAMETER, VALUE
from penstock.inference.onnx.recurrent import next_name
from penstock.inference.onnx.writer import OPSET
from penstock.policies import OwnModule
from penstock.torch_networks.own import called, constant
from penstock.torch_networks.own_trial import examples

__all__ = ["exported"]

_LIMIT = 300
_EXPORTED_WITH = 3
"""Rows of the made-up observations that a module is exported with."""
_TOLERANCE = 1e-3
"""Largest relative and absolute difference between torch and the exported graph: a wrong graph is farther off."""


class _Function(nn.Module):
    """The module as a function of its parameters, the fields and the carry: it has no parameters of its own."""

    def __init__(self, layer: OwnModule) -> None:
        super().__init__()
        self._layer = layer
        # In a list, so that its parameters are not parameters of this module.
        self._module = [constant(layer)]

    def forward(self, parameters: list[Tensor], fields: list[Tensor], carry: list[Tensor]) -> list[Tensor]:
        """Outputs, then the value if there is one, then the carry."""
        layer = self._layer
        named = {name: values for (name, _), values in zip(layer.parameters, parameters, strict=True)}
        before = {name: values for (name, _), values in zip(layer.memory, carry, strict=True)}
        answer = called(layer, self._module[0], named, fields, before)
        value = [] if answer.value is None else [answer.value]
        return [answer.outputs, *value, *(answer.carry[name] for name, _ in layer.memory)]


@lru_cache(maxsize=4)
def exported(layer: OwnModule) -> bytes:
    """The module as a serialised ONNX model; `penstock.inference.onnx.own` has the names of its inputs and outputs.

    Raises:
        ConfigError: an operation of the module has no counterpart in ONNX, or a package is missing.
    """
    try:
        import onnxscript  # noqa: F401, PLC0415 - torch needs it, and says so in many lines
    except ImportError as error:
        raise ConfigError(
            f"--model {layer.reference}: acting without torch needs the package onnxscript: "
            "pip install 'penstock[own-network]', or pass --inference torch"
        ) from error
    every = dict(constant(layer).named_parameters())
    parameters = [every[name].detach() for name, _ in layer.parameters]
    fields, carry = examples(layer, _EXPORTED_WITH)
    rows = torch.export.Dim("n", min=1)
    shapes: tuple[list[dict[int, object]], ...] = (
        [{}] * len(parameters),
        [{0: rows}] * len(fields),
        [{0: rows}] * len(carry),
    )
    names = [f"{PARAMETER}{place}" for place in range(len(parameters))]
    names += [f"{FIELD}{place}" for place in range(len(fields))]
    names += [f"{CARRY}{name}" for name in carry]
    outputs = [OUTPUTS, *([VALUE] if layer.gives_value else []), *(next_name(f"{CARRY}{name}") for name in carry)]
    try:
        with _quiet():
            program = torch.onnx.export(
                _Function(layer),
                (parameters, fields, list(carry.values())),
                dynamo=True,
                dynamic_shapes=shapes,
                opset_version=OPSET,
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
    except Exception as error:
        raise ConfigError(f"--model {layer.reference} cannot be exported to ONNX: {_why(error)}") from error
    if program is None:
        raise ConfigError(f"--model {layer.reference} cannot be exported to ONNX")
    found = _plain(layer, program.model_proto.SerializeToString())
    _try(layer, found, names, outputs)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch prints and logs to itself: optional packages that are not installed, whole graphs."""
    disabled, out = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _try(layer: OwnModule, model: bytes, names: Sequence[str], outputs: Sequence[str]) -> None:
    """Run the exported graph once, on more rows than it was exported with.

    Raises:
        ConfigError: it does not run, or answers otherwise than the module.
    """
    cause: Exception | None = None
    try:
        wrong = _differing(layer, model, names, outputs, slice(_EXPORTED_WITH + 2))
        problem = f"the exported graph answers other {wrong} than the module" if wrong else ""
    except Exception as error:  # noqa: BLE001 - ONNX Runtime raises many kinds, and the text names this one
        cause, problem = error, f"the exported graph does not run ({_shortened(' '.join(str(error).split()))})"
    if not problem:
        return
    say = f"--model {layer.reference} cannot be exported to ONNX:"
    if _depends_on_rows(layer, model, names, outputs):
        problem = "forward must not depend on the number of rows, nor go through them in Python, as with tolist()"
    raise ConfigError(f"{say} {problem}; try --inference torch") from cause


def _depends_on_rows(layer: OwnModule, model: bytes, names: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether a graph fails only because of the number of rows: with other values in as many rows it is right."""
    with contextlib.suppress(Exception):
        return not _differing(layer, model, names, outputs, slice(_EXPORTED_WITH, 2 * _EXPORTED_WITH))
    return False


def _differing(layer: OwnModule, model: bytes, names: Sequence[str], outputs: Sequence[str], rows: slice) -> str:
    """The first output of the exported graph that differs from the module's, for these made-up rows; empty if none."""
    fields, carry = examples(layer, rows.stop)
    every = dict(constant(layer).named_parameters())
    parameters = [every[name].detach() for name, _ in layer.parameters]
    fields, carried = [values[rows] for values in fields], [values[rows] for values in carry.values()]
    loaded = load_graph(model)
    # The export leaves out what the outputs do not depend on.
    taken = {one.name for one in loaded.get_inputs()}
    given = zip(names, [*parameters, *fields, *carried], strict=True)
    found = loaded.run(list(outputs), {name: values.numpy() for name, values in given if name in taken})
    with torch.no_grad():
        expected = _Function(layer)(parameters, fields, carried)
    for name, values, wanted in zip(outputs, found, expected, strict=True):
        if values.shape != tuple(wanted.shape) or not np.allclose(values, wanted.numpy(), _TOLERANCE, _TOLERANCE):
            return name.rpartition(".")[2]
    return ""


def _plain(layer: OwnModule, model: bytes) -> bytes:
    """The model without functions, and in ONNX's own operations only."""
    import onnx  # noqa: PLC0415
    import onnx.inliner  # noqa: PLC0415

    found = onnx.inliner.inline_local_functions(onnx.ModelProto.FromString(model))
    foreign = sorted({f"{node.domain}.{node.op_type}" for node in found.graph.node if node.domain})
    if foreign or found.opset_import[0].version != OPSET:
        what = foreign[0] if foreign else f"opset {found.opset_import[0].version}"
        raise ConfigError(
            f"--model {layer.reference} cannot be exported to ONNX: it needs {what}; try --inference torch"
        )
    return bytes(found.SerializeToString())


def _why(error: Exception) -> str:
    """What cannot be exported, in one line: an operation by its name, or the innermost error."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    text = " ".join(str(error).split())
    place = re.search(r'The following call raised this error: File "([^"]+)", line (\d+)', text)
    if "data-dependent" in text:
        where = f" ({place[1]}, line {place[2]})" if place else ""
        return f"a number decides there what is computed{where}: use torch.where; or try --inference torch"
    operation = re.search(r"(?:aten|prims|torchvision|custom)[.:]+[a-z_]\w*", text)
    if operation is not None and "No ONNX function" in text:
        text = f"ONNX has no operation for {operation.group()}"
    return f"{_shortened(text)}; try --inference torch"


def _shortened(text: str) -> str:
    """The text up to the end of a word, if it is too long."""
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT].rpartition(' ')[0]} ..."
