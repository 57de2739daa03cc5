"""Native heads of policies without a value: their actions in edge cases, and the graphs that have them."""

import numpy as np
import pytest

from penstock.kernels.policy import PolicyKernel
from penstock.policies import (
    Deterministic,
    Dueling,
    EpsilonGreedy,
    Linear,
    Network,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.policies.native import layout_of, supports
from tests.inference import reference
from tests.inference.reference import acted
from tests.kernels.test_policy import loaded


@pytest.mark.parametrize("name", ["squashed", "deterministic", "values"])
def test_a_bound_policy_reads_its_explore_at_every_call(name):
    graph, lanes = reference.GRAPHS[name], np.arange(400)
    kernel, _ = loaded(graph)
    generator = np.random.default_rng(3)
    obs = {"obs": np.tile(generator.normal(size=(1, 1, 3)).astype(np.float32), (1, 400, 1))}
    out = {"action": reference.outputs_for(graph, 400)["action"][None]}
    explore = np.zeros(400, np.float32)
    bound = kernel.bind(obs, out, lanes=lanes, explore=explore)
    bound.act(0, 0)
    assert len(np.unique(out["action"])) == 1
    explore[200:] = 0.3
    bound.act(0, 0)
    assert len(np.unique(out["action"][0, :200])) == 1
    assert len(np.unique(out["action"][0, 200:])) > 1
    if name == "values":
        # Of 200 lanes that explore with 0.3, half of those take the other of two actions: 30 +- 5.
        assert 15 < (out["action"][0, 200:] != out["action"][0, 0]).sum() < 45


def test_epsilon_greedy_takes_the_first_of_equals_and_never_more_than_there_are():
    graph = reference.without_value(reference.FLAT, EpsilonGreedy(3), ())
    kernel = PolicyKernel(layout_of(graph))
    kernel.load({"actor": np.array([0.0] * 9 + [4.0, 1.0, 4.0], np.float32)})
    below_one = 1.0 - 2.0**-24
    noise = np.array([[0.49, 0.34], [0.5, 0.34], [0.0, below_one], [0.0, np.nan], [0.0, 2.0], [0.0, -1.0]], np.float32)
    explore = np.array([0.5, 0.5, 1.0, 1.0, 1.0, 1.0], np.float32)
    out = acted(kernel, graph, {"obs": np.ones((6, 3), np.float32)}, noise, explore)
    assert out["action"].tolist() == [1, 0, 2, 0, 2, 0]
    assert out["q"].tolist() == [[4.0, 1.0, 4.0]] * 6


def test_a_squashed_action_stays_inside_whatever_its_outputs():
    graph = reference.without_value(reference.FLAT, SquashedGaussian(2), ())
    kernel = PolicyKernel(layout_of(graph))
    kernel.load({"actor": np.array([0.0] * 12 + [1e30, -1e30, 1e30, -1e30], np.float32)})
    out = acted(
        kernel, graph, {"obs": np.ones((1, 3), np.float32)}, np.full((1, 2), 5.0, np.float32), np.ones(1, np.float32)
    )
    assert out["action"].tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize(
    ("layers", "head"),
    [
        ((Dueling(2), Linear(3, 2, 1.0)), EpsilonGreedy(2)),
        ((Linear(3, 3, 1.0), Dueling(2), Dueling(2)), EpsilonGreedy(2)),
        ((Linear(3, 3, 1.0), Dueling(2)), EpsilonGreedy(2, 2)),
        ((Linear(3, 3, 1.0), Dueling(2)), Deterministic(2)),
    ],
)
def test_a_dueling_layer_that_is_not_the_last_under_its_head_is_not_supported(layers, head):
    assert not supports(PolicyGraph(reference.FLAT, Network("actor", layers), None, head, gives_value=False))
