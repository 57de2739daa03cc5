"""What a bundle holds: the names of its files, and the facts of its manifest as JSON. Reads and writes no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from penstock.inference.onnx import FIRST, OPSET, leaf_name, next_name
from penstock.policies import PolicyGraph
from penstock.serving.bundle import spaces as json_spaces
from penstock.types import Array, Arrays, ArraySpec, Composite, Discrete, Leaf, Spaces

__all__ = ["FORMAT", "GRAPHS", "MOBILE", "PARAMETERS", "PROGRAM", "SAMPLE", "Facts", "Port", "ports_of"]

FORMAT = 1
"""Number of the format. It grows by one with each change that an older penstock cannot read."""
GRAPHS = {"fp32": "policy.onnx", "int8": "policy.int8.onnx", "fp16": "policy.fp16.onnx"}
"""Precision -> file of the graph."""
MOBILE = "policy.ort"
"""The graph that acts, in ONNX Runtime's own format."""
SAMPLE = "sample.npz"
PARAMETERS = "parameters.safetensors"
PROGRAM = "policy.pt2"
"""The policy as a program of ``torch.export``."""

Role: TypeAlias = Literal["observation", "action_mask", "first", "carry", "noise", "explore", "action", "result"]


@dataclass(frozen=True)
class Port:
    """One named input or output of a bundle's graphs. Arrays are ``[n, *shape]``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Facts:
    """The facts of a manifest besides its files."""

    run: Mapping[str, Any]
    """The run, its algorithm, its environment; the checkpoint with its update and steps.

    If the environment is a game, also ``agent``: the ``arguments`` of its constructor, and the ``hooks`` that its class
    overrides.
    """
    penstock: str
    """The version that exported it."""
    precision: str
    """The graph that acts where no other is asked for: a key of `GRAPHS`."""
    spaces: Spaces
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def carry(self) -> tuple[ArraySpec, ...]:
        """What the policy remembers of one lane."""
        return tuple(ArraySpec(port.name, port.shape, port.dtype) for port in self.inputs if port.role == "carry")

    def filled(self, given: Mapping[str, Array]) -> Arrays:
        """All inputs ``[n, ...]``, in their dtypes. Those that only make actions explore may be left out: they are 0.

        Other arrays in ``given`` are ignored.
        """
        n = len(next(iter(given.values())))
        return {
            port.name: np.ascontiguousarray(given[port.name], port.dtype)
            if port.name in given or port.role not in {"noise", "explore"}
            else np.zeros((n, *port.shape), port.dtype)
            for port in self.inputs
        }

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kind": "policy",
            "penstock": self.penstock,
            "run": dict(self.run),
            "precision": self.precision,
            "opset": OPSET,
            "inputs": [_port_json(port) for port in self.inputs],
            "outputs": [_port_json(port) for port in self.outputs],
            "spaces": json_spaces.to_json(self.spaces),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Facts":
        """The facts that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it did not write this.
        """
        if found["kind"] != "policy":
            raise ValueError(f"a manifest of kind {found['kind']!r}")
        inputs, outputs = (tuple(map(_read_port, found[name])) for name in ("inputs", "outputs"))
        spaces = json_spaces.from_json(found["spaces"])
        run = dict(found["run"])
        # Others read these without a check.
        run |= {name: str(run[name]) for name in ("name", "algorithm", "env", "checkpoint")}
        run["update"] = int(run["update"])
        if "agent" in run:
            agent = run["agent"]
            run["agent"] = {"arguments": dict(agent["arguments"]), "hooks": list(map(str, agent["hooks"]))}
        return cls(run, str(found["penstock"]), str(found["precision"]), spaces, inputs, outputs)


def ports_of(graph: PolicyGraph, spaces: Spaces, *, noise: bool) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs of ``penstock.inference.onnx.export``."""
    remembers = [Port(FIRST, "bool", (), "first")] if graph.carry else []
    remembers += [Port(spec.name, spec.dtype, spec.shape, "carry") for spec in graph.carry]
    fields = [
        Port(spec.name, spec.dtype, spec.shape, "action_mask" if spec.name == spaces.mask else "observation")
        for spec in spaces.obs_specs()
    ]
    exploring: list[Port] = []
    if noise:
        exploring = [Port("noise", "float32", graph.noise.shape, "noise"), Port("explore", "float32", (), "explore")]
    widths = {"q": spaces.action.choices}
    results = [Port(name, "float32", widths.get(name, ()), "result") for name in graph.outputs if name != "action"]
    after = [Port(next_name(spec.name), spec.dtype, spec.shape, "carry") for spec in graph.carry]
    return (*fields, *remembers, *exploring), (*_actions(spaces), *results, *after)


def _actions(spaces: Spaces) -> Sequence[Port]:
    if not isinstance(spaces.action, Composite):
        return [_action("action", spaces.action)]
    return [_action(leaf_name(path), leaf) for path, leaf in spaces.action.leaves]


def _action(name: str, leaf: Leaf) -> Port:
    if isinstance(leaf, Discrete):
        return Port(name, "int64", (), "action")
    return Port(name, leaf.dtype, leaf.shape, "action")


def _port_json(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": ["n", *port.shape], "role": port.role}


def _read_port(found: Mapping[str, Any]) -> Port:
    rows, *shape = found["shape"]
    if rows != "n":
        raise ValueError("the first axis is n")
    return Port(str(found["name"]), str(found["dtype"]), tuple(map(int, shape)), found["role"])
