"""What tests of native updates compare with: states in mid-run, rows to learn from, and float64 steps on them."""

import numpy as np
import pytest
import torch

from penstock.policies import Gaussian
from penstock.policies.native import supports_update
from tests.inference import reference

ROWS = 400
GRAPHS = {name: graph for name, graph in reference.GRAPHS.items() if supports_update(graph)}


def batch(graph, seed=0):
    """A state in mid-run, and rows whose policy is a little older than the state's."""
    generator = np.random.default_rng(seed)
    published = reference.record(graph, generator)
    rows = reference.observations(graph, generator, ROWS)
    out = reference.act(graph, published, rows, reference.noise_of(graph, generator, ROWS), np.ones(ROWS))
    rows["action"] = out["action"].astype(np.float32) if isinstance(graph.head, Gaussian) else out["action"]
    rows["log_prob"] = (out["log_prob"] + generator.normal(0.0, 0.15, ROWS)).astype(np.float32)
    rows["advantage"] = generator.normal(2.0, 3.0, ROWS).astype(np.float32)
    rows["target"] = generator.normal(size=ROWS).astype(np.float32)
    state = dict(published)
    for network in graph.networks:
        state[f"adam_m.{network.name}"] = generator.normal(0.0, 1e-3, network.num_parameters).astype(np.float32)
        for moment in ("sgd_m", "muon_m"):
            state[f"{moment}.{network.name}"] = state[f"adam_m.{network.name}"].copy()
        for moment in ("adam_v", "rmsprop_v"):
            values = generator.uniform(0.0, 1e-5, network.num_parameters)
            state[f"{moment}.{network.name}"] = values.astype(np.float32)
    state["adam_step"] = np.array(10)
    return state, rows


def copied(state):
    """An update learns in place."""
    return {name: np.array(values) for name, values in state.items()}


def wide(values):
    """The same numbers in float64."""
    return values.astype(np.float64) if values.dtype == np.float32 else values


def exact(state):
    """A state in float64, at the beginning of a run."""
    tensors = {name: torch.tensor(wide(values)) for name, values in state.items()}
    return tensors | {"progress": torch.tensor(0.0, dtype=torch.float64)}


def agree(after, expected, graph, tolerance=1e-5):
    """The parameters and moments of a native step are those of float64, but for rounding."""
    for network in graph.networks:
        for prefix in ("", "adam_m.", "adam_v.", "rmsprop_v.", "sgd_m.", "muon_m."):
            name = prefix + network.name
            error = np.linalg.norm(after[name] - expected[name]) / np.linalg.norm(expected[name])
            assert error < tolerance, (name, error)


def same_metrics(found, expected):
    """A native step reports the metrics of float64, all but the learning rate."""
    assert set(found) == set(expected) - {"lr"}
    for metric, value in found.items():
        assert value == pytest.approx(expected[metric], rel=1e-4, abs=1e-5), metric
