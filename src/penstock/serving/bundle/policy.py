"""The policy of a bundle: acts by ONNX Runtime, without its run, its environment and torch."""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.errors import BundleError, DeviceError
from penstock.inference.onnx import CPU, load_graph, next_name, run_rows
from penstock.kernels.actions import environment_array
from penstock.serving.bundle.contents import Facts
from penstock.serving.bundle.reading import Bundle
from penstock.serving.policy import Lanes, Policy
from penstock.types import Array, Arrays, Composite

__all__ = ["BundlePolicy", "GraphRunner"]


class GraphRunner:
    """Runs one graph of a bundle on arrays by name.

    Args:
        bundle: where the graph is.
        model: the graph.
        provider: ONNX Runtime's name of what computes.

    Raises:
        BundleError: ONNX Runtime cannot run it.
        DeviceError: the provider cannot compute here.
    """

    def __init__(self, bundle: Bundle, model: bytes, provider: str = CPU) -> None:
        try:
            self._loaded = load_graph(model, provider)
        except DeviceError:
            raise
        except Exception as error:  # ONNX Runtime has no base class for its errors
            why = str(error).splitlines()[0]
            raise BundleError(f"bundle {bundle.path}: ONNX Runtime cannot run its graph: {why}") from error
        self._facts = bundle.facts

    def run(self, given: Mapping[str, Array], outputs: Sequence[str]) -> Arrays:
        """Outputs ``[n, ...]`` by name, for inputs as `Facts.filled` takes them."""
        return dict(zip(outputs, run_rows(self._loaded, outputs, self._facts.filled(given)), strict=True))


class BundlePolicy(Policy):
    """A policy from one graph of its bundle."""

    def __init__(self, bundle: Bundle, model: bytes, provider: str = CPU) -> None:
        facts = bundle.facts
        origin = f"{facts.run['algorithm']} on {facts.run['env']}, run by ONNX Runtime from {bundle.path}"
        super().__init__(facts.spaces, facts.carry, origin)
        self.facts = facts
        self.runner = GraphRunner(bundle, model, provider)

    def begin(self, lanes: int) -> Lanes:
        """Begin to act in these lanes, without checks."""
        return _Lanes(self.facts, self.runner, lanes)


class _Lanes:
    """Hands the carry on from one run of the graph to the next."""

    def __init__(self, facts: Facts, runner: GraphRunner, lanes: int) -> None:
        self.carry: Arrays = {spec.name: np.zeros((lanes, *spec.shape), spec.dtype) for spec in facts.carry}
        self.environment_action = environment_array(facts.spaces.action, lanes)
        self._space = facts.spaces.action
        self._actions = [port.name for port in facts.outputs if port.role == "action"]
        self._runner = runner

    def act(self, given: Mapping[str, Array]) -> None:
        after = {next_name(name): values for name, values in self.carry.items()}
        found = self._runner.run({**given, **self.carry}, [*self._actions, *after])
        for name, values in after.items():
            values[...] = found[name]
        actions = [found[name] for name in self._actions]
        if isinstance(self._space, Composite):
            for (_, columns), action in zip(self._space.columns(), actions, strict=True):
                self.environment_action[:, columns] = action.reshape(len(action), -1)
        else:
            self.environment_action[...] = actions[0]
